/* What has to happen around a call that may block the host.
 *
 * Core knows no interpreter, so whoever embeds it says what to do: the Python
 * layer gives the GIL up and takes it back (python/py_owner.c). Every blocking
 * slot of a backend is called between the two, and no lock of ours is held
 * there.
 */
#ifndef AD_CORE_BLOCKING_H
#define AD_CORE_BLOCKING_H

typedef struct ad_blocking_hooks {
    void *(*begin)(void);      /* NULL: there is nothing to take back */
    void (*end)(void *ticket); /* called with what begin() returned */
} ad_blocking_hooks;

/* Set once, before any device is used. Default: do nothing. */
void ad_blocking_set_hooks(ad_blocking_hooks hooks);

void *ad_blocking_begin(void);
void ad_blocking_end(void *ticket);

#endif /* AD_CORE_BLOCKING_H */
