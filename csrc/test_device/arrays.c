/* A producer and a consumer of Arrow arrays on the software device, for tests.
 * They use no import, export or copy of arrowdev that concerns a device.
 */
#include <stdlib.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "base/owner.h"
#include "support/waiting.h"
#include "test_device/engine.h"
#include "test_device/module.h"
#include "test_device/software.h"

/* --- nodes that own their buffers ---------------------------------------- */

/* The `private_data` of a node. */
typedef struct node {
    bool is_on_device;
    uint64_t queue; /* on the device: frees the buffers in its order */
    uint64_t event; /* of a root, or 0 */
    const void **buffers;
    struct ArrowArray **children;
} node;

/* Also a device array, whose first member is its struct ArrowArray. */
static void
free_struct(struct ArrowArray *array)
{
    if (array != NULL) {
        if (array->release != NULL) {
            array->release(array);
        }
        free(array);
    }
}

static void
free_buffer(const node *self, void *data)
{
    if (!self->is_on_device) {
        free(data);
    } else if (data != NULL) {
        ad_engine_free_after(self->queue, data);
    }
}

static void
node_release(struct ArrowArray *array)
{
    node *self = array->private_data;
    for (int64_t i = 0; self->buffers != NULL && i < array->n_buffers; i++) {
        free_buffer(self, (void *)self->buffers[i]);
    }
    for (int64_t i = 0; self->children != NULL && i < array->n_children; i++) {
        free_struct(self->children[i]);
    }
    free_struct(array->dictionary);
    if (self->event != 0) {
        (void)ad_engine_event_destroy(self->event);
    }
    free(self->buffers);
    free(self->children);
    free(self);
    array->release = NULL;
}

/* Creates a node like `like`, with NULL buffers and released children.
 * out->release may be called if it is set, also on failure. */
static ad_status
node_new(const struct ArrowArray *like, bool is_on_device, uint64_t queue,
         struct ArrowArray *out, ad_error *err)
{
    node *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    self->is_on_device = is_on_device;
    self->queue = queue;
    self->buffers =
        calloc((size_t)like->n_buffers + 1, sizeof(self->buffers[0]));
    self->children =
        calloc((size_t)like->n_children + 1, sizeof(self->children[0]));
    *out = (struct ArrowArray){
        .length = like->length,
        .null_count = like->null_count,
        .offset = like->offset,
        .n_buffers = like->n_buffers,
        .n_children = like->n_children,
        .buffers = self->buffers,
        .children = self->children,
        .release = node_release,
        .private_data = self,
    };
    bool is_whole = self->buffers != NULL && self->children != NULL;
    for (int64_t i = 0; is_whole && i < like->n_children; i++) {
        self->children[i] = calloc(1, sizeof(*self->children[i]));
        is_whole = self->children[i] != NULL;
    }
    if (is_whole && like->dictionary != NULL) {
        out->dictionary = calloc(1, sizeof(*out->dictionary));
        is_whole = out->dictionary != NULL;
    }
    return is_whole ? AD_OK : ad_fail_memory(err, sizeof(*out));
}

/* The destructor of both kinds of capsules. */
static void
destroy_holder(PyObject *capsule)
{
    free_struct(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

static PyObject *
holder_capsule(struct ArrowDeviceArray *holder, const char *name)
{
    PyObject *capsule = PyCapsule_New(holder, name, destroy_holder);
    if (capsule == NULL) {
        free_struct(&holder->array);
    }
    return capsule;
}

/* --- from the host to the device ----------------------------------------- */

typedef struct upload {
    uint64_t queue;
    int device;
    PyObject *sizes; /* a tuple: the bytes of each buffer, see upload_node() */
    Py_ssize_t n_taken;
} upload;

/* The next size, or -1 with an exception. */
static int64_t
take_size(upload *u)
{
    if (u->n_taken == PyTuple_GET_SIZE(u->sizes)) {
        PyErr_Format(PyExc_ValueError, "the array has more than %zd buffers",
                     u->n_taken);
        return -1;
    }
    return PyLong_AsLongLong(PyTuple_GET_ITEM(u->sizes, u->n_taken++));
}

static ad_status
upload_buffer(const upload *u, const void *data, int64_t nbytes,
              const void **out, ad_error *err)
{
    /* Padded as Arrow recommends; the padding is not set to zero. */
    size_t padded = (size_t)ad_padded(nbytes);
    void *memory;
    int code =
        ad_engine_allocate(u->device, padded > 0 ? padded : AD_ALIGNMENT,
                           AD_ENGINE_DEVICE, NULL, &memory);
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, u->device, "allocate", code);
    }
    *out = memory;
    code = ad_engine_write(u->queue, memory, data, (size_t)nbytes);
    return code == AD_ENGINE_OK
               ? AD_OK
               : ad_software_fail(err, u->device, "write", code);
}

