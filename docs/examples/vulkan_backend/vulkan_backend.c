/* The backend of Vulkan, for the devices that programs hand over.
 *
 * A VkBuffer or a VkEvent means nothing without its VkDevice. So a program
 * adds its device (add_device) and says the number of it in its arrays. Memory
 * is named by a VkBuffer, and sync_event of an array is the address of a
 * VkEvent, as Arrow's specification says.
 *
 * A stream is a timeline semaphore. Operation n of the stream waits for the
 * value n - 1 and leaves the value n. Some operations are submissions to the
 * device's queue; others are the host's: a thread waits, works, and signals.
 */
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

#include "arrowdev.h"

/* --- errors -------------------------------------------------------------- */

static int
fail(arrowdev_error *error, const char *call, VkResult code)
{
    error->code = code;
    snprintf(error->call, sizeof(error->call), "%s", call);
    snprintf(error->text, sizeof(error->text), "VkResult %d", code);
    return code == VK_ERROR_OUT_OF_HOST_MEMORY ||
                   code == VK_ERROR_OUT_OF_DEVICE_MEMORY
               ? ARROWDEV_NO_MEMORY
               : ARROWDEV_FAILED;
}

static int
refuse(arrowdev_error *error, const char *text, const char *hint)
{
    snprintf(error->text, sizeof(error->text), "%s", text);
    snprintf(error->hint, sizeof(error->hint), "%s", hint);
    return ARROWDEV_REFUSED;
}

/* Return from a function with `error` if the call fails. */
#define TRY(call, arguments)                                                  \
    do {                                                                      \
        VkResult code_ = call arguments;                                      \
        if (code_ != VK_SUCCESS) {                                            \
            return fail(error, #call, code_);                                 \
        }                                                                     \
    } while (0)

/* --- devices ------------------------------------------------------------- */

typedef struct stream stream;
typedef struct block block;
typedef struct leftover leftover;

typedef struct device {
    VkPhysicalDevice physical;
    VkDevice handle;
    VkQueue queue;
    VkCommandPool pool;
    pthread_mutex_t queue_lock; /* the program takes it, too */
    pthread_mutex_t lock;       /* of the pool and what follows */
    stream *streams;
    block *blocks;
    leftover *leftovers; /* to be destroyed once their work is done */
} device;

enum {
    MAX_DEVICES = 16
};

static device devices[MAX_DEVICES]; /* a device is never removed */
static atomic_int n_devices;

static int
device_count(void *self, int64_t *out, arrowdev_error *error)
{
    *out = n_devices;
    return ARROWDEV_OK;
}

static int
device_name(void *self, int64_t id, char *buffer, size_t size,
            arrowdev_error *error)
{
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(devices[id].physical, &properties);
    snprintf(buffer, size, "%s", properties.deviceName);
    return ARROWDEV_OK;
}

static int
open_device(void *self, int64_t id, void **out, arrowdev_error *error)
{
    *out = &devices[id];
    return ARROWDEV_OK;
}

/* --- streams ------------------------------------------------------------- */

/* The owner, each operation that is not done and each event that was recorded
 * have a reference. */
struct stream {
    device *on;
    VkSemaphore semaphore;
    uint64_t last; /* the value after the last operation */
    long n_references;
    int is_user; /* of new_stream() */
    stream *next;
};

static void
drop_stream_locked(stream *self)
{
    if (--self->n_references > 0) {
        return;
    }
    stream **link = &self->on->streams;
    while (*link != self) {
        link = &(*link)->next;
    }
    *link = self->next;
    vkDestroySemaphore(self->on->handle, self->semaphore, NULL);
    free(self);
}

static void
drop_stream(stream *self)
{
    device *on = self->on;
    pthread_mutex_lock(&on->lock);
    drop_stream_locked(self);
    pthread_mutex_unlock(&on->lock);
}

static int
stream_create(void *self, void *on, void **out, arrowdev_error *error)
{
    device *where = on;
    stream *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkResult code =
        vkCreateSemaphore(where->handle, &info, NULL, &made->semaphore);
    if (code != VK_SUCCESS) {
        free(made);
        return fail(error, "vkCreateSemaphore", code);
    }
    made->on = where;
    made->n_references = 1;
    pthread_mutex_lock(&where->lock);
    made->next = where->streams;
    where->streams = made;
    pthread_mutex_unlock(&where->lock);
    *out = made;
    return ARROWDEV_OK;
}

static void
stream_destroy(void *self, void *on, void *old)
{
    drop_stream(old);
}

/* A user's stream is one of new_stream(). */
static int
stream_identity(void *self, void *named, int64_t *device_id, uint64_t *id,
                arrowdev_error *error)
{
    for (int i = 0; i < n_devices; i++) {
        pthread_mutex_lock(&devices[i].lock);
        stream *found = devices[i].streams;
        while (found != NULL && (found != named || !found->is_user)) {
            found = found->next;
        }
        pthread_mutex_unlock(&devices[i].lock);
        if (found != NULL) {
            *device_id = i;
            return ARROWDEV_OK;
        }
    }
    return refuse(error, "this number is not a stream of Vulkan",
                  "pass one of vulkan_backend.new_stream(device)");
}

static int
wait_for(device *on, VkSemaphore semaphore, uint64_t value,
         arrowdev_error *error)
{
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &semaphore,
                                .pValues = &value};
    TRY(vkWaitSemaphores, (on->handle, &info, UINT64_MAX));
    return ARROWDEV_OK;
}

