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
waker_destroy(ad_owner *base)
{
    ad_waker *self = (ad_waker *)base;
    close(self->fd);
    free(self);
}

static const ad_owner_ops waker_ops = {.destroy = waker_destroy,
                                       .name = "waker"};

ad_status
ad_waker_new(ad_waker **out, ad_error *err)
{
    ad_waker *self = malloc(sizeof(*self));
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
    ad_owner_init(&self->base, &waker_ops);
    *out = self;
    return AD_OK;
}

void
ad_waker_unref(ad_waker *self)
{
    if (self != NULL) {
        ad_owner_unref(&self->base);
    }
}

bool
ad_waker_is_ours(const ad_waker *self)
{
    return self->generation == ad_process_generation();
}

ad_status
ad_waker_check(const ad_waker *self, ad_error *err)
{
    return ad_waker_is_ours(self)
               ? AD_OK
               : ad_fail(err, AD_ERR_EXCHANGE, "stream",
                         "go on with it in the parent, or make another one "
                         "here",
                         "this async stream was made before this process was "
                         "forked, and its other end is not in the child");
}

/* The write fails only if the counter is full; the descriptor is then readable
 * already. */
void
ad_waker_wake(ad_waker *self)
{
    const uint64_t one = 1;
    if (ad_waker_is_ours(self)) {
        ssize_t n = write(self->fd, &one, sizeof(one));
        (void)n;
    }
}

static void
wake(void *waker)
{
    ad_waker_wake(waker);
}

ad_async_wake
ad_waker_callback(ad_waker *self)
{
    return (ad_async_wake){wake, self, &self->base};
}

bool
ad_waker_clear(ad_waker *self)
{
    uint64_t count;
    return ad_waker_is_ours(self) &&
           read(self->fd, &count, sizeof(count)) == sizeof(count);
}

void
ad_waker_wait(ad_waker *self, int timeout_ms)
{
    struct pollfd waited = {.fd = self->fd, .events = POLLIN};
    (void)poll(&waited, 1, timeout_ms);
}
