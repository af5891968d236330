/* Functions of a DLPack exchange table that do what another function does, and
 * then set an exception without saying so. */
#include <Python.h>

int (*late_from_py)(void *object, void **out);
int (*late_to_py)(void *managed, void **out);
int (*late_stream)(int32_t type, int32_t id, void **out);

static void
set_error(void)
{
    PyErr_SetString(PyExc_KeyError, "beside a 0");
}

int
from_py(void *object, void **out)
{
    int result = late_from_py(object, out);
    set_error();
    return result;
}

int
to_py(void *managed, void **out)
{
    int result = late_to_py(managed, out);
    set_error();
    return result;
}

int
current_stream(int32_t type, int32_t id, void **out)
{
    int result = late_stream(type, id, out);
    set_error();
    return result;
}
