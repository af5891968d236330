/* Functions of _core under their own names, called through its table. */
#include "test_device/module.h"

#include "python/functions/for_test_device.h"

static const ad_for_test_device *core;

#define FORWARD(result, name, parameters, arguments)                          \
    result name parameters                                                    \
    {                                                                         \
        return core->name arguments;                                          \
    }

/* clang-format off */
AD_FOR_TEST_DEVICE(FORWARD)
/* clang-format on */

int
ad_testing_find_core(void)
{
    const ad_for_test_device *found =
        PyCapsule_Import(AD_FOR_TEST_DEVICE_NAME, 0);
    if (found == NULL) {
        return -1;
    }
    if (found->size != sizeof(*found) ||
        strcmp(found->version, ARROWDEV_VERSION) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "arrowdev.testing._device and arrowdev._core are not "
                        "of the same build; run `pip install .` again");
        return -1;
    }
    core = found;
    return 0;
}

PyObject *
ad_testing_raise(const ad_error *err)
{
    ad_state *state = ad_state_current();
    return state != NULL ? ad_raise(state, err) : NULL;
}
