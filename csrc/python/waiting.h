/* What Python has to do with the waits of core (core/blocking.h): it goes on
 * meanwhile, and its main thread runs the handlers of signals.
 */
#ifndef AD_PYTHON_WAITING_H
#define AD_PYTHON_WAITING_H

/* Before the first wait. */
void ad_waiting_init(void);

/* Raise what ended the last wait with AD_ERR_INTERRUPTED: KeyboardInterrupt,
 * or what another handler raised. */
void ad_raise_interruption(void);

#endif /* AD_PYTHON_WAITING_H */
