#include "device/queue_registry.h"

#include <stdlib.h>

static void
entry_destroy(ad_owner *base)
{
    ad_queue_entry *entry = (ad_queue_entry *)base;
    entry->forget(entry->queue);
    free(entry);
}

static const ad_owner_ops entry_ops = {.destroy = entry_destroy,
                                       .name = "queue"};

/* Iterates over own queues and then foreign ones. NULL at the end. */
static ad_queue_entry *
next_locked(const ad_queue_registry *self, ad_queue_entry **own, size_t *i)
{
    if (*own != NULL) {
        ad_queue_entry *entry = *own;
        *own = entry->next;
        return entry;
    }
    while (*i < AD_N_OTHER_QUEUES) {
        ad_queue_entry *entry = self->others[(*i)++];
        if (entry != NULL) {
            return entry;
        }
    }
    return NULL;
}

static ad_queue_entry *
find_locked(const ad_queue_registry *self, uintptr_t key)
{
    ad_queue_entry *own = self->own;
    size_t i = 0;
    ad_queue_entry *entry = next_locked(self, &own, &i);
    while (entry != NULL && entry->key != key) {
        entry = next_locked(self, &own, &i);
    }
    return entry;
}

bool
ad_queue_registry_find(ad_queue_registry *self, uintptr_t key, void **where)
{
    pthread_mutex_lock(&self->lock);
    const ad_queue_entry *entry = find_locked(self, key);
    if (entry != NULL && where != NULL) {
        *where = entry->where;
    }
    pthread_mutex_unlock(&self->lock);
    return entry != NULL;
}

/* Another thread may have registered the queue meanwhile. */
void
ad_queue_registry_add(ad_queue_registry *self, const ad_queue_entry *entry,
                      bool is_own)
{
    ad_queue_entry *added = malloc(sizeof(*added));
    if (added == NULL) {
        self->forget(entry->queue);
        return;
    }
    *added = *entry;
    ad_owner_init(&added->base, &entry_ops);
    added->forget = self->forget;
    ad_queue_entry *dropped = added;
    pthread_mutex_lock(&self->lock);
    if (find_locked(self, entry->key) != NULL) {
        /* already registered: release the new entry */
    } else if (is_own) {
        dropped = NULL;
        added->next = self->own;
        self->own = added;
    } else {
        dropped = self->others[self->next];
        self->others[self->next] = added;
        self->next = (self->next + 1) % AD_N_OTHER_QUEUES;
    }
    pthread_mutex_unlock(&self->lock);
    if (dropped != NULL) {
        ad_owner_unref(&dropped->base);
    }
}

static size_t
count_locked(const ad_queue_registry *self)
{
    ad_queue_entry *own = self->own;
    size_t i = 0;
    size_t n = 0;
    while (next_locked(self, &own, &i) != NULL) {
        n++;
    }
    return n;
}

ad_queue_entry **
ad_queue_registry_of(ad_queue_registry *self, int64_t id, size_t *n)
{
    *n = 0;
    pthread_mutex_lock(&self->lock);
    ad_queue_entry **found = calloc(count_locked(self) + 1, sizeof(*found));
    if (found != NULL) {
        ad_queue_entry *own = self->own;
        size_t i = 0;
        ad_queue_entry *entry = next_locked(self, &own, &i);
        for (; entry != NULL; entry = next_locked(self, &own, &i)) {
            if (entry->id == id) {
                ad_owner_ref(&entry->base);
                found[(*n)++] = entry;
            }
        }
    }
    pthread_mutex_unlock(&self->lock);
    return found;
}
