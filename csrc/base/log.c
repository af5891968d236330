#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/trace.h"

/* Room for the longest error message with its hint. */
#define MAX_LINE 1024

atomic_int ad_log_state_now = AD_LOG_OFF;
static ad_log_hooks log_hooks;

void
ad_log_set_hooks(ad_log_hooks hooks)
{
    log_hooks = hooks;
}

bool
ad_log_wants_lines(void)
{
    int state = atomic_load(&ad_log_state_now);
    return (state & AD_LOG_ON) != 0 ||
           ((state & AD_LOG_ASK) != 0 && log_hooks.is_on());
}

bool
ad_log_ask(void)
{
    return ad_trace_is_on() || ad_log_wants_lines();
}

void
ad_log(const char *format, ...)
{
    char line[MAX_LINE];
    va_list args;
    if (!ad_log_wants_lines()) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    log_hooks.write(line);
}

/* "8,000" for 8000; `nbytes` is not negative. */
static const char *
group_digits(int64_t nbytes, char buffer[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%" PRId64, nbytes);
    char *end = buffer;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) {
            *end++ = ',';
        }
        *end++ = digits[i];
    }
    *end = '\0';
    return buffer;
}

void
ad_log_copy(int64_t nbytes, ad_device from, ad_device to, const char *why,
            int64_t start)
{
    char size[32];
    char source[AD_DEVICE_NAME_SIZE];
    char target[AD_DEVICE_NAME_SIZE];
    if (ad_trace_is_on()) {
        ad_trace_copy(nbytes, from, to, why, start);
    }
    ad_log("copy: %s byte%s, %s -> %s, because %s", group_digits(nbytes, size),
           nbytes == 1 ? "" : "s", ad_device_format(from, source),
           ad_device_format(to, target), why);
}
