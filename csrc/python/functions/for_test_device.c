#include "python/functions/for_test_device.h"

static const ad_for_test_device table = {.size = sizeof(table),
                                         .version = ARROWDEV_VERSION,
#define ADDRESS(result, name, parameters, arguments) .name = name,
                                         AD_FOR_TEST_DEVICE(ADDRESS)
#undef ADDRESS
};

int
ad_for_test_device_init(PyObject *module)
{
    return ad_py_set_attr(
        module, "_for_test_device",
        PyCapsule_New((void *)&table, AD_FOR_TEST_DEVICE_NAME, NULL));
}
