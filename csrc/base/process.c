#include "base/process.h"

#include "base/os.h"

atomic_uint ad_process_generation_now;

static ad_mutex lock = AD_MUTEX_INIT;
static ad_child_hook *hooks; /* protected by the lock */

/* Another thread of the parent may have held the lock at the fork, and it
 * would never be unlocked here. A hook that was being added is either in the
 * list or not, so the list is consistent. */
static void
after_fork(void)
{
    ad_mutex_init(&lock);
    atomic_fetch_add(&ad_process_generation_now, 1);
    for (const ad_child_hook *h = hooks; h != NULL; h = h->next) {
        h->run();
    }
}

static int
watch_locked(void)
{
    if (atomic_load(&ad_process_generation_now) != 0) {
        return 0;
    }
    int code = ad_os_at_fork(after_fork);
    if (code == 0) {
        atomic_store(&ad_process_generation_now, 1);
    }
    return code;
}

unsigned
ad_process_watch(void)
{
    ad_mutex_lock(&lock);
    (void)watch_locked();
    ad_mutex_unlock(&lock);
    return atomic_load(&ad_process_generation_now);
}

int
ad_process_add_child_hook(ad_child_hook *hook)
{
    if (atomic_load_explicit(&hook->is_added, memory_order_acquire)) {
        return 0;
    }
    ad_mutex_lock(&lock);
    int code = watch_locked();
    if (code == 0 && !atomic_load(&hook->is_added)) {
        hook->next = hooks;
        hooks = hook;
        atomic_store_explicit(&hook->is_added, true, memory_order_release);
    }
    ad_mutex_unlock(&lock);
    return code;
}

/* --- memory -------------------------------------------------------------- */

bool
ad_process_can_read(const void *data, int64_t nbytes)
{
    uintptr_t first = (uintptr_t)data;
    uintptr_t last;
    return nbytes <= 0 ||
           (!__builtin_add_overflow(first, (uintptr_t)nbytes - 1, &last) &&
            ad_os_can_read_byte((const void *)first) &&
            ad_os_can_read_byte((const void *)last));
}
