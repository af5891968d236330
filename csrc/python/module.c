/* The module arrowdev._core: multi-phase initialization, state, and the
 * methods that protocols add to the types. */
#include "async/pump.h"
#include "base/os.h"
#include "base/process.h"
#include "order/deferred_release.h"
#include "protocol/dlpack_tensor.h"
#include "protocol/protocol.h"
#include "python/types/types.h"
#include "python/functions/for_test_device.h"
#include "python/functions/functions.h"
#include "python/functions/trace.h"
#include "support/logging.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* How long the exit waits for Python calls that do not return. */
#define PATIENCE_NS INT64_C(5000000000)

static int
intern_strings(ad_state *state)
{
    static const char *const texts[AD_N_STRINGS] = {
#define AD_STRING(tag, text) [AD_STR_##tag] = text,
#include "support/strings.def"
#undef AD_STRING
    };
    for (int i = 0; i < AD_N_STRINGS; i++) {
        state->strings[i] = PyUnicode_InternFromString(texts[i]);
        if (state->strings[i] == NULL) {
            return -1;
        }
    }
    state->max_version = Py_BuildValue("(ii)", AD_DL_MAJOR, AD_DL_MINOR);
    return state->max_version != NULL ? 0 : -1;
}

static int
add_types(ad_state *state, PyObject *module)
{
    const struct {
        PyObject **out;
        PyType_Spec *spec;
    } types[] = {
        {&state->device_type, &ad_device_type_spec},
        {&state->schema_type, &ad_schema_type_spec},
        {&state->tensor_type, &ad_tensor_type_spec},
        {&state->buffer_type, &ad_buffer_type_spec},
        {&state->array_type, &ad_array_type_spec},
        {&state->array_stream_type, &ad_array_stream_type_spec},
        {&state->async_consumer_type, &ad_async_consumer_type_spec},
        {&state->async_producer_type, &ad_async_producer_type_spec},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        *types[i].out = type;
        if (type == NULL ||
            PyModule_AddType(module, (PyTypeObject *)type) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The tables are static; CPython's signatures lack the const. */
static int
add_attributes(PyObject *object, const PyMethodDef *methods,
               const PyGetSetDef *getset)
{
    PyTypeObject *type = (PyTypeObject *)object;
    for (; methods != NULL && methods->ml_name != NULL; methods++) {
        if (ad_py_set_attr(object, methods->ml_name,
                           PyDescr_NewMethod(type, (PyMethodDef *)methods)) <
            0) {
            return -1;
        }
    }
    for (; getset != NULL && getset->name != NULL; getset++) {
        if (ad_py_set_attr(object, getset->name,
                           PyDescr_NewGetSet(type, (PyGetSetDef *)getset)) <
            0) {
            return -1;
        }
    }
    return 0;
}

/* Make the type immutable. */
static void
freeze(PyObject *object)
{
    PyTypeObject *type = (PyTypeObject *)object;
    type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
    PyType_Modified(type);
}

/* Adds the attributes that are in other files than their types: those that the
 * three types share, those of prompts, and those of the protocols. Makes the
 * types immutable. */
static int
add_shared_attributes(ad_state *state)
{
    PyObject *const types[] = {state->array_type, state->tensor_type,
                               state->buffer_type};
    if (ad_dlpack_exchange_init(state) < 0 ||
        PyObject_SetAttr(state->tensor_type,
                         AD_STR(state, dlpack_c_exchange_api),
                         state->exchange_api_capsule) < 0 ||
        add_attributes(state->array_type, ad_array_prompt_methods,
                       ad_array_prompt_getset) < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (add_attributes(types[i], ad_common_methods, ad_common_getset) <
            0) {
            return -1;
        }
        for (int p = 0; p < AD_N_PROTOCOLS; p++) {
            const ad_protocol *protocol = ad_protocols[p];
            bool is_array = types[i] == state->array_type;
            if (add_attributes(types[i],
                               is_array ? protocol->array_methods
                                        : protocol->tensor_methods,
                               is_array ? protocol->array_getset
                                        : protocol->tensor_getset) < 0) {
                return -1;
            }
        }
        freeze(types[i]);
    }
    return 0;
}

/* Runs before the interpreter finalizes. From now on other threads call no
 * Python of it, and when the process ends, memory that waits for a device is
 * not released any more, because the completion could not be reported. All
 * threads are told to stop before
 * the first one is joined, so that a stuck thread takes no time from the
 * others. */
static PyObject *
at_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    ad_interpreter *here = ad_interpreter_here();
    const int64_t deadline = ad_now() + PATIENCE_NS;
    ad_trace_at_exit();
    Py_BEGIN_ALLOW_THREADS;
    ad_async_pump_stop_all(&here->pumps);
    ad_py_calls_stop(here, deadline);
    ad_async_pump_join_all(&here->pumps, deadline);
    if (here->is_main) {
        ad_deferred_stop();
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef at_exit_method = {"_at_exit", at_exit, METH_NOARGS, NULL};

static int
register_at_exit(void)
{
    PyObject *function = PyCFunction_New(&at_exit_method, NULL);
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *result =
        function != NULL && atexit != NULL
            ? PyObject_CallMethod(atexit, "register", "O", function)
            : NULL;
    Py_XDECREF(function);
    Py_XDECREF(atexit);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static int
module_exec(PyObject *module)
{
    ad_state *state = ad_state_of_module(module);
    if (!AD_PY_HAS_INTERPRETERS &&
        PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "arrowdev supports sub-interpreters from CPython 3.12 "
                        "on");
        return -1;
    }
    state->interpreter = ad_interpreter_enroll();
    if (state->interpreter == NULL) {
        return -1;
    }
    if (intern_strings(state) < 0 || ad_errors_init(state, module) < 0 ||
        add_types(state, module) < 0 ||
        ad_device_type_enum_init(state, module) < 0 ||
        ad_stream_scope_type_init(state, module) < 0 ||
        add_shared_attributes(state) < 0 || ad_c_api_init(module) < 0 ||
        ad_for_test_device_init(module) < 0) {
        return -1;
    }
    ad_state_add(state);
    ad_waiting_init();
    ad_register_backend_init();
    if (ad_logging_init() < 0 || register_at_exit() < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", ARROWDEV_VERSION);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    ad_state *state = ad_state_of_module(module);
#define X(name) Py_VISIT(state->name);
    AD_STATE_OBJECTS(X)
#undef X
    for (int i = 0; i < AD_N_TYPE_SLOTS; i++) {
        Py_VISIT(state->slots[i].type);
    }
    return 0;
}

static int
module_clear(PyObject *module)
{
    ad_state *state = ad_state_of_module(module);
    ad_state_remove(state);
#define X(name) Py_CLEAR(state->name);
    AD_STATE_OBJECTS(X)
#undef X
    for (int i = 0; i < AD_N_STRINGS; i++) {
        Py_CLEAR(state->strings[i]);
    }
    for (int i = 0; i < AD_N_TYPE_SLOTS; i++) {
        Py_CLEAR(state->slots[i].type);
    }
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
    PyObject_Free(ad_state_of_module(module)->spare_array);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* docs/internals/threads.md */
#endif
    {0, NULL},
};

#define MODULE_DOC "The C core of arrowdev; use the names in arrowdev."

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "arrowdev._core",
    .m_doc = MODULE_DOC,
    .m_size = sizeof(ad_state),
    .m_methods = ad_module_functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}

#if PY_VERSION_HEX >= 0x030f0000

PyABIInfo_VAR(abi_info);

/* The same as slots (PEP 793, PEP 820), which CPython 3.15 looks for first. It
 * checks that the build is for its ABI. */
static PySlot export_slots[] = {
    PySlot_STATIC_DATA(Py_mod_abi, &abi_info),
    PySlot_STATIC_DATA(Py_mod_name, "arrowdev._core"),
    PySlot_STATIC_DATA(Py_mod_doc, MODULE_DOC),
    PySlot_SIZE(Py_mod_state_size, sizeof(ad_state)),
    PySlot_STATIC_DATA(Py_mod_methods, ad_module_functions),
    PySlot_STATIC_DATA(Py_mod_slots, module_slots),
    PySlot_FUNC(Py_mod_state_traverse, module_traverse),
    PySlot_FUNC(Py_mod_state_clear, module_clear),
    PySlot_FUNC(Py_mod_state_free, module_free),
    PySlot_END,
};

PyMODEXPORT_FUNC
PyModExport__core(void)
{
    return export_slots;
}

#endif
