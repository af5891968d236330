/* requested_schema as consumer: the call of an Arrow method. */
#include "protocol/arrow.h"

#include <errno.h>

#include "model/schema_cast.h"
#include "support/py_call.h"
#include "support/py_stream.h"

static PyObject *
call_with_schema(ad_state *state, PyObject *object, PyObject *name,
                 ad_schema schema)
{
    PyObject *capsule = ad_schema_capsule(state, schema);
    if (capsule == NULL) {
        return NULL;
    }
    PyObject *args[] = {object, capsule};
    PyObject *kwnames = PyTuple_Pack(1, AD_STR(state, requested_schema));
    PyObject *result = NULL;
    if (kwnames != NULL) {
        result = PyObject_VectorcallMethod(name, args, 1, kwnames);
        Py_DECREF(kwnames);
    }
    Py_DECREF(capsule);
    return result;
}

/* --- types with fields --------------------------------------------------- */

/* Fills *out with the schema of a stream that nobody has taken yet. False if
 * there is none: the import says why. */
static bool
read_schema(PyObject *capsule, bool is_device, struct ArrowSchema *out)
{
    ad_stream_struct stream;
    int code = EINVAL;
    if (!ad_stream_struct_borrow(capsule, is_device, &stream)) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS
    if (is_device && stream.device.get_schema != NULL) {
        code = stream.device.get_schema(&stream.device, out);
    } else if (!is_device && stream.host.get_schema != NULL) {
        code = stream.host.get_schema(&stream.host, out);
    }
    Py_END_ALLOW_THREADS
    ad_stream_struct_give_back(capsule, &stream);
    return code == 0;
}

/* Sets *out to what is to be asked for, see ad_schema_cast_request(). An
 * answer without a valid schema is left to the import, which says what is
 * wrong with it. -1 with an exception. */
static int
find_request(ad_state *state, PyObject *answer, ad_schema wanted,
             ad_schema *out)
{
    const char *schema_name = ad_capsule_name(AD_CAPSULE_SCHEMA);
    struct ArrowSchema storage = {.release = NULL};
    struct ArrowSchema *own = NULL;
    PyObject *capsule = PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) == 2
                            ? PyTuple_GET_ITEM(answer, 0)
                            : answer;
    if (read_schema(answer, true, &storage) ||
        read_schema(answer, false, &storage)) {
        own = &storage;
    }
    ad_status status = AD_OK;
    ad_error err;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    if (capsule != answer && PyCapsule_IsValid(capsule, schema_name)) {
        own = PyCapsule_GetPointer(capsule, schema_name);
    }
    if (own != NULL && ad_schema_validate(own, &err) == AD_OK) {
        status = ad_schema_cast_request(own, wanted.node, out, &err);
    }
    Py_END_CRITICAL_SECTION();
    if (storage.release != NULL) {
        storage.release(&storage);
    }
    return ad_raise_status(state, status, &err);
}

/* Producers match the fields of a type by name, and make nulls of fields that
 * they do not have. So the type of the data themselves is looked at first: new
 * names are put on after the import, by position. */
static PyObject *
call_for_fields(ad_state *state, PyObject *object, PyObject *name,
                ad_schema wanted)
{
    ad_schema request = {0};
    PyObject *answer = PyObject_CallMethodNoArgs(object, name);
    if (answer == NULL || find_request(state, answer, wanted, &request) < 0) {
        Py_XDECREF(answer);
        return NULL;
    }
    if (request.node == NULL) {
        return answer;
    }
    PyObject *other = call_with_schema(state, object, name, request);
    ad_schema_unref(request);
    if (other == NULL && !ad_exception_is_final(state)) {
        PyErr_Clear();
        return answer;
    }
    PyObject *saved = ad_py_take_exception();
    Py_DECREF(answer);
    ad_py_restore_exception(saved);
    return other;
}

/* --- the call ------------------------------------------------------------ */

PyObject *
ad_arrow_call(ad_state *state, PyObject *object, int method,
              const ad_request *request)
{
    PyObject *name = state->strings[method];
    if (request->schema.node != NULL) {
        if (ad_schema_cast_has_fields(request->schema.node)) {
            return call_for_fields(state, object, name, request->schema);
        }
        PyObject *result =
            call_with_schema(state, object, name, request->schema);
        if (result != NULL || ad_exception_is_final(state)) {
            return result;
        }
        PyErr_Clear();
    }
    return PyObject_CallMethodNoArgs(object, name);
}

int
ad_arrow_check_nanoarrow(PyObject *object)
{
    PyObject *result =
        ad_call_helper("_convert", "require_no_views", &object, 1);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}
