// An extension in C++ with nanobind: length() counts the rows of any array.
#include <nanobind/nanobind.h>

#include "arrowdev.h"

namespace nb = nanobind;

static int64_t
length(nb::handle obj)
{
    ArrowSchema schema;
    ArrowDeviceArray array;
    if (ArrowDev_ExportDeviceArray(obj.ptr(), nullptr, &schema, &array) < 0) {
        throw nb::python_error();
    }
    int64_t rows = array.array.length;
    array.array.release(&array.array);
    schema.release(&schema);
    return rows;
}

NB_MODULE(lengths, module)
{
    if (ArrowDev_Import() < 0) {
        throw nb::python_error();
    }
    module.def("length", &length, "The number of rows.");
}
