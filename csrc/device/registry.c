#include "device/backend.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/process.h"
#include "base/thread_local.h"
#include "base/wait.h"

/* --- backends that are searched for --------------------------------------- */

/* What the search has said of a type; never freed. An empty text stands for a
 * search that has found a backend, or that there is none. */
static char *_Atomic searched[AD_N_DEVICE_TYPES];
static ad_backend_search search_function;

/* NULL: nothing failed. */
static const char *
why_not_found(int32_t device_type)
{
    const char *why = (uint32_t)device_type < AD_N_DEVICE_TYPES
                          ? atomic_load(&searched[device_type])
                          : NULL;
    return why != NULL && why[0] != '\0' ? why : NULL;
}

void
ad_backend_set_search(ad_backend_search search)
{
    search_function = search;
}

/* What is searched for may need another backend, or this one. */
static __attribute__((noinline)) void
search(int32_t device_type)
{
    static AD_THREAD_LOCAL bool is_searching;
    char *why = is_searching ? NULL : calloc(1, AD_WHY_SIZE);
    char *none = NULL;
    if (why == NULL) {
        return;
    }
    is_searching = true;
    bool is_over = search_function(device_type, why);
    is_searching = false;
    if (!is_over ||
        !atomic_compare_exchange_strong(&searched[device_type], &none, why)) {
        free(why);
    }
}

/* --- defaults of missing slots ------------------------------------------- */

/* Fail with AD_ERR_EXCHANGE: the device has no backend. */
static ad_status
fail_no_backend(ad_device device, const char *reason, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    const char *why = why_not_found(device.type);
    if (why != NULL) {
        return ad_fail_on(err, device, reason,
                          "repair the package that has the backend, or "
                          "uninstall it",
                          "memory on %s is carried as data; its runtime could "
                          "not be loaded: %s",
                          ad_device_format(device, name), why);
    }
    return ad_fail_on(
        err, device, reason,
        "copy it to the host in the producing library, hand it to a consumer "
        "that takes memory of this device, or register a backend for it with "
        "arrowdev.register_backend()",
        "memory on %s is carried as data; no runtime for it in this "
        "version",
        ad_device_format(device, name));
}

/* `what` completes "the runtime cannot ...". */
static ad_status
refuse_as(ad_device device, const char *reason, const char *what,
          ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(device.type);
    char name[AD_DEVICE_NAME_SIZE];
    if (backend->device_types[0] == 0) {
        return fail_no_backend(device, reason, err);
    }
    return ad_fail_on(err, device, reason, NULL,
                      "the %s runtime cannot %s (asked for on %s)",
                      backend->name, what, ad_device_format(device, name));
}

static ad_status
refuse(ad_device device, const char *what, ad_error *err)
{
    return refuse_as(device, "runtime", what, err);
}

/* For refuse_as(). */
#define WHAT_SHARES "share memory with other processes"

/* Only the stand-in lacks a required slot. */
static ad_status
fail_absent(ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                   "there is no runtime for this type of device in this "
                   "version");
}

/* Every slot of struct ad_backend, in declaration order: its result and
 * parameters, and the statement that its default consists of. */