static uint64_t
value_of(const stream *self)
{
    uint64_t value = 0;
    return vkGetSemaphoreCounterValue(self->on->handle, self->semaphore,
                                      &value) == VK_SUCCESS
               ? value
               : 0;
}

/* --- what is destroyed later --------------------------------------------- */

/* A command buffer, an event, or both, that an operation uses. */
struct leftover {
    stream *of;
    stream *waited_for; /* with a reference, or NULL */
    uint64_t value;     /* the stream's, after the operation */
    VkCommandBuffer commands;
    VkEvent *event;
    block *staging;
    leftover *next;
};

static void free_block_locked(device *on, block *old);

static void
sweep_locked(device *on)
{
    leftover **link = &on->leftovers;
    while (*link != NULL) {
        leftover *it = *link;
        if (value_of(it->of) < it->value) {
            link = &it->next;
            continue;
        }
        *link = it->next;
        if (it->commands != NULL) {
            vkFreeCommandBuffers(on->handle, on->pool, 1, &it->commands);
        }
        if (it->event != NULL) {
            vkDestroyEvent(on->handle, *it->event, NULL);
            free(it->event);
        }
        if (it->staging != NULL) {
            free_block_locked(on, it->staging);
        }
        drop_stream_locked(it->of);
        if (it->waited_for != NULL) {
            drop_stream_locked(it->waited_for);
        }
        free(it);
    }
}

/* `it` is malloc'ed, and has its members but `next`. */
static void
leave_locked(device *on, leftover *it)
{
    it->of->n_references++;
    it->next = on->leftovers;
    on->leftovers = it;
}

/* --- memory -------------------------------------------------------------- */

struct block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    void *mapped; /* staging memory */
    block *next;
};

static void
destroy_block(device *on, block *old)
{
    vkDestroyBuffer(on->handle, old->buffer, NULL);
    vkFreeMemory(on->handle, old->memory, NULL);
    free(old);
}

static void
free_block_locked(device *on, block *old)
{
    block **link = &on->blocks;
    while (*link != old) {
        link = &(*link)->next;
    }
    *link = old->next;
    destroy_block(on, old);
}

