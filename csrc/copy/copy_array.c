#include "copy/copy.h"

#include <stdlib.h>
#include <string.h>

#include "order/device_owner.h"
#include "base/owner_group.h"
#include "copy/session.h"
#include "copy/copy_tree.h"

static const char consumer[] = "a copy";

/* A buffer without bytes is a valid first offset nevertheless. */
static const uint64_t zeros[AD_ALIGNMENT / sizeof(uint64_t)];

/* Where a buffer of the copy lies: in one allocation for all of them, or,
 * where memory is named by handles, in one of its own. */
typedef struct slot {
    const ad_piece *piece;
    int64_t nbytes;
    void *data; /* of the allocation */
    int64_t offset;
} slot;

typedef struct job {
    ad_route route;
    ad_plan plan;
    slot *slots; /* of the tree's buffers, node by node, top down */
    size_t n_slots;
    int64_t nbytes; /* of one allocation for all */
    ad_owner **owners;
    size_t n_owners;
    ad_owner *memory; /* of the copy, all of it */
    ad_owner *host;   /* of host memory that is read */
    size_t next;      /* slot, while the tree is put together */
} job;

/* --- slots ---------------------------------------------------------------- */

static size_t
count_slots(const ad_plan_node *node)
{
    size_t n = (size_t)node->source.node->n_buffers;
    for (int64_t i = 0; i < node->n_below; i++) {
        n += count_slots(&node->below[i]);
    }
    return n;
}

static int64_t
round_up(int64_t nbytes)
{
    return (nbytes + AD_ALIGNMENT - 1) / AD_ALIGNMENT * AD_ALIGNMENT;
}

static ad_status
fill_slots(job *self, const ad_plan_node *node, ad_error *err)
{
    static const ad_piece empty = {zeros, 0, sizeof(zeros), true};
    for (int64_t i = 0; i < node->source.node->n_buffers; i++) {
        const ad_piece *piece = &node->pieces[i];
        slot *to = &self->slots[self->n_slots++];
        to->piece =
            piece->source == NULL || piece->nbytes > 0 ? piece : &empty;
        to->nbytes = piece->source == NULL ? 0 : to->piece->nbytes;
        to->offset = self->nbytes;
        if (to->nbytes > INT64_MAX - AD_ALIGNMENT ||
            __builtin_add_overflow(self->nbytes, round_up(to->nbytes),
                                   &self->nbytes)) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "the sizes of all buffers overflow 64 bits");
        }
    }
    for (int64_t i = 0; i < node->n_below; i++) {
        AD_RETURN_IF_ERR(fill_slots(self, &node->below[i], err));
    }
    return AD_OK;
}