#define SLOTS(X)                                                              \
    X(load, ad_status, (ad_error * err), return fail_absent(err))             \
    X(describe, ad_status, (char *buffer, size_t size, ad_error *err),        \
      return fail_absent(err))                                                \
    X(count, ad_status, (int64_t * out, ad_error * err),                      \
      return fail_absent(err))                                                \
    X(device_name, ad_status,                                                 \
      (int64_t id, char *buffer, size_t size, ad_error *err),                 \
      return fail_absent(err))                                                \
    X(device_usable, ad_status, (int64_t id, ad_error * err), return AD_OK)   \
    X(runs_on_host, bool, (int64_t id), return false)                         \
    X(describe_current, ad_status,                                            \
      (char *buffer, size_t size, ad_error *err), *buffer = '\0';             \
      return AD_OK)                                                           \
    X(primary_context, ad_status,                                             \
      (ad_device device, ad_context * out, ad_error * err),                   \
      return refuse(device, "tell where work goes", err))                     \
    X(synchronize, ad_status, (ad_context context, ad_error * err),           \
      return refuse(context.device, "wait for the device", err))              \
    X(classify, ad_status,                                                    \
      (const void *pointer, ad_context hint, ad_memory_info *out,             \
       ad_error *err),                                                        \
      return refuse(hint.device, "tell what a pointer is", err))              \
    X(allocate, ad_status,                                                    \
      (ad_context context, ad_stream stream, size_t nbytes, void **out,       \
       ad_error *err),                                                        \
      return refuse(context.device, "allocate memory", err))                  \
    X(deallocate, void,                                                       \
      (ad_context context, ad_stream stream, void *data, size_t nbytes), )    \
    X(copy, ad_status,                                                        \
      (ad_context context, ad_stream stream, const ad_block_copy *copy,       \
       ad_error *err),                                                        \
      return refuse(context.device, "copy memory", err))                      \
    X(copy_with_event, ad_status,                                             \
      (ad_context context, ad_stream stream, const ad_block_copy *copy,       \
       bool host_waits, ad_event *event, ad_error *err),                      \
      return refuse(context.device, "copy memory", err))                      \
    X(launch, ad_status,                                                      \
      (ad_context context, ad_stream stream, const ad_launch *launch,         \
       ad_error *err),                                                        \
      return refuse_as(context.device, "kernel", "run kernels", err))         \
    X(launch_with_event, ad_status,                                           \
      (ad_context context, ad_stream stream, const ad_launch *launch,         \
       ad_event *event, ad_error *err),                                       \
      return refuse_as(context.device, "kernel", "run kernels", err))         \
    X(begin_calls, void, (ad_context context), )                              \
    X(end_calls, void, (ad_context context), )                                \
    X(stream_context, ad_status,                                              \
      (ad_stream stream, ad_context hint, ad_context * out, ad_error * err),  \
      return refuse(hint.device, "tell where a stream runs", err))            \
    X(likely_context, bool,                                                   \
      (ad_stream stream, ad_device device, ad_context * out), return false)   \
    X(stream_id, bool,                                                        \
      (ad_context context, ad_stream stream, uint64_t * out), return false)   \
    X(n_refused, unsigned int, (void), return 0)                              \
    X(stream_is_idle, bool, (ad_context context, ad_stream stream),           \
      return false)                                                           \
    X(stream_create, ad_status,                                               \
      (ad_context context, ad_stream * out, ad_error * err),                  \
      return refuse(context.device, "create streams", err))                   \
    X(stream_destroy, void, (ad_context context, ad_stream stream), )         \
    X(stream_is_capturing, ad_status,                                         \
      (ad_context context, ad_stream stream, bool *out, ad_error *err),       \
      *out = false;                                                           \
      return AD_OK)                                                           \
    X(stream_wait, ad_status,                                                 \
      (ad_context context, ad_stream stream, ad_event event, ad_error * err), \
      return refuse(context.device, "let a stream wait for an event", err))   \
    X(stream_wait_in, ad_status,                                              \
      (ad_context context, ad_stream stream, ad_event event, ad_context of,   \
       ad_error * err),                                                       \
      return refuse(context.device, "let a stream wait for an event", err))   \
    X(event_record, ad_status,                                                \
      (ad_context context, ad_stream stream, ad_event * event,                \
       ad_error * err),                                                       \
      return refuse(context.device, "record events", err))                    \
    X(event_query, ad_status,                                                 \
      (ad_context context, ad_event event, bool *out, ad_error *err),         \
      return refuse(context.device, "query events", err))                     \
    X(event_synchronize, ad_status,                                           \
      (ad_context context, ad_event event, ad_error * err),                   \
      return refuse(context.device, "wait for events", err))                  \
    X(event_destroy, void, (ad_context context, ad_event event), )            \
    X(claims_event, bool, (const void *sync_event), return true)              \
    X(device_uuid, ad_status,                                                 \
      (int64_t id, unsigned char out[AD_UUID_SIZE], ad_error *err),           \
      return fail_absent(err))                                                \
    X(memory_export, ad_status,                                               \
      (ad_context context, const void *pointer, ad_ipc_memory *out,           \
       ad_error *err),                                                        \
      return refuse_as(context.device, "share", WHAT_SHARES, err))            \
    X(memory_open, ad_status,                                                 \
      (ad_context context, const ad_ipc_memory *memory, void **out,           \
       ad_error *err),                                                        \
      return refuse_as(context.device, "share", WHAT_SHARES, err))            \
    X(memory_close, void,                                                     \
      (ad_context context, const ad_ipc_memory *memory, void *data), )        \
    X(event_export, ad_status,                                                \
      (ad_context context, ad_stream stream, ad_event * event,                \
       ad_ipc_event * out, ad_error * err),                                   \
      return refuse_as(context.device, "share", WHAT_SHARES, err))            \
    X(event_open, ad_status,                                                  \
      (ad_context context, const ad_ipc_event *event, ad_event *out,          \
       ad_error *err),                                                        \
      return refuse_as(context.device, "share", WHAT_SHARES, err))

