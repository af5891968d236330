#include "device/queue_registry.h"

#include <stdlib.h>

static void
seen_destroy(ad_owner *base)
{
    ad_seen_queue *seen = (ad_seen_queue *)base;
    seen->forget(seen->queue);
    free(seen);
}

/* Walks our own and then the others; NULL at the end. */
static ad_seen_queue *
next_locked(const ad_seen_queues *self, ad_seen_queue **own, size_t *i)
{
    if (*own != NULL) {
        ad_seen_queue *seen = *own;
        *own = seen->next;
        return seen;
    }
    while (*i < AD_N_SEEN_QUEUES) {
        ad_seen_queue *seen = self->others[(*i)++];
        if (seen != NULL) {
            return seen;
        }
    }
    return NULL;
}

static ad_seen_queue *
find_locked(const ad_seen_queues *self, uintptr_t key)
{
    ad_seen_queue *own = self->own;
    size_t i = 0;
    ad_seen_queue *seen = next_locked(self, &own, &i);
    while (seen != NULL && seen->key != key) {
        seen = next_locked(self, &own, &i);
    }
    return seen;
}

bool
ad_seen_queues_find(ad_seen_queues *self, uintptr_t key, void **where)
{
    pthread_mutex_lock(&self->lock);
    const ad_seen_queue *seen = find_locked(self, key);
    if (seen != NULL && where != NULL) {
        *where = seen->where;
    }
    pthread_mutex_unlock(&self->lock);
    return seen != NULL;
}

/* Another thread may have added it meanwhile. */
void
ad_seen_queues_add(ad_seen_queues *self, const ad_seen_queue *seen,
                   bool is_own)
{
    ad_seen_queue *added = malloc(sizeof(*added));
    if (added == NULL) {
        self->forget(seen->queue);
        return;
    }
    *added = *seen;
    ad_owner_init(&added->base, seen_destroy);
    added->forget = self->forget;
    ad_seen_queue *dropped = added;
    pthread_mutex_lock(&self->lock);
    if (find_locked(self, seen->key) != NULL) {
        /* dropped again */
    } else if (is_own) {
        dropped = NULL;
        added->next = self->own;
        self->own = added;
    } else {
        dropped = self->others[self->next];
        self->others[self->next] = added;
        self->next = (self->next + 1) % AD_N_SEEN_QUEUES;
    }
    pthread_mutex_unlock(&self->lock);
    if (dropped != NULL) {
        ad_owner_unref(&dropped->base);
    }
}

static size_t
count_locked(const ad_seen_queues *self)
{
    ad_seen_queue *own = self->own;
    size_t i = 0;
    size_t n = 0;
    while (next_locked(self, &own, &i) != NULL) {
        n++;
    }
    return n;
}

ad_seen_queue **
ad_seen_queues_of(ad_seen_queues *self, int64_t id, size_t *n)
{
    *n = 0;
    pthread_mutex_lock(&self->lock);
    ad_seen_queue **found = calloc(count_locked(self) + 1, sizeof(*found));
    if (found != NULL) {
        ad_seen_queue *own = self->own;
        size_t i = 0;
        ad_seen_queue *seen = next_locked(self, &own, &i);
        for (; seen != NULL; seen = next_locked(self, &own, &i)) {
            if (seen->id == id) {
                ad_owner_ref(&seen->base);
                found[(*n)++] = seen;
            }
        }
    }
    pthread_mutex_unlock(&self->lock);
    return found;
}
