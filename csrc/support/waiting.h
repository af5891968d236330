/* What Python has to do with the waits of core (base/wait.h): it goes on
 * meanwhile, and its main thread runs the handlers of signals.
 */
#ifndef AD_SUPPORT_WAITING_H
#define AD_SUPPORT_WAITING_H

#include <stdbool.h>

/* Before the first wait. */
void ad_waiting_init(void);

/* With the GIL, during a wait: run the handlers of the signals that came, if
 * this is the main thread. True: one raised, which ends the wait with
 * AD_ERR_INTERRUPTED. */
bool ad_run_signal_handlers(void);

/* The exception that is set ended a wait within a longer one, which ends with
 * AD_ERR_INTERRUPTED, too. Takes it. */
void ad_keep_interruption(void);

/* Raise what ended the last wait with AD_ERR_INTERRUPTED: KeyboardInterrupt,
 * or what another handler raised. */
void ad_raise_interruption(void);

#endif /* AD_SUPPORT_WAITING_H */