static ad_status
make_slots(job *self, ad_error *err)
{
    size_t n = count_slots(&self->plan.root);
    size_t nbytes = (n + 1) * (sizeof(*self->slots) + sizeof(*self->owners));
    self->slots = calloc(n + 1, sizeof(*self->slots));
    self->owners = calloc(n + 1, sizeof(*self->owners));
    if (self->slots == NULL || self->owners == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    return fill_slots(self, &self->plan.root, err);
}

/* --- memory --------------------------------------------------------------- */

/* Arrow recommends that padding be zero; on devices that would take as many
 * copies again. */
static void
clear_padding(const job *self)
{
    for (size_t i = 0; i < self->n_slots; i++) {
        const slot *at = &self->slots[i];
        if (at->nbytes > 0) {
            memset((char *)at->data + at->offset + at->nbytes, 0,
                   (size_t)(round_up(at->nbytes) - at->nbytes));
        }
    }
}

static ad_status
allocate_each(job *self, ad_error *err)
{
    for (size_t i = 0; i < self->n_slots; i++) {
        slot *at = &self->slots[i];
        at->offset = 0;
        if (at->nbytes > 0) {
            AD_RETURN_IF_ERR(
                ad_route_allocate(&self->route, at->nbytes, &at->data,
                                  &self->owners[self->n_owners], err));
            self->n_owners++;
        }
    }
    return AD_OK;
}

static ad_status
allocate_once(job *self, ad_error *err)
{
    void *data;
    AD_RETURN_IF_ERR(ad_route_allocate(&self->route, self->nbytes, &data,
                                       &self->owners[0], err));
    self->n_owners = 1;
    for (size_t i = 0; i < self->n_slots; i++) {
        self->slots[i].data = data;
    }
    if (ad_device_equal(self->route.memory.device, AD_CPU)) {
        clear_padding(self);
    }
    return AD_OK;
}

static ad_status
allocate(job *self, ad_error *err)
{
    bool uses_handles = ad_device_uses_handles(self->route.memory.device.type);
    AD_RETURN_IF_ERR(uses_handles ? allocate_each(self, err)
                                  : allocate_once(self, err));
    if (self->n_owners == 1) {
        self->memory = ad_owner_ref(self->owners[0]);
        return AD_OK;
    }
    return ad_owner_group_new(self->owners, self->n_owners, &self->memory,
                              err);
}

/* --- copying -------------------------------------------------------------- */

static ad_status
copy_slots(job *self, ad_error *err)
{
    const ad_place host = {.device = AD_CPU};
    for (size_t i = 0; i < self->n_slots; i++) {
        const slot *at = &self->slots[i];
        const ad_piece *piece = at->piece;
        ad_place place = piece->on_host ? host : self->route.source;
        const ad_block_copy copy = {
            .target = ad_span_at(self->route.target, at->data, at->offset),
            .source = ad_span_at(place, piece->source, piece->offset),
            .width = (size_t)at->nbytes,
            .height = 1,
        };
        AD_RETURN_IF_ERR(ad_route_copy(&self->route, &copy, err));
    }
    return AD_OK;
}

/* What keeps host memory that the copy reads: the plan's own, and the source
 * if it is such. */
static ad_status
keep_host(job *self, const ad_array *array, ad_error *err)
{
    bool from_host = ad_is_host_memory(array->device);
    size_t n = self->plan.n_made;
    if (n == 0) {
        self->host = from_host ? ad_owner_ref(array->owner) : NULL;
        return AD_OK;
    }
    ad_owner *made;
    AD_RETURN_IF_ERR(ad_owner_group_new(self->plan.made, n, &made, err));
    ad_owner *const owners[] = {made, from_host ? array->owner : NULL};
    ad_status status = ad_owner_group_new(owners, 2, &self->host, err);
    ad_owner_unref(made);
    return status;
}

/* Note the use before there is any: what cannot be noted must not begin. */
static ad_status
note_use(const job *self, const ad_array *array, ad_error *err)
{
    const ad_route *route = &self->route;
    if (route->backend == NULL || route->to_host ||
        ad_is_host_memory(array->device)) {
        return AD_OK;
    }
    return ad_owner_note_use(array->owner, route->place, route->stream,
                             route->keep, err);
}

static ad_status
run(job *self, const ad_array *array, ad_sync **sync, ad_error *err)
{
    AD_RETURN_IF_ERR(make_slots(self, err));
    AD_RETURN_IF_ERR(allocate(self, err));
    AD_RETURN_IF_ERR(keep_host(self, array, err));
    AD_RETURN_IF_ERR(note_use(self, array, err));
    AD_RETURN_IF_ERR(copy_slots(self, err));
    return ad_route_finish(&self->route, self->host, sync, err);
}

/* --- the copy's tree ------------------------------------------------------ */

static ad_status build(job *self, const ad_plan_node *node, ad_device device,
                       ad_sync *sync, ad_array *out, ad_error *err);

/* The copies of a node's buffers, in the order of the slots. */
static const void **
take_buffers(job *self, const ad_plan_node *node, ad_error *err)
{
    size_t n = (size_t)node->source.node->n_buffers;
    const void **buffers = calloc(n + 1, sizeof(*buffers));
    if (buffers == NULL) {
        ad_fail_memory(err, (n + 1) * sizeof(*buffers));
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const slot *at = &self->slots[self->next++];
        if (at->nbytes > 0) {
            buffers[i] = (const char *)at->data + at->offset;
        }
    }
    return buffers;
}

static ad_status
build_below(job *self, const ad_plan_node *node, ad_device device,
            ad_sync *sync, ad_array *below, ad_error *err)
{
    for (int64_t i = 0; i < node->n_below; i++) {
        AD_RETURN_IF_ERR(
            build(self, &node->below[i], device, sync, &below[i], err));
    }
    return AD_OK;
}

static ad_status
build(job *self, const ad_plan_node *node, ad_device device, ad_sync *sync,
      ad_array *out, ad_error *err)
{
    const struct ArrowArray *source = node->source.node;
    size_t n_below = (size_t)node->n_below;
    const void **buffers = take_buffers(self, node, err);
    ad_array *below = calloc(n_below + 1, sizeof(*below));
    ad_status status = AD_OK;
    if (buffers == NULL || below == NULL) {
        status = ad_fail_memory(err, (n_below + 1) * sizeof(*below));
        goto done;
    }
    status = build_below(self, node, device, sync, below, err);
    if (status == AD_OK) {
        const ad_array_spec spec = {
            .schema = node->source.schema,
            .device = device,
            .length = node->length,
            .offset = node->offset,
            .null_count = node->source.null_count,
            .n_buffers = source->n_buffers,
            .buffers = buffers,
            .owner = self->memory,
            .n_children = source->n_children,
            .children = below,
            .dictionary =
                source->dictionary != NULL ? &below[source->n_children] : NULL,
            .sync = sync,
        };
        status = ad_array_build(&spec, out, err);
    }

done:
    for (size_t i = 0; below != NULL && i < n_below; i++) {
        ad_array_clear(&below[i]);
    }
    free(below);
    free(buffers);
    return status;
}

/* --- entry ---------------------------------------------------------------- */

static void
job_clear(job *self)
{
    for (size_t i = 0; self->owners != NULL && i < self->n_owners; i++) {
        ad_owner_unref(self->owners[i]);
    }
    free(self->owners);
    free(self->slots);
    ad_owner_unref(self->memory);
    ad_owner_unref(self->host);
    ad_plan_clear(&self->plan);
}

/* Two runtimes, or two contexts that do not meet: the one brings it to the host,
 * the other one takes it. */
static ad_status
copy_staged(const ad_array *array, ad_device target,
            const ad_stream_choice *stream, ad_array *out, ad_error *err)
{
    ad_array on_host;
    AD_RETURN_IF_ERR(ad_array_copy_to(array, AD_CPU, NULL, &on_host, err));
    ad_status status = ad_array_copy_to(&on_host, target, stream, out, err);
    ad_array_clear(&on_host);
    return status;
}

static ad_status
copy(const ad_array *array, ad_device target, const ad_stream_choice *stream,
     bool is_ahead, bool is_lent, ad_array *out, ad_error *err)
{
    const ad_route_request request = {
        .source = array->device,
        .data = ad_array_some_buffer(array),
        .sync = array->sync,
        .target = target,
        .stream = stream,
        .can_stage = true,
        .is_ahead = is_ahead,
        .is_kept = !is_lent,
        .consumer = consumer,
    };
    job self = {0};
    ad_sync *sync = NULL;
    if (ad_route_is_staged(array->device, target)) {
        return copy_staged(array, target, stream, out, err);
    }
    AD_RETURN_IF_ERR(ad_route_open(&request, &self.route, err));
    if (self.route.is_split) {
        return copy_staged(array, target, stream, out, err);
    }
    ad_status status = ad_plan_make(array, &self.plan, err);
    if (status == AD_OK) {
        status = run(&self, array, &sync, err);
    }
    if (status == AD_OK) {
        status = build(&self, &self.plan.root, target, sync, out, err);
    }
    if (status != AD_OK) {
        ad_route_abandon(&self.route, array->owner, self.host, self.memory);
    }
    ad_sync_unref(sync);
    job_clear(&self);
    return status;
}

ad_status
ad_array_copy_to(const ad_array *array, ad_device target,
                 const ad_stream_choice *stream, ad_array *out, ad_error *err)
{
    return copy(array, target, stream, false, true, out, err);
}

ad_status
ad_array_copy_ahead(const ad_array *array, bool is_lent, ad_device target,
                    const ad_stream_choice *stream, ad_array *out,
                    ad_error *err)
{
    return copy(array, target, stream, true, is_lent, out, err);
}