static uint32_t
memory_type(device *on, uint32_t allowed, VkMemoryPropertyFlags wanted)
{
    VkPhysicalDeviceMemoryProperties all;
    vkGetPhysicalDeviceMemoryProperties(on->physical, &all);
    uint32_t i = 0;
    while (i < all.memoryTypeCount &&
           ((allowed >> i & 1) == 0 ||
            (all.memoryTypes[i].propertyFlags & wanted) != wanted)) {
        i++;
    }
    return i;
}

static int
fill_block(device *on, size_t nbytes, VkMemoryPropertyFlags wanted,
           block *made, arrowdev_error *error)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = nbytes,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    TRY(vkCreateBuffer, (on->handle, &info, NULL, &made->buffer));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(on->handle, made->buffer, &needs);
    VkMemoryAllocateInfo memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = needs.size,
        .memoryTypeIndex = memory_type(on, needs.memoryTypeBits, wanted)};
    TRY(vkAllocateMemory, (on->handle, &memory, NULL, &made->memory));
    TRY(vkBindBufferMemory, (on->handle, made->buffer, made->memory, 0));
    if (wanted & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) {
        TRY(vkMapMemory,
            (on->handle, made->memory, 0, VK_WHOLE_SIZE, 0, &made->mapped));
    }
    return ARROWDEV_OK;
}

static int
new_block(device *on, size_t nbytes, VkMemoryPropertyFlags wanted, block **out,
          arrowdev_error *error)
{
    block *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    int result = fill_block(on, nbytes, wanted, made, error);
    if (result != ARROWDEV_OK) {
        destroy_block(on, made); /* of what is not there nothing is done */
        return result;
    }
    pthread_mutex_lock(&on->lock);
    sweep_locked(on);
    made->next = on->blocks;
    on->blocks = made;
    pthread_mutex_unlock(&on->lock);
    *out = made;
    return ARROWDEV_OK;
}

static int
allocate(void *self, void *on, void *stream, size_t nbytes, void **out,
         arrowdev_error *error)
{
    block *made = NULL;
    int result = new_block(on, nbytes, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                           &made, error);
    if (result == ARROWDEV_OK) {
        *out = made->buffer;
    }
    return result;
}

/* arrowdev has waited for the work on the memory. */
static void
deallocate(void *self, void *on, void *stream, void *data, size_t nbytes)
{
    device *where = on;
    pthread_mutex_lock(&where->lock);
    block *found = where->blocks;
    while ((void *)found->buffer != data) {
        found = found->next;
    }
    free_block_locked(where, found);
    pthread_mutex_unlock(&where->lock);
}

/* --- submissions --------------------------------------------------------- */

typedef struct work {
    const arrowdev_copy *copy;
    VkBuffer source, target;
    VkEvent set;      /* or NULL */
    stream *wait_for; /* another stream, or NULL */
    uint64_t wait_value;
    block *staging; /* destroyed after the work, or NULL */
} work;

static void
record_copy(VkCommandBuffer commands, const work *what)
{
    const arrowdev_copy *copy = what->copy;
    VkBufferCopy region = {
        .srcOffset =
            what->source == copy->source.data ? copy->source.offset : 0,
        .dstOffset =
            what->target == copy->target.data ? copy->target.offset : 0,
        .size = copy->width};
    VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                               .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdCopyBuffer(commands, what->source, what->target, 1, &region);
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                         VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL,
                         0, NULL);
}

