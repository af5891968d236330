#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void
fill(ad_error *err, ad_status status, const char *reason, const char *hint,
     const char *format, va_list args)
{
    if (err == NULL) {
        return;
    }
    err->status = status;
    err->code = 0;
    ad_error_reason(err, reason != NULL ? reason : "");
    err->has_device = false;
    err->device = (ad_device){0, 0};
    err->dtype[0] = '\0';
    err->path[0] = '\0';
    snprintf(err->hint, sizeof(err->hint), "%s", hint != NULL ? hint : "");
    vsnprintf(err->message, sizeof(err->message), format, args);
}

ad_status
ad_fail(ad_error *err, ad_status status, const char *reason, const char *hint,
        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, status, reason, hint, format, args);
    va_end(args);
    return status;
}

ad_status
ad_fail_on(ad_error *err, ad_device device, const char *reason,
           const char *hint, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, AD_ERR_EXCHANGE, reason, hint, format, args);
    va_end(args);
    ad_error_device(err, device);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_fail_memory(ad_error *err, size_t nbytes)
{
    return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                   "could not allocate %zu bytes of host memory", nbytes);
}

void
ad_error_reason(ad_error *err, const char *reason)
{
    if (err != NULL) {
        snprintf(err->reason, sizeof(err->reason), "%s", reason);
    }
}

void
ad_error_hint(ad_error *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(err->hint, sizeof(err->hint), format, args);
    va_end(args);
}

void
ad_error_prefix(ad_error *err, const char *format, ...)
{
    char message[sizeof(err->message)];
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof(message)) {
        snprintf(message + n, sizeof(message) - (size_t)n, "%s", err->message);
        memcpy(err->message, message, sizeof(message));
    }
}

void
ad_error_device(ad_error *err, ad_device device)
{
    if (err != NULL) {
        err->has_device = true;
        err->device = device;
    }
}

void
ad_error_dtype(ad_error *err, const char *dtype)
{
    if (err != NULL) {
        snprintf(err->dtype, sizeof(err->dtype), "%s", dtype);
    }
}

void
ad_error_path_prepend(ad_error *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    char step[80];
    va_list args;
    va_start(args, format);
    vsnprintf(step, sizeof(step), format, args);
    va_end(args);

    size_t step_length = strlen(step);
    size_t old_length = strlen(err->path);
    bool separate = old_length > 0 && err->path[0] != '[';
    if (step_length + separate + old_length >= sizeof(err->path)) {
        if (strncmp(err->path, "...", 3) != 0 && old_length > 3) {
            memcpy(err->path, "...", 3);
        }
        return;
    }
    memmove(err->path + step_length + separate, err->path, old_length + 1);
    memcpy(err->path, step, step_length);
    if (separate) {
        err->path[step_length] = '.';
    }
}
