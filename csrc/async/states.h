/* The states of an async stream, and the calls that are valid in each.
 *
 * Both ends and arrowdev.testing share one table. The consumer checks incoming
 * calls with it (async/consumer.c), the producer outgoing calls
 * (async/producer.c), and scripted ends the calls of foreign ends.
 */
#ifndef AD_ASYNC_STATES_H
#define AD_ASYNC_STATES_H

#include <stdbool.h>

typedef enum ad_async_state {
    AD_ASYNC_NEW,
    AD_ASYNC_OPEN,           /* the schema has arrived: batches may follow */
    AD_ASYNC_ENDED,          /* by a NULL task */
    AD_ASYNC_FAILED,         /* by on_error */
    AD_ASYNC_REFUSED,        /* a callback returned an error */
    AD_ASYNC_REFUSED_FAILED, /* REFUSED, and on_error was called */
    AD_ASYNC_RELEASED
} ad_async_state;

#define AD_ASYNC_N_STATES (AD_ASYNC_RELEASED + 1)

/* Calls of the handler; REFUSAL: a call of the handler returned an error. */
typedef enum ad_async_event {
    AD_ASYNC_ON_SCHEMA,
    AD_ASYNC_ON_TASK,
    AD_ASYNC_ON_END, /* on_next_task with NULL */
    AD_ASYNC_ON_ERROR,
    AD_ASYNC_RELEASE,
    AD_ASYNC_REFUSAL
} ad_async_event;

#define AD_ASYNC_N_EVENTS (AD_ASYNC_REFUSAL + 1)

typedef struct ad_async_step {
    ad_async_state next;
    /* The rule that the call breaks, worded to follow "<call> was called ";
     * NULL: none. The end that detects it keeps its state, or makes the step
     * of AD_ASYNC_REFUSAL. */
    const char *rule;
    const char *rule_id; /* of arrowdev.testing */
    bool is_tolerated;   /* Arrow C++ makes this call: the consumer accepts it
                            and goes to `next` */
} ad_async_step;

const ad_async_step *ad_async_step_of(ad_async_state state,
                                      ad_async_event event);

const char *ad_async_state_name(ad_async_state state);
const char *ad_async_event_name(ad_async_event event);

#endif /* AD_ASYNC_STATES_H */
