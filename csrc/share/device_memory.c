#include "share/device_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/wait.h"
#include "order/deferred_release.h"
#include "order/device_owner.h"
#include "order/streams.h"

static void
close_if_open(int file)
{
    if (file >= 0) {
        close(file);
    }
}

/* --- what other processes have shared ------------------------------------ */

/* Memory or an event that keeps a connection to the process that has shared
 * it. Those that are open are in a list. */
typedef struct received {
    ad_owner base;
    ad_context context;
    int connection; /* -1: none */
    const void *data;
    size_t nbytes; /* 0: an event */
    struct received *_Atomic next;
} received;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static received *_Atomic all_received;

/* A child cannot use the devices of its parent. Its copies of the connections
 * would keep the memory of other processes. */
static void
on_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (received *it = all_received; it != NULL; it = it->next) {
        close_if_open(it->connection);
        it->connection = -1;
    }
    all_received = NULL;
}

static ad_child_hook child_hook = {.run = on_fork};

static void
enter_list(received *self)
{
    pthread_mutex_lock(&lock);
    self->next = all_received;
    all_received = self;
    pthread_mutex_unlock(&lock);
}

/* Does nothing if it is not in the list, as in a forked child. */
static void
leave_list(received *self)
{
    pthread_mutex_lock(&lock);
    received *_Atomic *link = &all_received;
    while (*link != NULL && *link != self) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = self->next;
    }
    pthread_mutex_unlock(&lock);
}

static bool
is_received(const void *pointer)
{
    bool is_found = false;
    pthread_mutex_lock(&lock);
    for (received *it = all_received; it != NULL && !is_found; it = it->next) {
        is_found = (uintptr_t)pointer - (uintptr_t)it->data < it->nbytes;
    }
    pthread_mutex_unlock(&lock);
    return is_found;
}

/* --- for other processes ------------------------------------------------- */

ad_status
ad_device_memory_export(ad_device device, const void *pointer,
                        ad_ipc_memory *out, ad_error *err)
{
    const struct ad_backend *backend;
    ad_memory_info info;
    if (is_received(pointer)) {
        return ad_fail_on(err, device, "share",
                          "pass the text on that it was attached by, or share "
                          "a copy: copy=True",
                          "it is the memory of another process, which would "
                          "not know for how long it is used");
    }
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(
        backend->classify(pointer, (ad_context){device, NULL}, &info, err));
    AD_RETURN_IF_ERR(
        ad_context_complete(backend, info.context, &info.context, err));
    *out = (ad_ipc_memory){.file = -1};
    void *saved = ad_wait_begin();
    ad_status status = backend->memory_export(info.context, pointer, out, err);
    ad_wait_end(saved);
    return status;
}

/* An event of this process that others may wait for, or one of another
 * process. */
typedef struct event_owner {
    received base;
    ad_event event;
} event_owner;

static void
event_owner_destroy(ad_owner *base)
{
    event_owner *self = (event_owner *)base;
    const ad_context context = self->base.context;
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    if (self->event.handle != NULL &&
        !ad_backend_is_forked(context.device.type)) {
        const unsigned int n_refused = backend->n_refused();
        backend->event_destroy(context, self->event);
        if (backend->n_refused() != n_refused) {
            ad_release_elsewhere(base, context);
            return;
        }
    }
    leave_list(&self->base);
    close_if_open(self->base.connection);
    free(self);
}

static const ad_owner_ops event_owner_ops = {
    .destroy = event_owner_destroy,
    .name = "event between processes",
};

static event_owner *
event_owner_new(ad_context context, ad_error *err)
{
    event_owner *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        ad_fail_memory(err, sizeof(*self));
        return NULL;
    }
    ad_owner_init(&self->base.base, &event_owner_ops);
    self->base.context = context;
    self->base.connection = -1;
    return self;
}

ad_status
ad_sync_export(ad_sync *sync, ad_owner **keep, ad_ipc_event *out,
               ad_error *err)
{
    bool is_done = ad_sync_is_done(sync);
    ad_stream_ref on;
    *keep = NULL;
    *out = (ad_ipc_event){.file = -1};
    if (!is_done && ad_sync_can_wait(sync)) {
        AD_RETURN_IF_ERR(ad_sync_query(sync, &is_done, err));
    }
    if (is_done) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_sync_stream(sync, &on, err));
    event_owner *owner = event_owner_new(on.context, err);
    if (owner == NULL) {
        return AD_ERR_MEMORY;
    }
    ad_status status =
        ad_backend_for(on.context.device.type)
            ->event_export(on.context, on.stream, &owner->event, out, err);
    if (status != AD_OK) {
        ad_owner_unref(&owner->base.base);
        return status;
    }
    *keep = &owner->base.base;
    return AD_OK;
}

/* --- of other processes -------------------------------------------------- */