#define DEFINE(slot, result, parameters, statement)                           \
    static result default_##slot parameters                                   \
    {                                                                         \
        statement;                                                            \
    }
SLOTS(DEFINE)

/* A slot missing from the list would stay NULL. */
#define COUNT(slot, result, parameters, statement) +1
_Static_assert((0 SLOTS(COUNT)) * sizeof(void (*)(void)) ==
                   sizeof(struct ad_backend) -
                       offsetof(struct ad_backend, load),
               "a slot of struct ad_backend has no default");

/* Fill every slot that is NULL with a default. An empty struct becomes the
 * stand-in for device types without a backend. */
static void
fill_slots(struct ad_backend *backend)
{
    static const int32_t no_types[] = {0};
    if (backend->name == NULL) {
        backend->name = "absent";
    }
    if (backend->device_types == NULL) {
        backend->device_types = no_types;
    }
#define FILL(slot, result, parameters, statement)                             \
    if (backend->slot == NULL) {                                              \
        backend->slot = default_##slot;                                       \
    }
    SLOTS(FILL)
}

/* --- the table ----------------------------------------------------------- */

/* Those of _core. ad_backend_register() adds others. */
static const struct ad_backend *const sources[] = {
#define AD_BACKEND(variable) &variable,
#include "device/backends.def"
};

#define N_SOURCES (sizeof(sources) / sizeof(sources[0]))

/* State of an entry, which ad_backend_load() reads with one load. */
enum {
    FRESH,
    LOADING,
    READY,
    FAILED,
    FORKED /* loaded by the parent process, unusable here */
};

typedef struct entry {
    atomic_int state;
    bool has_events;
    bool was_called; /* `load` of a table of others: see after_fork() */
    struct ad_backend backend;  /* with its defaults filled in */
    struct ad_backend untraced; /* the same without device/traced.c */
    ad_mutex lock;              /* held while loading */
    ad_error error;             /* valid when FAILED, guarded by the lock */
} entry;

/* A device type has one backend, so there are no more of them than types. */
static entry entries[AD_N_DEVICE_TYPES];
static const struct ad_backend *listed[AD_N_DEVICE_TYPES];
static atomic_size_t n_entries;
static ad_mutex adding = AD_MUTEX_INIT;
static struct ad_backend absent; /* the stand-in */

