#define _GNU_SOURCE /* memfd_create, seals */
#include "share/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

/* The size is fixed from now on. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* --- the list of mappings ------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ad_mapping *mappings;

/* Another thread may have been changing the list at the fork. */
static void
on_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    mappings = NULL;
}

static ad_child_hook child_hook = {.run = on_fork};

static void
enter_list(ad_mapping *self)
{
    pthread_mutex_lock(&lock);
    self->next = mappings;
    self->link = &mappings;
    if (mappings != NULL) {
        mappings->link = &self->next;
    }
    mappings = self;
    pthread_mutex_unlock(&lock);
}

static void
leave_list(ad_mapping *self)
{
    if (self->generation != ad_process_generation()) {
        return; /* the list is that of the parent */
    }
    pthread_mutex_lock(&lock);
    *self->link = self->next;
    if (self->next != NULL) {
        self->next->link = self->link;
    }
    pthread_mutex_unlock(&lock);
}

ad_mapping *
ad_mapping_find(const void *data, size_t nbytes)
{
    uintptr_t first = (uintptr_t)data;
    ad_mapping *found = NULL;
    pthread_mutex_lock(&lock);
    for (ad_mapping *it = mappings; it != NULL && found == NULL;
         it = it->next) {
        uintptr_t begin = (uintptr_t)it->data;
        if (it->data != NULL && first >= begin && first - begin < it->nbytes &&
            nbytes <= it->nbytes - (first - begin)) {
            /* The caller's memory lies in it, so it has a reference. */
            ad_owner_ref(&it->base);
            found = it;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* --- a mapping ----------------------------------------------------------- */

static void
close_both(int file, int connection)
{
    close(file);
    if (connection >= 0) {
        close(connection);
    }
}

static void
mapping_destroy(ad_owner *base)
{
    ad_mapping *self = (ad_mapping *)base;
    leave_list(self);
    if (self->data != NULL) {
        munmap(self->data, self->nbytes);
    }
    close_both(self->file, self->connection);
    free(self);
}

static ad_extent
mapping_extent(const ad_owner *base)
{
    const ad_mapping *self = (const ad_mapping *)base;
    return (ad_extent){self->data, self->nbytes};
}

static const ad_owner_ops mapping_ops = {
    .destroy = mapping_destroy,
    .extent = mapping_extent,
    .name = "memory file",
};

static ad_status
fail_errno(ad_error *err, int code, size_t nbytes, const char *what)
{
    if (code == EMFILE || code == ENFILE) {
        return ad_fail(err, AD_ERR_EXCHANGE, "share",
                       "release some of what was shared or attached, or raise "
                       "the limit (ulimit -n)",
                       "%s needs a file descriptor, and %s has as many open "
                       "as it may have",
                       what, code == EMFILE ? "the process" : "the system");
    }
    if (code == ENOMEM || code == ENOSPC || code == EFBIG) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "%s of %zu bytes: the memory for files is full (%s)",
                       what, nbytes, strerror(code));
    }
    return ad_fail(err, AD_ERR_EXCHANGE, "share", NULL,
                   "%s of %zu bytes failed: %s", what, nbytes, strerror(code));
}

/* Takes over both descriptors. */
static ad_status
map(int file, size_t nbytes, bool is_writable, int connection,
    ad_mapping **out, ad_error *err)
{
    ad_mapping *self = calloc(1, sizeof(*self));
    int code = self == NULL ? ENOMEM : ad_process_add_child_hook(&child_hook);
    if (code == 0 && nbytes > 0) {
        int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
        self->data = mmap(NULL, nbytes, protection, MAP_SHARED, file, 0);
        code = self->data == MAP_FAILED ? errno : 0;
    }
    if (code != 0) {
        close_both(file, connection);
        free(self);
        return fail_errno(err, code, nbytes, "a mapping");
    }
    ad_owner_init(&self->base, &mapping_ops);
    self->nbytes = nbytes;
    self->file = file;
    self->connection = connection;
    self->is_writable = is_writable;
    self->generation = ad_process_generation();
    enter_list(self);
    *out = self;
    return AD_OK;
}

/* Pages are taken as they are written, as malloc() takes them. A process that
 * got the file for reading does not open it for writing by mistake: it would
 * have to change the permissions first. */
static int
set_size(int file, size_t nbytes)
{
    return ftruncate(file, (off_t)nbytes) == 0 && fchmod(file, 0400) == 0 &&
                   fcntl(file, F_ADD_SEALS, SEALS) == 0
               ? 0
               : errno;
}

ad_status
ad_memory_file_new(size_t nbytes, ad_mapping **out, ad_error *err)
{
    if (nbytes > INT64_MAX) {
        return ad_fail_memory(err, nbytes);
    }
    int file = memfd_create("arrowdev", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) {
        return fail_errno(err, errno, nbytes, "a memory file");
    }
    int code = set_size(file, nbytes);
    if (code != 0) {
        close(file);
        return fail_errno(err, code, nbytes, "a memory file");
    }
    return map(file, nbytes, true, -1, out, err);
}

ad_status
ad_memory_file_map(int file, size_t nbytes, bool is_writable, int connection,
                   ad_mapping **out, ad_error *err)
{
    struct stat state;
    int seals = fcntl(file, F_GET_SEALS);
    const char *wrong = NULL;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        wrong = "it can be made smaller, so that a read would be a fault";
    } else if (fstat(file, &state) != 0 || state.st_size < 0 ||
               (uintmax_t)state.st_size < nbytes) {
        wrong = "it is smaller than its description says";
    }
    if (wrong != NULL) {
        close_both(file, connection);
        return ad_fail(err, AD_ERR_EXCHANGE, "share", NULL,
                       "the other process sent a file that is not safe to "
                       "map: %s",
                       wrong);
    }
    return map(file, nbytes, is_writable, connection, out, err);
}