static int
record_locked(device *on, const work *what, VkCommandBuffer *out,
              arrowdev_error *error)
{
    VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = on->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    TRY(vkAllocateCommandBuffers, (on->handle, &info, out));
    TRY(vkBeginCommandBuffer, (*out, &begin));
    if (what->copy != NULL) {
        record_copy(*out, what);
    }
    if (what->set != NULL) {
        vkCmdSetEvent(*out, what->set, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
    }
    TRY(vkEndCommandBuffer, (*out));
    return ARROWDEV_OK;
}

static int
submit_locked(stream *on, const work *what, VkCommandBuffer commands,
              arrowdev_error *error)
{
    VkSemaphore semaphores[] = {on->semaphore, what->wait_for != NULL
                                                   ? what->wait_for->semaphore
                                                   : VK_NULL_HANDLE};
    uint64_t waits[] = {on->last, what->wait_value}, after = on->last + 1;
    const VkPipelineStageFlags stages[] = {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                           VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
    uint32_t n_waits = what->wait_for != NULL ? 2 : 1;
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = n_waits,
        .pWaitSemaphoreValues = waits,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &after};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = n_waits,
                         .pWaitSemaphores = semaphores,
                         .pWaitDstStageMask = stages,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &on->semaphore};
    pthread_mutex_lock(&on->on->queue_lock);
    VkResult code = vkQueueSubmit(on->on->queue, 1, &info, VK_NULL_HANDLE);
    pthread_mutex_unlock(&on->on->queue_lock);
    if (code != VK_SUCCESS) {
        return fail(error, "vkQueueSubmit", code);
    }
    on->last = after;
    return ARROWDEV_OK;
}