/* Types with other numbers have no backend. */
static entry *_Atomic by_type[AD_N_DEVICE_TYPES];
const struct ad_backend *_Atomic ad_backends_in_use[AD_N_DEVICE_TYPES];
static atomic_bool is_built;
static bool is_traced; /* with the lock `adding` */

/* Runs in the child, on its only thread. A lock that another thread of the
 * parent held would stay locked forever, so the locks are initialised
 * again. A table of others that has been called is not called again, even if
 * it had failed or had no device. */
static void
after_fork(void)
{
    ad_mutex_init(&adding);
    for (size_t i = 0; i < atomic_load(&n_entries); i++) {
        entry *e = &entries[i];
        int state = atomic_load(&e->state);
        if ((e->backend.capabilities & AD_CAP_SURVIVES_FORK) != 0) {
            atomic_store(&e->state, FRESH);
        } else if (state == READY || state == LOADING || e->was_called) {
            atomic_store(&e->state, FORKED);
        }
        ad_mutex_init(&e->lock);
    }
    for (size_t i = 0; i < AD_N_DEVICE_TYPES; i++) {
        atomic_store(&ad_backends_in_use[i], NULL);
    }
}

static ad_child_hook child_hook = {.run = after_fork};

/* With the lock `adding`, or on the only thread that builds the table. */
static void
add_entry(const struct ad_backend *source)
{
    size_t i = atomic_load(&n_entries);
    entry *e = &entries[i];
    e->has_events = source->event_record != NULL;
    e->backend = *source;
    fill_slots(&e->backend);
    e->untraced = e->backend;
    ad_backend_set_traced(&e->backend, &e->untraced, is_traced);
    ad_mutex_init(&e->lock);
    listed[i] = &e->backend;
    for (const int32_t *t = source->device_types; *t != 0; t++) {
        if (*t > 0 && *t < AD_N_DEVICE_TYPES &&
            atomic_load(&by_type[*t]) == NULL) {
            atomic_store_explicit(&by_type[*t], e, memory_order_release);
        }
    }
    atomic_store_explicit(&n_entries, i + 1, memory_order_release);
}

static void
build(void)
{
    _Static_assert(N_SOURCES < AD_N_DEVICE_TYPES, "each has a type");
    fill_slots(&absent);
    for (size_t i = 0; i < N_SOURCES; i++) {
        add_entry(sources[i]);
    }
    (void)ad_process_add_child_hook(&child_hook);
    atomic_store_explicit(&is_built, true, memory_order_release);
}

static void
build_once(void)
{
    static ad_once once = AD_ONCE_INIT;
    ad_once_call(&once, build);
}

/* NULL: none, or none yet. */
static entry *
find_known(int32_t device_type)
{
    if (!atomic_load_explicit(&is_built, memory_order_acquire)) {
        build_once();
    }
    return device_type > 0 && device_type < AD_N_DEVICE_TYPES
               ? atomic_load_explicit(&by_type[device_type],
                                      memory_order_acquire)
               : NULL;
}

/* NULL: none. */
static entry *
find(int32_t device_type)
{
    entry *known = find_known(device_type);
    if (known != NULL || device_type <= 0 ||
        device_type >= AD_N_DEVICE_TYPES || search_function == NULL ||
        atomic_load(&searched[device_type]) != NULL) {
        return known;
    }
    search(device_type);
    return find_known(device_type);
}

const struct ad_backend *
ad_backend_find(int32_t device_type)
{
    const entry *e = find(device_type);
    return e != NULL ? &e->backend : &absent;
}

bool
ad_backend_find_events(int32_t device_type)
{
    const entry *e = find(device_type);
    return e != NULL && e->has_events;
}

const struct ad_backend *
ad_backend_untraced(int32_t device_type)
{
    const entry *e = find(device_type);
    return e != NULL ? &e->untraced : &absent;
}

