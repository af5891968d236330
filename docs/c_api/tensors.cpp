// An extension in C++ with pybind11: dot() takes tensors of any library,
// ramp() makes one of the class that the caller names.
#include <pybind11/pybind11.h>

#include "arrowdev.h"

#include <cstdlib>
#include <memory>

namespace py = pybind11;

struct Deleter {
    void
    operator()(DLManagedTensorVersioned *tensor) const
    {
        tensor->deleter(tensor);
    }
};

using Tensor = std::unique_ptr<DLManagedTensorVersioned, Deleter>;

// One dimension of float64 on the host.
static Tensor
vector_of(const py::object &obj)
{
    ArrowDevOptions options = {};
    DLManagedTensorVersioned *tensor;
    options.size = sizeof(options);
    options.device_type = ARROW_DEVICE_CPU;
    if (ArrowDev_ExportDLPack(obj.ptr(), &options, &tensor) < 0) {
        throw py::error_already_set();
    }
    Tensor owned(tensor);
    const DLTensor &view = tensor->dl_tensor;
    if (view.ndim != 1 || view.dtype.code != kDLFloat ||
        view.dtype.bits != 64) {
        throw py::type_error("expected one dimension of float64");
    }
    return owned;
}

static double
dot(const py::object &a, const py::object &b)
{
    const Tensor left = vector_of(a), right = vector_of(b);
    const DLTensor &x = left->dl_tensor, &y = right->dl_tensor;
    if (x.shape[0] != y.shape[0]) {
        throw py::value_error("the lengths differ");
    }
    auto at = [](const DLTensor &t, int64_t i) {
        const char *first = static_cast<const char *>(t.data) + t.byte_offset;
        return reinterpret_cast<const double *>(first)[i * t.strides[0]];
    };
    double sum = 0;
    for (int64_t i = 0; i < x.shape[0]; i++) {
        sum += at(x, i) * at(y, i);
    }
    return sum;
}

// A tensor with its shape, strides and values in one block.
struct Ramp {
    DLManagedTensorVersioned managed;
    int64_t shape, stride;
    double values[1];
};

static py::object
ramp(int64_t n, const py::type &cls)
{
    if (n < 0 || n > 1 << 20) {
        throw py::value_error("expected 0 to 2**20");
    }
    auto *block =
        static_cast<Ramp *>(std::calloc(1, sizeof(Ramp) + n * sizeof(double)));
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    block->shape = n;
    block->stride = 1;
    for (int64_t i = 0; i < n; i++) {
        block->values[i] = static_cast<double>(i);
    }
    block->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    block->managed.deleter = [](DLManagedTensorVersioned *self) {
        std::free(self);
    };
    block->managed.dl_tensor = {
        block->values, {kDLCPU, 0},    1, {kDLFloat, 64, 1},
        &block->shape, &block->stride, 0};
    PyObject *tensor = ArrowDev_ImportDLPack(&block->managed); // takes it over
    if (tensor == nullptr) {
        throw py::error_already_set();
    }
    PyObject *result = ArrowDev_Into(
        tensor, reinterpret_cast<PyTypeObject *>(cls.ptr()), nullptr);
    Py_DECREF(tensor);
    if (result == nullptr) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(result);
}

PYBIND11_MODULE(tensors, module)
{
    if (ArrowDev_Import() < 0) {
        throw py::error_already_set();
    }
    module.def("dot", &dot, "The dot product of two vectors of float64.");
    module.def("ramp", &ramp, "0 to n - 1 as an instance of a class.");
}
