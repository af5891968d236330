/* The events of a trace (docs/trace.md): a ring for each thread.
 *
 * While no trace is on nothing here is called. Copies, waits and refusals share
 * the state of the logger (base/log.h). All other events come from functions
 * that are exchanged for others while a trace is on: those of the backends
 * (device/traced.c), and the entries from Python and the protocols
 * (python/functions/trace.c).
 *
 * A thread writes to its own ring and takes no lock. A ring grows up to its
 * capacity; then each event takes the place of the oldest one. ad_trace_stop() waits for the writes that have begun, which are
 * short: between ad_trace_begin() and ad_trace_end() a thread calls neither
 * Python nor a runtime. In a forked child the trace is off.
 */
#ifndef AD_BASE_TRACE_H
#define AD_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"
#include "base/status.h"

typedef enum ad_trace_kind {
    AD_TRACE_IMPORT,
    AD_TRACE_EXPORT,
    AD_TRACE_CONVERT,
    AD_TRACE_COPY,
    AD_TRACE_WAIT,        /* of the host */
    AD_TRACE_STREAM_WAIT, /* of a stream, for `event` */
    AD_TRACE_RECORDED,    /* `event`, on a stream */
    AD_TRACE_COMPLETE,    /* a query or a wait has seen `event` complete */
    AD_TRACE_REFUSAL,
    AD_TRACE_RELEASE, /* of the memory with the number `memory` */
    AD_TRACE_DEFERRED /* memory waited to be released */
} ad_trace_kind;

enum {
    AD_TRACE_DIMENSIONS = 6,
    AD_TRACE_TYPE_SIZE = 32,
    AD_TRACE_WHY_SIZE = 256
};

/* The kinds differ in what they fill in; the rest is 0. */
typedef struct ad_trace_event {
    ad_trace_kind kind;
    unsigned trace;   /* the trace that it belongs to */
    int64_t start;    /* ns of CLOCK_MONOTONIC */
    int64_t end;      /* equal to `start` for what takes no time */
    const char *name; /* static: the protocol or function */
    /* Python objects that the ring keeps (ad_trace_keep). */
    void *from;     /* class */
    void *to;       /* class */
    void *code;     /* of the line of the user */
    void *consumer; /* code of a library between that line and arrowdev */
    int32_t where;  /* in `code`: the offset of the instruction, or the line */
    bool is_done;   /* an import gave a result */
    uint64_t memory; /* number of memory that was imported or handed out */
    const void *address;
    int64_t nbytes;
    ad_device device; /* of the memory, the wait, or the event */
    ad_device target; /* of a copy; of the event that a stream waits for */
    uintptr_t stream;
    const void *event;
    int32_t ndim; /* -1: no shape is known */
    int64_t shape[AD_TRACE_DIMENSIONS];
    char type[AD_TRACE_TYPE_SIZE]; /* of the elements; a refusal's reason */
    char why[AD_TRACE_WHY_SIZE];
} ad_trace_event;

typedef struct ad_trace_ring ad_trace_ring;

bool ad_trace_is_on(void);
/* The number of the trace that is on, or of the last one. */
unsigned ad_trace_number(void);

/* Adds a copy of *event, whose objects are kept. */
void ad_trace_add(const ad_trace_event *event);

/* The same in two steps, for events with objects. NULL, and nothing has begun,
 * unless the trace with the number event->trace is on. */
ad_trace_ring *ad_trace_begin(const ad_trace_event *event);
/* Whether the ring did not yet keep the object: it takes over a reference,
 * which ad_trace_stop() hands on. False without memory, too: *object is NULL
 * then. */
bool ad_trace_keep(ad_trace_ring *ring, void **object);
void ad_trace_end(ad_trace_ring *ring, const ad_trace_event *event);

/* A number for memory that is imported or handed out. */
uint64_t ad_trace_new_memory(void);

/* Fills in the line of the user, if this thread can tell it. Set once, by the
 * Python layer: adds the event. */
extern void (*_Atomic ad_trace_add_with_line)(ad_trace_event *event);

/* For the code that knows the reason (base/log.h). */
__attribute__((cold)) void ad_trace_copy(int64_t nbytes, ad_device from,
                                         ad_device to, const char *why,
                                         int64_t start);
__attribute__((cold)) void ad_trace_wait(ad_device device, const void *event,
                                         const char *why, int64_t start);
/* A wait of a stream, which the backend's slot adds (device/traced.c), has the
 * reason that this thread has set around it; NULL: none, and no line. */
__attribute__((cold)) void ad_trace_set_why(const char *why);
void ad_trace_add_stream_wait(ad_trace_event *event);
/* Memory that waited since `start` to be released. */
__attribute__((cold)) void ad_trace_deferred(ad_device device, int64_t start);

__attribute__((cold)) void ad_trace_refusal(const char *reason,
                                            const char *text);

/* Turn a trace on; `capacity` is the number of events of a ring. One at a
 * time, by its caller. */
void ad_trace_start(size_t capacity);
/* Turn it off. In a forked child nothing is waited for. */
void ad_trace_stop(void);

/* After ad_trace_stop(): visits the events of each ring, oldest first, then
 * the objects that it kept, and empties it. */
typedef struct ad_trace_visitor {
    bool (*event)(void *data, size_t ring, uint64_t thread,
                  const ad_trace_event *event);
    void (*object)(void *data, void *object);
    void *data;
    uint64_t dropped; /* by full rings */
    uint64_t lost;    /* for want of memory */
} ad_trace_visitor;

/* False: `event` has returned false, and the rest was dropped. */
bool ad_trace_collect(ad_trace_visitor *visitor);

#endif /* AD_BASE_TRACE_H */