/* Uploads a node, then its children, then its dictionary. Returns 0, or -1
 * with an exception; then the caller releases *out where its `release` is
 * set. */
static int
upload_node(upload *u, const struct ArrowArray *source, struct ArrowArray *out)
{
    ad_error err;
    ad_status status = node_new(source, true, u->queue, out, &err);
    for (int64_t i = 0; status == AD_OK && i < source->n_buffers; i++) {
        int64_t nbytes = take_size(u);
        if (nbytes < 0) {
            return -1;
        }
        if (source->buffers[i] != NULL) {
            status = upload_buffer(u, source->buffers[i], nbytes,
                                   &out->buffers[i], &err);
        }
    }
    if (status != AD_OK) {
        ad_testing_raise(&err);
        return -1;
    }
    for (int64_t i = 0; i < source->n_children; i++) {
        if (upload_node(u, source->children[i], out->children[i]) < 0) {
            return -1;
        }
    }
    return source->dictionary != NULL
               ? upload_node(u, source->dictionary, out->dictionary)
               : 0;
}

/* Records an event for the root behind the writes. */
static ad_status
add_event(const upload *u, struct ArrowDeviceArray *holder, ad_error *err)
{
    node *root = holder->array.private_data;
    const uint64_t *address;
    int code = ad_engine_event_create(u->device, NULL, NULL, &root->event);
    if (code == AD_ENGINE_OK) {
        code = ad_engine_event_record(root->event, u->queue);
    }
    if (code == AD_ENGINE_OK) {
        code = ad_engine_event_address(root->event, &address);
    }
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, u->device, "event_record", code);
    }
    holder->sync_event = (void *)address;
    return AD_OK;
}

static PyObject *
upload_array(upload *u, const struct ArrowArray *source, bool with_event)
{
    ad_error err;
    struct ArrowDeviceArray *holder = calloc(1, sizeof(*holder));
    if (holder == NULL) {
        return PyErr_NoMemory();
    }
    holder->device_type = ARROW_DEVICE_EXT_DEV;
    holder->device_id = u->device;
    bool is_done = upload_node(u, source, &holder->array) == 0;
    if (is_done && with_event && add_event(u, holder, &err) != AD_OK) {
        ad_testing_raise(&err);
        is_done = false;
    }
    if (!is_done) {
        free_struct(&holder->array);
        return NULL;
    }
    return holder_capsule(holder, "arrow_device_array");
}

/* produce(capsule, sizes, queue, with_event): copies an array of the host to
 * the device on the queue, and returns a capsule of the device array. */
PyObject *
ad_testing_produce(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule;
    upload u = {0};
    unsigned long long queue;
    int with_event;
    ad_engine_queue found;
    if (!PyArg_ParseTuple(args, "OO!Kp:produce", &capsule, &PyTuple_Type,
                          &u.sizes, &queue, &with_event)) {
        return NULL;
    }
    const struct ArrowArray *source =
        PyCapsule_GetPointer(capsule, "arrow_array");
    if (source == NULL) {
        return NULL;
    }
    int code = ad_engine_queue_get(queue, &found);
    if (code != AD_ENGINE_OK) {
        ad_error err;
        (void)ad_software_fail(&err, -1, "queue_device", code);
        return ad_testing_raise(&err);
    }
    u.queue = queue;
    u.device = found.device;
    return upload_array(&u, source, with_event != 0);
}

/* --- from the device to the host ----------------------------------------- */

typedef struct download {
    uint64_t queue;
    int device; /* the device of all buffers */
    bool is_submitted;
} download;

static ad_status
download_buffer(download *d, const void *data, const void **out, ad_error *err)
{
    ad_engine_allocation found;
    if (!ad_engine_find(data, &found)) {
        return ad_fail(err, AD_ERR_ARROW, NULL,
                       "was it released, or is it memory of the host?",
                       "buffer %p is not live memory of the software device",
                       data);
    }
    if (found.device != d->device) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "buffer %p is on ext_dev:%d, and device_id says %d",
                       data, found.device, d->device);
    }
    size_t nbytes =
        found.nbytes - (size_t)((const char *)data - (const char *)found.base);
    void *memory = malloc(nbytes);
    if (memory == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    *out = memory;
    int code =
        ad_engine_copy(d->queue, memory, nbytes, data, nbytes, nbytes, 1);
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, d->device, "copy", code);
    }
    d->is_submitted = true;
    return AD_OK;
}