ad_status
ad_device_of_uuid(int32_t type, const unsigned char uuid[AD_UUID_SIZE],
                  ad_device *out, ad_error *err)
{
    const struct ad_backend *backend;
    int64_t n;
    AD_RETURN_IF_ERR(ad_backend_open(type, &backend, err));
    if (type != backend->device_types[0]) {
        return ad_fail_on(err, (ad_device){type, -1}, "share", NULL,
                          "another process describes memory of a type that is "
                          "never shared");
    }
    AD_RETURN_IF_ERR(backend->count(&n, err));
    for (int64_t id = 0; id < n; id++) {
        unsigned char found[AD_UUID_SIZE];
        AD_RETURN_IF_ERR(backend->device_uuid(id, found, err));
        if (memcmp(found, uuid, AD_UUID_SIZE) == 0) {
            *out = (ad_device){type, id};
            return AD_OK;
        }
    }
    return ad_fail_on(
        err, (ad_device){type, -1}, "device",
        "let this process see the device (CUDA_VISIBLE_DEVICES, "
        "HIP_VISIBLE_DEVICES)",
        "the memory is on a %s device that this process does not "
        "see",
        backend->name);
}

typedef struct opened_memory {
    received base;
    ad_ipc_memory memory;
} opened_memory;

/* The work on it is done: the device owner has waited. */
static void
opened_destroy(ad_owner *base)
{
    opened_memory *self = (opened_memory *)base;
    const ad_context context = self->base.context;
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    leave_list(&self->base); /* the address may be used again at once */
    if (!ad_backend_is_forked(context.device.type)) {
        const unsigned int n_refused = backend->n_refused();
        void *saved = ad_wait_begin();
        backend->memory_close(context, &self->memory, (void *)self->base.data);
        ad_wait_end(saved);
        if (backend->n_refused() != n_refused) {
            enter_list(&self->base);
            ad_release_elsewhere(base, context);
            return;
        }
    }
    close_if_open(self->memory.file);
    close_if_open(self->base.connection);
    free(self);
}

static ad_extent
opened_extent(const ad_owner *base)
{
    const received *self = (const received *)base;
    return (ad_extent){self->data, self->nbytes};
}

static const ad_owner_ops opened_ops = {
    .destroy = opened_destroy,
    .extent = opened_extent,
    .name = "device memory of another process",
};

/* Where what was received is opened. */
static ad_status
open_context(ad_device device, const struct ad_backend **backend,
             ad_context *out, ad_error *err)
{
    int code = ad_process_add_child_hook(&child_hook);
    if (code != 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "share", NULL,
                       "forks of this process cannot be noticed: %s",
                       strerror(code));
    }
    AD_RETURN_IF_ERR(ad_backend_open(device.type, backend, err));
    return (*backend)->primary_context(device, out, err);
}

/* Takes over the descriptors on success only. */
static ad_status
open_memory(ad_device device, const ad_ipc_memory *memory, int connection,
            void **data, ad_owner **owner, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context context;
    ad_owner *inner;
    AD_RETURN_IF_ERR(open_context(device, &backend, &context, err));
    void *saved = ad_wait_begin();
    ad_status status = backend->memory_open(context, memory, data, err);
    ad_wait_end(saved);
    AD_RETURN_IF_ERR(status);
    status = ad_device_owner_alloc(sizeof(opened_memory), &opened_ops, context,
                                   NULL, &inner, owner, err);
    if (status != AD_OK) {
        backend->memory_close(context, memory, *data);
        return status;
    }
    opened_memory *self = (opened_memory *)inner;
    self->base.context = context;
    self->base.connection = connection;
    self->base.data = *data;
    self->base.nbytes = memory->nbytes;
    self->memory = *memory;
    enter_list(&self->base);
    return AD_OK;
}

ad_status
ad_device_memory_open(ad_device device, const ad_ipc_memory *memory,
                      int connection, void **data, ad_owner **owner,
                      ad_error *err)
{
    ad_status status =
        open_memory(device, memory, connection, data, owner, err);
    if (status != AD_OK) {
        close_if_open(memory->file);
        close_if_open(connection);
    }
    return status;
}

/* Takes over the connection on success only. */
static ad_status
open_event(ad_device device, const ad_ipc_event *event, int connection,
           ad_sync **out, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context context;
    AD_RETURN_IF_ERR(open_context(device, &backend, &context, err));
    event_owner *owner = event_owner_new(context, err);
    if (owner == NULL) {
        return AD_ERR_MEMORY;
    }
    ad_status status = backend->event_open(context, event, &owner->event, err);
    if (status == AD_OK) {
        const bool is_handle =
            (backend->capabilities & AD_CAP_SYNC_EVENT_IS_HANDLE) != 0;
        void *handle = is_handle ? owner->event.handle : &owner->event.handle;
        status = ad_sync_new(AD_SYNC_EVENT, device, handle, &owner->base.base,
                             out, err);
    }
    if (status == AD_OK) {
        owner->base.connection = connection;
        enter_list(&owner->base);
    }
    ad_owner_unref(&owner->base.base); /* the sync has its own reference */
    return status;
}

ad_status
ad_sync_open(ad_device device, const ad_ipc_event *event, int connection,
             ad_sync **out, ad_error *err)
{
    ad_status status = open_event(device, event, connection, out, err);
    close_if_open(event->file);
    if (status != AD_OK) {
        close_if_open(connection);
    }
    return status;
}