void
ad_backends_trace(bool on)
{
    build_once(); /* not with the lock */
    ad_mutex_lock(&adding);
    is_traced = on;
    for (size_t i = 0; i < atomic_load(&n_entries); i++) {
        ad_backend_set_traced(&entries[i].backend, &entries[i].untraced, on);
    }
    ad_mutex_unlock(&adding);
}

const struct ad_backend *const *
ad_backends(size_t *n)
{
    for (int32_t type = 0; type < AD_N_DEVICE_TYPES; type++) {
        (void)find(type);
    }
    *n = atomic_load_explicit(&n_entries, memory_order_acquire);
    return listed;
}

/* The first device type of the new backend that cannot be its own, or 0. */
static int32_t
find_taken(const struct ad_backend *source)
{
    for (const int32_t *t = source->device_types; *t != 0; t++) {
        if (*t < 0 || *t >= AD_N_DEVICE_TYPES || find_known(*t) != NULL) {
            return *t;
        }
    }
    return 0;
}

ad_status
ad_backend_register(const struct ad_backend *source, ad_error *err)
{
    build_once(); /* not with the lock */
    ad_mutex_lock(&adding);
    const int32_t taken = find_taken(source);
    if (taken == 0) {
        add_entry(source);
    }
    ad_mutex_unlock(&adding);
    if (taken != 0) {
        char name[AD_DEVICE_NAME_SIZE];
        const ad_device device = {taken, -1};
        const entry *other = find_known(taken);
        return ad_fail_on(
            err, device, "runtime",
            "a device type has one backend in a process",
            "the backend %s cannot serve %s: %s %s", source->name,
            ad_device_format(device, name),
            other != NULL ? "its backend is" : "there is no such type",
            other != NULL ? other->backend.name : "in this version");
    }
    return AD_OK;
}

/* --- loading ------------------------------------------------------------- */

bool
ad_backend_is_forked(int32_t device_type)
{
    entry *e = find_known(device_type);
    return e != NULL &&
           atomic_load_explicit(&e->state, memory_order_acquire) == FORKED;
}

/* A library without a device fails to load: the driver is a leftover, or the
 * machine's device was removed. */
static ad_status
load_runtime(entry *e)
{
    const struct ad_backend *backend = &e->backend;
    ad_device device = {backend->device_types[0], -1};
    int64_t count;
    AD_RETURN_IF_ERR(backend->load(&e->error));
    AD_RETURN_IF_ERR(backend->count(&count, &e->error));
    if (count > 0) {
        return AD_OK;
    }
    return ad_fail_on(&e->error, device, "runtime",
                      "see whether the vendor's own tools find one, and what "
                      "`python -m arrowdev doctor` says",
                      "the %s runtime is there, but has no device",
                      backend->name);
}

/* What is missing stays missing until ad_backend_retry(). A call that failed,
 * or memory that was short, may not fail again. */
static bool
may_pass(const ad_error *err)
{
    return err->code != 0 || err->status == AD_ERR_DEVICE ||
           err->status == AD_ERR_MEMORY;
}

/* The lock keeps the state and the error in `err` consistent: a retry rewrites
 * the error. */
static int
load(entry *e, ad_error *err)
{
    ad_mutex_lock(&e->lock);
    int state = atomic_load(&e->state);
    if (state == FRESH) {
        const bool devices_come =
            (e->backend.capabilities & AD_CAP_DEVICES_COME) != 0;
        atomic_store(&e->state, LOADING);
        e->was_called = devices_come;
        state = load_runtime(e) == AD_OK ? READY : FAILED;
        bool is_fresh =
            state == FAILED && (may_pass(&e->error) || devices_come);
        atomic_store_explicit(&e->state, is_fresh ? FRESH : state,
                              memory_order_release);
    }
    if (state == FAILED && err != NULL) {
        *err = e->error;
    }
    ad_mutex_unlock(&e->lock);
    return state;
}