static ad_status
download_node(download *d, const struct ArrowArray *source,
              struct ArrowArray *out, ad_error *err)
{
    AD_RETURN_IF_ERR(node_new(source, false, 0, out, err));
    for (int64_t i = 0; i < source->n_buffers; i++) {
        if (source->buffers[i] != NULL) {
            AD_RETURN_IF_ERR(
                download_buffer(d, source->buffers[i], &out->buffers[i], err));
        }
    }
    for (int64_t i = 0; i < source->n_children; i++) {
        ad_status status =
            download_node(d, source->children[i], out->children[i], err);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "children[%lld]", (long long)i);
            return status;
        }
    }
    if (source->dictionary != NULL) {
        ad_status status =
            download_node(d, source->dictionary, out->dictionary, err);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "dictionary");
            return status;
        }
    }
    return AD_OK;
}

/* Checks the members of the device array around its struct ArrowArray. */
static ad_status
check_device_array(const struct ArrowDeviceArray *array, ad_error *err)
{
    if (array->array.release == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "the array is released");
    }
    if (array->device_type != ARROW_DEVICE_EXT_DEV || array->device_id < 0 ||
        array->device_id >= ad_engine_n_devices()) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the array is on device (%d, %lld), which is not a "
                       "software device",
                       (int)array->device_type, (long long)array->device_id);
    }
    if (array->sync_event != NULL &&
        ad_engine_event_at(array->sync_event) == 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "sync_event %p is not the address of a live event",
                       array->sync_event);
    }
    for (int i = 0; i < 3; i++) {
        if (array->reserved[i] != 0) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "reserved[%d] is %lld, expected 0", i,
                           (long long)array->reserved[i]);
        }
    }
    return AD_OK;
}

static ad_status
submit_download(download *d, const struct ArrowDeviceArray *source, bool wait,
                struct ArrowArray *out, ad_error *err)
{
    AD_RETURN_IF_ERR(check_device_array(source, err));
    d->device = (int)source->device_id;
    if (wait && source->sync_event != NULL) {
        int code = ad_engine_queue_wait(
            d->queue, ad_engine_event_at(source->sync_event));
        if (code != AD_ENGINE_OK) {
            return ad_software_fail(err, d->device, "queue_wait", code);
        }
    }
    return download_node(d, &source->array, out, err);
}

/* The source and the target of copies that nobody waits for any more. */
typedef struct abandoned {
    struct ArrowDeviceArray source;
    struct ArrowDeviceArray *target;
} abandoned;

static int
release_abandoned(void *arg)
{
    abandoned *self = arg;
    self->source.array.release(&self->source.array);
    free_struct(&self->target->array);
    free(self);
    return AD_ENGINE_OK;
}

/* Takes both over. They stay for ever if the release cannot be enqueued. */
static void
release_behind(uint64_t queue, struct ArrowDeviceArray *source,
               struct ArrowDeviceArray *target)
{
    abandoned *self = malloc(sizeof(*self));
    if (self != NULL) {
        *self = (abandoned){*source, target};
        ad_testing_run_behind(queue, release_abandoned, self);
    }
    *source = (struct ArrowDeviceArray){0};
}

/* consume(capsule, queue, wait): reads a device array on a queue, releases
 * it, and returns a capsule of a copy on the host. */
PyObject *
ad_testing_consume(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule;
    unsigned long long queue;
    int wait;
    ad_error err;
    if (!PyArg_ParseTuple(args, "OKp:consume", &capsule, &queue, &wait)) {
        return NULL;
    }
    if (!PyCapsule_IsValid(capsule, "arrow_device_array")) {
        ad_fail(&err, AD_ERR_ARROW, NULL, NULL,
                "__arrow_c_device_array__ gave a %s, expected a capsule "
                "'arrow_device_array'",
                Py_TYPE(capsule)->tp_name);
        return ad_testing_raise(&err);
    }
    struct ArrowDeviceArray *source =
        PyCapsule_GetPointer(capsule, "arrow_device_array");
    struct ArrowDeviceArray *holder = calloc(1, sizeof(*holder));
    if (holder == NULL) {
        return PyErr_NoMemory();
    }
    download d = {.queue = queue};
    ad_status status =
        submit_download(&d, source, wait != 0, &holder->array, &err);
    bool is_interrupted = false;
    int code = d.is_submitted ? ad_testing_wait(queue, -1, &is_interrupted)
                              : AD_ENGINE_OK;
    if (code == AD_ENGINE_TIMEOUT) {
        release_behind(queue, source, holder);
        holder = NULL;
    }
    if (is_interrupted) {
        ad_raise_interruption();
        return NULL;
    }
    if (status == AD_OK && code != AD_ENGINE_OK) {
        status = ad_software_fail(&err, d.device, "read", code);
    }
    if (status == AD_OK) {
        source->array.release(&source->array);
        return holder_capsule(holder, "arrow_array");
    }
    if (holder != NULL) {
        free_struct(&holder->array);
    }
    return ad_testing_raise(&err);
}
