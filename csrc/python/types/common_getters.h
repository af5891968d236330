/* Attributes and methods of device and event that Array, Tensor and Buffer
 * share, so that the types cannot differ.
 */
#ifndef AD_PYTHON_TYPES_COMMON_GETTERS_H
#define AD_PYTHON_TYPES_COMMON_GETTERS_H

#include "support/objects.h"

/* Getters of device, device_type, device_id and sync_event. AD_COMMON_GETSET
 * lists them for use inside a PyGetSetDef table, without a NULL entry. */
PyObject *ad_get_device(PyObject *self, void *closure);
PyObject *ad_get_device_type(PyObject *self, void *closure);
PyObject *ad_get_device_id(PyObject *self, void *closure);
PyObject *ad_get_sync_event(PyObject *self, void *closure);

/* For repr(): ", after event", or "" if no pending work is known. */
const char *ad_readiness(const ad_sync *sync);

#define AD_COMMON_GETSET                                                      \
    {"device", ad_get_device, NULL, "The Device that the memory is on.",      \
     NULL},                                                                   \
        {"device_type", ad_get_device_type, NULL,                             \
         "DeviceType of the memory (a plain int for an unknown type).",       \
         NULL},                                                               \
        {"device_id", ad_get_device_id, NULL,                                 \
         "Ordinal of the device; -1 for the CPU, and if the interface that\n" \
         "the memory came by names none.",                                    \
         NULL},                                                               \
    {                                                                         \
        "sync_event", ad_get_sync_event, NULL,                                \
            "Address of the event handle that must be waited for, or None.\n" \
            "\nSource: specification, \"Synchronization event types\".",      \
            NULL                                                              \
    }

/* is_ready(), synchronize(), wait(stream), to(device, *, stream=None),
 * __array__(dtype=None, copy=None), into(cls, *, stream=None, copy=None).
 * NumPy calls __array__ of a Tensor only if the Tensor exports no buffer;
 * without __array__ it would make an array of one Python object. */
PyObject *ad_is_ready(PyObject *self, PyObject *ignored);
PyObject *ad_synchronize(PyObject *self, PyObject *ignored);
PyObject *ad_wait(PyObject *self, PyObject *stream);
PyObject *ad_to(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                PyObject *kwnames);
PyObject *ad_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                   PyObject *kwnames);
PyObject *ad_into(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                  PyObject *kwnames);

#define AD_COMMON_METHODS                                                          \
    {"is_ready", ad_is_ready, METH_NOARGS,                                         \
     "is_ready($self)\n--\n\n"                                                     \
     "Whether the data are ready now, without waiting.\n\n"                        \
     "Raises ExchangeError if work is pending on a device whose runtime is\n"      \
     "not available, and DeviceError if the work failed."},                        \
        {"synchronize", ad_synchronize, METH_NOARGS,                               \
         "synchronize($self)\n--\n\n"                                              \
         "Block the host until the data are ready. Raises as is_ready()."},        \
        {"wait", ad_wait, METH_O,                                                  \
         "wait($self, stream, /)\n--\n\n"                                          \
         "Make a stream of the device wait until the data are ready. The host\n"   \
         "does not block. Raises as is_ready(), and TypeError for None."},         \
        {"to", AD_METHOD(ad_to),                                                   \
         "to($self, device, *, stream=None)\n--\n\n"                               \
         "The same data on a device; self if they are there already.\n\n"          \
         "The copy runs on `stream` of the device (default: that of\n"             \
         "use_stream(), else arrowdev's own). A copy in host memory is complete\n" \
         "on return. Pinned and managed memory becomes memory of the host or of\n" \
         "its device without a copy.\n\n"                                          \
         "Raises ExchangeError if no runtime can copy there, MemoryError if the\n" \
         "device has too little memory left, DeviceError if the runtime fails."},  \
        {"__array__", AD_METHOD(ad_numpy),                                         \
         "__array__($self, dtype=None, copy=None)\n--\n\n"                         \
         "The data as a NumPy array. Raises ExchangeError, with a hint, for\n"     \
         "memory that the host cannot read and for nulls."},                       \
    {                                                                              \
        "into", AD_METHOD(ad_into),                                                \
            "into($self, cls, *, stream=None, copy=None)\n--\n\n"                  \
            "The data as an instance of another library's class, such as\n"        \
            "torch.Tensor or pyarrow.Array, by the fastest way that the\n"         \
            "class offers.\n\n"                                                    \
            "Raises TypeError for a class that arrowdev does not know."            \
    }

#endif /* AD_PYTHON_TYPES_COMMON_GETTERS_H */