/* The state after an attempt to load, if it is not known. For FAILED, *err
 * receives the error unless `err` is NULL. The thread may wait for another one
 * that is loading, so it releases the interpreter meanwhile. */
static int
load_once(entry *e, ad_error *err)
{
    int state = atomic_load_explicit(&e->state, memory_order_acquire);
    if (state == FRESH || state == LOADING ||
        (state == FAILED && err != NULL)) {
        void *saved = ad_wait_begin();
        state = load(e, err);
        ad_wait_end(saved);
    }
    return state;
}

static ad_status
fail_forked(const struct ad_backend *backend, ad_error *err)
{
    return ad_fail_on(
        err, (ad_device){backend->device_types[0], -1}, "runtime",
        "start the process with the multiprocessing method \"spawn\" or "
        "\"forkserver\"",
        "the %s runtime was started before this process was forked off, "
        "and cannot be used in it",
        backend->name);
}

ad_status
ad_backend_load(int32_t device_type, const struct ad_backend **out,
                ad_error *err)
{
    entry *e = find(device_type);
    if (e == NULL) {
        return fail_no_backend((ad_device){device_type, -1}, "runtime", err);
    }
    ad_error why;
    switch (load_once(e, &why)) {
        case READY:
            *out = &e->backend;
            return AD_OK;
        case FORKED:
            return fail_forked(&e->backend, err);
        default:
            if (err != NULL) {
                *err = why;
                ad_error_device(err, (ad_device){device_type, -1});
            }
            return why.status;
    }
}

bool
ad_backend_is_there(int32_t device_type)
{
    entry *e = find(device_type);
    return e != NULL && load_once(e, NULL) == READY;
}

const struct ad_backend *
ad_backend_take_in_use(int32_t device_type)
{
    entry *e = find(device_type);
    if (e == NULL || !e->has_events || load_once(e, NULL) != READY) {
        return NULL;
    }
    atomic_store_explicit(&ad_backends_in_use[device_type], &e->backend,
                          memory_order_release);
    return &e->backend;
}

void
ad_backend_retry(int32_t device_type)
{
    entry *e = find_known(device_type);
    int failed = FAILED;
    if (e != NULL) {
        atomic_compare_exchange_strong(&e->state, &failed, FRESH);
    }
}

/* --- failing ------------------------------------------------------------- */

ad_status
ad_fail_device(ad_error *err, ad_device device, const char *call, int code,
               const char *name, const char *hint)
{
    char where[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_DEVICE, NULL, hint, "%s on %s failed: %s (%d)", call,
            ad_device_format(device, where),
            name != NULL ? name : "an error without a name", code);
    ad_error_device(err, device);
    if (err != NULL) {
        err->code = code;
    }
    return AD_ERR_DEVICE;
}

ad_status
ad_fail_device_memory(ad_error *err, ad_device device, size_t nbytes)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
            "could not allocate %zu bytes on %s", nbytes,
            ad_device_format(device, name));
    ad_error_device(err, device);
    return AD_ERR_MEMORY;
}

ad_status
ad_check_id(ad_device device, const char *runtime, size_t n_devices,
            const char *hint, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    if (device.id >= 0 && (uint64_t)device.id < n_devices) {
        return AD_OK;
    }
    return ad_fail_on(
        err, device, "device", hint, "%s %s: %s has %zu device%s",
        ad_device_format(device, name),
        device.id < 0 ? "without a number is no device" : "is not there",
        runtime, n_devices, n_devices == 1 ? "" : "s");
}

ad_status
ad_require_host(ad_device device, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    if (ad_host_accessible(device)) {
        return AD_OK;
    }
    if (find(device.type) == NULL) {
        return fail_no_backend(device, "device", err);
    }
    return ad_fail_on(
        err, device, "device",
        "copy it to the host with .to(\"cpu\"), or hand it to a consumer "
        "that takes memory of this device",
        "memory on %s cannot be read by the host",
        ad_device_format(device, name));
}
