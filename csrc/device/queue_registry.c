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

static ad_queue_entry *
find_locked(const ad_queue_registry *self, uintptr_t key)
{
    ad_queue_entry *entry = self->entries;
    while (entry != NULL && entry->key != key) {
        entry = entry->next;
    }
    return entry;
}

bool
ad_queue_registry_find(ad_queue_registry *self, uintptr_t key, void **where)
{
    ad_mutex_lock(&self->lock);
    const ad_queue_entry *entry = find_locked(self, key);
    if (entry != NULL && where != NULL) {
        *where = entry->where;
    }
    ad_mutex_unlock(&self->lock);
    return entry != NULL;
}

/* Unlinks the oldest foreign queue if there are too many. NULL: none. */
static ad_queue_entry *
take_surplus_locked(ad_queue_registry *self)
{
    ad_queue_entry **oldest = NULL;
    size_t n = 0;
    for (ad_queue_entry **link = &self->entries; *link != NULL;
         link = &(*link)->next) {
        if (!(*link)->is_own) {
            oldest = link;
            n++;
        }
    }
    if (n <= AD_N_OTHER_QUEUES) {
        return NULL;
    }
    ad_queue_entry *entry = *oldest;
    *oldest = entry->next;
    return entry;
}

/* Another thread may have registered the queue meanwhile. */
void
ad_queue_registry_add(ad_queue_registry *self, const ad_queue_entry *entry)
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
    ad_mutex_lock(&self->lock);
    if (find_locked(self, entry->key) == NULL) {
        added->next = self->entries;
        self->entries = added;
        dropped = take_surplus_locked(self);
    }
    ad_mutex_unlock(&self->lock);
    if (dropped != NULL) {
        ad_owner_unref(&dropped->base);
    }
}

/* The lock is not held while the runtime waits. */
ad_status
ad_queue_registry_finish(ad_queue_registry *self, int64_t id, ad_error *err)
{
    ad_status status = AD_OK;
    size_t n = 0;
    ad_mutex_lock(&self->lock);
    for (ad_queue_entry *e = self->entries; e != NULL; e = e->next) {
        n++;
    }
    ad_queue_entry **found = calloc(n + 1, sizeof(*found));
    n = 0;
    for (ad_queue_entry *e = self->entries; e != NULL && found != NULL;
         e = e->next) {
        if (e->id == id) {
            ad_owner_ref(&e->base);
            found[n++] = e;
        }
    }
    ad_mutex_unlock(&self->lock);
    if (found == NULL) {
        return ad_fail_memory(err, sizeof(*found));
    }
    for (size_t i = 0; i < n; i++) {
        ad_status finished =
            self->finish(found[i]->queue, id, status == AD_OK ? err : NULL);
        status = status == AD_OK ? finished : status;
        ad_owner_unref(&found[i]->base);
    }
    free(found);
    return status;
}

ad_status
ad_queue_check_device(ad_device found, ad_device wanted, ad_error *err)
{
    char runs_on[AD_DEVICE_NAME_SIZE], data_on[AD_DEVICE_NAME_SIZE];
    if (wanted.id < 0 || wanted.id == found.id) {
        return AD_OK;
    }
    return ad_fail_on(
        err, wanted, "stream",
        "pass a queue of the device the data are on, or copy them",
        "the queue runs on %s, the data are on %s",
        ad_device_format(found, runs_on), ad_device_format(wanted, data_on));
}