/* Enqueue work of the queue. *value is that of the stream after the work. */
static int
submit(stream *on, const work *what, uint64_t *value, arrowdev_error *error)
{
    device *where = on->on;
    VkCommandBuffer commands = NULL;
    leftover *later = calloc(1, sizeof(*later));
    if (later == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    pthread_mutex_lock(&where->lock);
    sweep_locked(where);
    int result = record_locked(where, what, &commands, error);
    if (result == ARROWDEV_OK) {
        result = submit_locked(on, what, commands, error);
    }
    if (result == ARROWDEV_OK) {
        *later = (leftover){.of = on,
                            .value = on->last,
                            .commands = commands,
                            .staging = what->staging,
                            .waited_for = what->wait_for};
        if (what->wait_for != NULL) {
            what->wait_for->n_references++;
        }
        leave_locked(where, later);
        *value = on->last;
    } else {
        if (commands != NULL) {
            vkFreeCommandBuffers(where->handle, where->pool, 1, &commands);
        }
        free(later);
    }
    pthread_mutex_unlock(&where->lock);
    return result;
}

/* --- operations of the host ---------------------------------------------- */

typedef struct host_work {
    stream *on;
    uint64_t before;
    /* A copy of bytes, or the wait for a foreign event. */
    void *target;
    const void *source;
    size_t nbytes;
    VkDevice event_device;
    VkEvent event;
    stream *wait_for; /* of another device, with a reference, or NULL */
    uint64_t wait_value;
    block *staging; /* destroyed after the work, or NULL */
} host_work;

static void
wait_for_event(VkDevice handle, VkEvent event)
{
    const struct timespec pause = {0, 50000};
    while (vkGetEventStatus(handle, event) == VK_EVENT_RESET) {
        nanosleep(&pause, NULL);
    }
}

static int
do_host_work(const host_work *self, arrowdev_error *error)
{
    if (self->wait_for != NULL) {
        return wait_for(self->wait_for->on, self->wait_for->semaphore,
                        self->wait_value, error);
    }
    if (self->event != VK_NULL_HANDLE) {
        wait_for_event(self->event_device, self->event);
    } else {
        memcpy(self->target, self->source, self->nbytes);
    }
    return ARROWDEV_OK;
}

static void *
run_host_work(void *argument)
{
    host_work *self = argument;
    device *where = self->on->on;
    arrowdev_error error;
    if (wait_for(where, self->on->semaphore, self->before, &error) ==
            ARROWDEV_OK &&
        do_host_work(self, &error) == ARROWDEV_OK) {
        VkSemaphoreSignalInfo info = {
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
            .semaphore = self->on->semaphore,
            .value = self->before + 1};
        (void)vkSignalSemaphore(where->handle, &info);
    } /* else the device is lost, and all that follows stays pending */
    pthread_mutex_lock(&where->lock);
    if (self->staging != NULL) {
        free_block_locked(where, self->staging);
    }
    drop_stream_locked(self->on);
    pthread_mutex_unlock(&where->lock);
    if (self->wait_for != NULL) {
        drop_stream(self->wait_for);
    }
    free(self);
    return NULL;
}

/* Enqueue work of the host. */
static int
start_host_work(const host_work *wanted, arrowdev_error *error)
{
    stream *on = wanted->on;
    pthread_t thread;
    host_work *made = malloc(sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    *made = *wanted;
    pthread_mutex_lock(&on->on->lock);
    made->before = on->last;
    int code = pthread_create(&thread, NULL, run_host_work, made);
    if (code == 0) {
        pthread_detach(thread);
        on->last++;
        on->n_references++;
    }
    pthread_mutex_unlock(&on->on->lock);
    if (code != 0) {
        free(made);
        return fail(error, "pthread_create", VK_ERROR_OUT_OF_HOST_MEMORY);
    }
    return ARROWDEV_OK;
}

/* --- copies -------------------------------------------------------------- */

static int
new_staging(device *on, size_t nbytes, block **out, arrowdev_error *error)
{
    return new_block(on, nbytes,
                     VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                     out, error);
}

/* Destroy memory after what is on the stream now. */
static void
drop_staging(stream *of, block *staging)
{
    leftover *later = calloc(1, sizeof(*later));
    pthread_mutex_lock(&of->on->lock);
    if (later != NULL) {
        *later = (leftover){.of = of, .value = of->last, .staging = staging};
        leave_locked(of->on, later);
    } /* without memory it stays */
    pthread_mutex_unlock(&of->on->lock);
}

static int
copy_in(void *self, void *on, void *stream, const arrowdev_copy *copy,
        arrowdev_error *error)
{
    block *staging;
    uint64_t value;
    int result = new_staging(on, copy->width, &staging, error);
    if (result != ARROWDEV_OK) {
        return result;
    }
    host_work first = {.on = stream,
                       .target = staging->mapped,
                       .source =
                           (char *)copy->source.data + copy->source.offset,
                       .nbytes = copy->width};
    work second = {.copy = copy,
                   .source = staging->buffer,
                   .target = copy->target.data,
                   .staging = staging};
    result = start_host_work(&first, error);
    if (result == ARROWDEV_OK) {
        result = submit(stream, &second, &value, error);
    }
    if (result != ARROWDEV_OK) {
        drop_staging(stream, staging);
    }
    return result;
}

static int
copy_out(void *self, void *on, void *stream, const arrowdev_copy *copy,
         arrowdev_error *error)
{
    block *staging;
    uint64_t value;
    int result = new_staging(on, copy->width, &staging, error);
    if (result != ARROWDEV_OK) {
        return result;
    }
    work first = {
        .copy = copy, .source = copy->source.data, .target = staging->buffer};
    host_work second = {.on = stream,
                        .target =
                            (char *)copy->target.data + copy->target.offset,
                        .source = staging->mapped,
                        .nbytes = copy->width,
                        .staging = staging};
    result = submit(stream, &first, &value, error);
    if (result == ARROWDEV_OK) {
        result = start_host_work(&second, error);
    }
    if (result != ARROWDEV_OK) {
        drop_staging(stream, staging);
    }
    return result;
}

static int
copy_within(void *self, void *on, void *stream, const arrowdev_copy *copy,
            arrowdev_error *error)
{
    if (copy->source_device != copy->target_device) {
        return refuse(error, "a queue of Vulkan reads buffers of its device",
                      "copy to the host, and from there to the other device");
    }
    work what = {.copy = copy,
                 .source = copy->source.data,
                 .target = copy->target.data};
    uint64_t value;
    return submit(stream, &what, &value, error);
}

/* --- events -------------------------------------------------------------- */

/* sync_event is the address of the first member. */
typedef struct event {
    VkEvent handle;
    stream *of;
    uint64_t value;
} event;

static int
event_record(void *self, void *on, void *stream, void **sync_event,
             arrowdev_error *error)
{
    device *where = on;
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    event *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    VkResult code = vkCreateEvent(where->handle, &info, NULL, &made->handle);
    int result =
        code == VK_SUCCESS ? ARROWDEV_OK : fail(error, "vkCreateEvent", code);
    if (result == ARROWDEV_OK) {
        work what = {.set = made->handle};
        result = submit(stream, &what, &made->value, error);
    }
    if (result != ARROWDEV_OK) {
        vkDestroyEvent(where->handle, made->handle, NULL);
        free(made);
        return result;
    }
    made->of = stream;
    pthread_mutex_lock(&where->lock);
    made->of->n_references++;
    pthread_mutex_unlock(&where->lock);
    *sync_event = made;
    return ARROWDEV_OK;
}

static VkDevice
device_of(const arrowdev_event *asked)
{
    return ((device *)asked->device)->handle;
}

static int
event_query(void *self, const arrowdev_event *asked, int32_t *is_done,
            arrowdev_error *error)
{
    VkResult code =
        vkGetEventStatus(device_of(asked), *(VkEvent *)asked->sync_event);
    *is_done = code == VK_EVENT_SET;
    return code == VK_EVENT_SET || code == VK_EVENT_RESET
               ? ARROWDEV_OK
               : fail(error, "vkGetEventStatus", code);
}

/* The work that sets the event may not be done yet. */
static void
event_destroy(void *self, const arrowdev_event *own)
{
    event *old = own->sync_event;
    device *where = old->of->on;
    leftover *later = calloc(1, sizeof(*later));
    pthread_mutex_lock(&where->lock);
    if (later != NULL) {
        *later = (leftover){
            .of = old->of, .value = old->value, .event = &old->handle};
        leave_locked(where, later);
    } /* without memory it stays */
    drop_stream_locked(old->of);
    sweep_locked(where);
    pthread_mutex_unlock(&where->lock);
}

/* A device cannot wait for a semaphore of another one. The event may be
 * destroyed meanwhile, and its stream not. */
static int
wait_for_other_device(stream *on, const event *own, arrowdev_error *error)
{
    host_work what = {.on = on, .wait_for = own->of, .wait_value = own->value};
    pthread_mutex_lock(&own->of->on->lock);
    own->of->n_references++;
    pthread_mutex_unlock(&own->of->on->lock);
    int result = start_host_work(&what, error);
    if (result != ARROWDEV_OK) {
        drop_stream(own->of);
    }
    return result;
}

/* A queue may wait for a VkEvent only if it sets it, too. So the semaphore of
 * an own event's stream takes its place, and a thread of the host waits for an
 * event of others. */
static int
stream_wait(void *self, void *on, void *stream, const arrowdev_event *waited,
            arrowdev_error *error)
{
    const event *own = waited->sync_event;
    if (!waited->is_own) {
        host_work what = {.on = stream,
                          .event_device = device_of(waited),
                          .event = *(VkEvent *)waited->sync_event};
        return start_host_work(&what, error);
    }
    if (own->of->on != on) {
        return wait_for_other_device(stream, own, error);
    }
    work what = {.wait_for = own->of, .wait_value = own->value};
    uint64_t value;
    return submit(stream, &what, &value, error);
}

static int
synchronize(void *self, void *on, arrowdev_error *error)
{
    device *where = on;
    int result = ARROWDEV_OK;
    pthread_mutex_lock(&where->lock);
    stream *it = where->streams;
    while (it != NULL && result == ARROWDEV_OK) {
        it->n_references++;
        uint64_t last = it->last;
        pthread_mutex_unlock(&where->lock);
        result = wait_for(where, it->semaphore, last, error);
        pthread_mutex_lock(&where->lock);
        stream *next = it->next;
        drop_stream_locked(it);
        it = next;
    }
    pthread_mutex_unlock(&where->lock);
    return result;
}

/* --- the module ---------------------------------------------------------- */

static const arrowdev_backend table = {
    .size = sizeof(table),
    .version = ARROWDEV_BACKEND_VERSION,
    .capabilities = ARROWDEV_CAP_IN_ORDER,
    .name = "vulkan",
    .device_count = device_count,
    .device_name = device_name,
    .open_device = open_device,
    .synchronize = synchronize,
    .allocate = allocate,
    .deallocate = deallocate,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_within = copy_within,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_identity = stream_identity,
    .stream_wait = stream_wait,
    .event_record = event_record,
    .event_query = event_query,
    .event_destroy = event_destroy,
};

/* The function of the entry point: vulkan = "vulkan_backend:backend". */
static PyObject *
backend(PyObject *module, PyObject *unused)
{
    return ArrowDev_BackendCapsule(ARROW_DEVICE_VULKAN, &table);
}

static int
add(device *made, uint32_t family)
{
    VkCommandPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = family};
    if (n_devices == MAX_DEVICES ||
        vkCreateCommandPool(made->handle, &info, NULL, &made->pool) !=
            VK_SUCCESS) {
        return -1;
    }
    pthread_mutex_init(&made->queue_lock, NULL);
    pthread_mutex_init(&made->lock, NULL);
    devices[n_devices] = *made;
    return n_devices++;
}

/* add_device(VkPhysicalDevice, VkDevice, VkQueue, family): its number. The
 * handles are integers. The device has timelineSemaphore, and stays for the
 * life of the process. */
static PyObject *
add_device(PyObject *module, PyObject *args)
{
    unsigned long long physical, handle, queue;
    unsigned int family;
    if (!PyArg_ParseTuple(args, "KKKI", &physical, &handle, &queue, &family)) {
        return NULL;
    }
    device made = {.physical = (VkPhysicalDevice)(uintptr_t)physical,
                   .handle = (VkDevice)(uintptr_t)handle,
                   .queue = (VkQueue)(uintptr_t)queue};
    int number = add(&made, family); /* with the GIL, as the only lock */
    if (number < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no room for another device");
        return NULL;
    }
    return PyLong_FromLong(number);
}

static device *
device_argument(PyObject *number)
{
    long id = PyLong_AsLong(number);
    if (!PyErr_Occurred() && (id < 0 || id >= n_devices)) {
        PyErr_Format(PyExc_ValueError, "there is no device %ld", id);
    }
    return PyErr_Occurred() ? NULL : &devices[id];
}

/* lock(device), unlock(device): around all that a program does with the
 * queue, which arrowdev uses on other threads. */
static PyObject *
lock(PyObject *module, PyObject *number)
{
    device *on = device_argument(number);
    if (on == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&on->queue_lock);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *
unlock(PyObject *module, PyObject *number)
{
    device *on = device_argument(number);
    if (on == NULL) {
        return NULL;
    }
    pthread_mutex_unlock(&on->queue_lock);
    Py_RETURN_NONE;
}

/* new_stream(device): a number for stream=. It stays for the life of the
 * process. */
static PyObject *
new_stream(PyObject *module, PyObject *number)
{
    void *made;
    arrowdev_error error;
    device *on = device_argument(number);
    if (on == NULL) {
        return NULL;
    }
    int result = stream_create(NULL, on, &made, &error);
    if (result == ARROWDEV_FAILED) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s", error.call, error.text);
        return NULL;
    }
    if (result != ARROWDEV_OK) {
        return PyErr_NoMemory();
    }
    ((stream *)made)->is_user = 1;
    return PyLong_FromVoidPtr(made);
}

static PyMethodDef methods[] = {{"backend", backend, METH_NOARGS, NULL},
                                {"add_device", add_device, METH_VARARGS, NULL},
                                {"lock", lock, METH_O, NULL},
                                {"unlock", unlock, METH_O, NULL},
                                {"new_stream", new_stream, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "vulkan_backend",
                                    .m_methods = methods};

PyMODINIT_FUNC
PyInit_vulkan_backend(void)
{
    return PyModule_Create(&module);
}
