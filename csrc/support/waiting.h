/* Python during the waits of the core (base/wait.h): other threads run, and
 * the main thread runs signal handlers.
 */
#ifndef AD_SUPPORT_WAITING_H
#define AD_SUPPORT_WAITING_H

#include <stdbool.h>

/* Install the hooks of the waits. Call before the first wait. */
void ad_waiting_init(void);

/* Run the handlers of pending signals during a wait, if this is the main
 * thread. Call with the GIL. Returns true if a handler raised, which ends the
 * wait with AD_ERR_INTERRUPTED. */
bool ad_run_signal_handlers(void);

/* Take the current exception, which has ended an inner wait. The outer wait
 * ends with AD_ERR_INTERRUPTED as well. */
void ad_keep_interruption(void);

/* Take the current exception where none can be returned. The main thread raises
 * an interruption (not an Exception) later, see ad_wait_pass_on(); anything
 * else goes to sys.unraisablehook. */
void ad_pass_on_exception(void);

/* Raise the exception that ended the last wait with AD_ERR_INTERRUPTED:
 * KeyboardInterrupt, or an exception of another handler. */
void ad_raise_interruption(void);

#endif /* AD_SUPPORT_WAITING_H */
