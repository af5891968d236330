#include "base/process.h"

#include <pthread.h>

atomic_uint ad_process_generation_now;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Both are protected by the lock. */
static bool is_watched;
static ad_child_hook *hooks;

/* Another thread of the parent may have held the lock at the fork, and it
 * would never be unlocked here. A hook that was being added is either in the
 * list or not, so the list is consistent. */
static void
after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_fetch_add(&ad_process_generation_now, 1);
    for (const ad_child_hook *h = hooks; h != NULL; h = h->next) {
        h->run();
    }
}

static int
watch_locked(void)
{
    int code = is_watched ? 0 : pthread_atfork(NULL, NULL, after_fork);
    if (code == 0 && !is_watched) {
        is_watched = true;
        atomic_store(&ad_process_generation_now, 1);
    }
    return code;
}

unsigned
ad_process_watch(void)
{
    pthread_mutex_lock(&lock);
    (void)watch_locked();
    pthread_mutex_unlock(&lock);
    return atomic_load(&ad_process_generation_now);
}

int
ad_process_add_child_hook(ad_child_hook *hook)
{
    int code = 0;
    if (atomic_load_explicit(&hook->is_added, memory_order_acquire)) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    if (!atomic_load(&hook->is_added)) {
        code = watch_locked();
        if (code == 0) {
            hook->next = hooks;
            hooks = hook;
            atomic_store_explicit(&hook->is_added, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}
