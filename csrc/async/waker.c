#include "async/waker.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/process.h"

static void
bell_destroy(ad_owner *base)
{
    ad_bell *self = (ad_bell *)base;
    close(self->fd);
    free(self);
}

ad_status
ad_bell_new(ad_bell **out, ad_error *err)
{
    ad_bell *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    self->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->fd < 0) {
        int code = errno;
        free(self);
        (void)ad_fail(err, AD_ERR_EXCHANGE, "stream",
                      "close files, or raise the limit (ulimit -n)",
                      "no file descriptor for an async stream: %s",
                      strerror(code));
        if (err != NULL) {
            err->code = code;
        }
        return AD_ERR_EXCHANGE;
    }
    self->generation = ad_process_generation();
    ad_owner_init(&self->base, bell_destroy);
    *out = self;
    return AD_OK;
}

void
ad_bell_unref(ad_bell *self)
{
    if (self != NULL) {
        ad_owner_unref(&self->base);
    }
}

bool
ad_bell_is_ours(const ad_bell *self)
{
    return self->generation == ad_process_generation();
}

ad_status
ad_bell_check(const ad_bell *self, ad_error *err)
{
    return ad_bell_is_ours(self)
               ? AD_OK
               : ad_fail(err, AD_ERR_EXCHANGE, "stream",
                         "go on with it in the parent, or make another one "
                         "here",
                         "this async stream was made before this process was "
                         "forked off, and its other end is not in the child");
}

/* It can fail only where the counter is full: then it is readable. */
void
ad_bell_ring(ad_bell *self)
{
    const uint64_t one = 1;
    if (ad_bell_is_ours(self)) {
        ssize_t n = write(self->fd, &one, sizeof(one));
        (void)n;
    }
}

static void
ring(void *bell)
{
    ad_bell_ring(bell);
}

ad_async_wake
ad_bell_wake(ad_bell *self)
{
    return (ad_async_wake){ring, self, &self->base};
}

bool
ad_bell_take(ad_bell *self)
{
    uint64_t count;
    return ad_bell_is_ours(self) &&
           read(self->fd, &count, sizeof(count)) == sizeof(count);
}

void
ad_bell_wait(ad_bell *self, int timeout_ms)
{
    struct pollfd waited = {.fd = self->fd, .events = POLLIN};
    (void)poll(&waited, 1, timeout_ms);
}
