/* Start, lock, entry of every call, violations. */
#include "driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controls.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_started;
static atomic_bool is_stopping;
static int n_devices;
static int numbers[FD_MAX_DEVICES]; /* of the devices, on the machine */

static pthread_mutex_t violations_lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[65536];
static size_t n_violations;

void
fd_lock(void)
{
    pthread_mutex_lock(&lock);
}

void
fd_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void
stop(void)
{
    atomic_store(&is_stopping, true);
}

bool
fd_is_stopping(void)
{
    return atomic_load(&is_stopping);
}

/* Of the ARROWDEV_FAKE_DEVICES of the machine those that the process sees, up to
 * the first number that is none; all, if that is the first. */
static int
list_devices(void)
{
    const char *visible = getenv(fd_face_here.visible);
    const char *wanted = getenv("ARROWDEV_FAKE_DEVICES");
    int n = wanted != NULL ? atoi(wanted) : 2;
    n = n < 1 ? 1 : n > FD_MAX_DEVICES ? FD_MAX_DEVICES : n;
    int n_visible = 0;
    while (visible != NULL && n_visible < n) {
        char *end;
        long number = strtol(visible, &end, 10);
        if (end == visible || number < 0 || number >= n) {
            break;
        }
        numbers[n_visible++] = (int)number;
        visible = *end == ',' ? end + 1 : NULL;
    }
    for (int i = 0; n_visible == 0 && i < n; i++) {
        numbers[i] = i;
    }
    return n_visible > 0 ? n_visible : n;
}

int
fd_start(void)
{
    if (ad_engine_is_forked()) {
        return FD_NOT_INITIALIZED;
    }
    if (atomic_load(&is_started)) {
        return FD_OK;
    }
    fd_lock();
    int n = list_devices();
    int code = fd_code(ad_engine_start(n));
    if (code == FD_OK && !atomic_load(&is_started)) {
        n_devices = n;
        atexit(stop);
        atomic_store(&is_started, true);
    }
    fd_unlock();
    return code;
}

int
fd_n_devices(void)
{
    return n_devices;
}

int
fd_device_number(int device)
{
    return numbers[device];
}

int
fd_device_here(int number)
{
    int device = n_devices - 1;
    while (device >= 0 && numbers[device] != number) {
        device--;
    }
    return device;
}

void
fd_device_uuid(int device, char out[16])
{
    memcpy(out, "stand-in device", 16);
    out[15] = (char)numbers[device];
}

int
fd_enter_early(const char *name)
{
    return ad_engine_is_forked() ? FD_NOT_INITIALIZED : fd_log_call(name, 0);
}

static __thread const char *call_name;

const char *
fd_call_name(void)
{
    return call_name;
}

int
fd_enter(const char *name, uintptr_t stream)
{
    call_name = name;
    if (ad_engine_is_forked() || !atomic_load(&is_started)) {
        return FD_NOT_INITIALIZED;
    }
    int code = fd_log_call(name, stream);
    if (fd_face_here.refuses_in_host_function && fd_is_in_host_function()) {
        return FD_NOT_PERMITTED;
    }
    if (stream > FD_PER_THREAD && fd_stream_is_destroyed(stream)) {
        fd_violation("%s used stream %#zx, which is destroyed", name,
                     (size_t)stream);
    }
    const fd_context *context = fd_context_peek();
    if (code == FD_OK && context != NULL && context->is_live) {
        code = context->broken;
    }
    return code;
}

int
fd_code(int engine_status)
{
    static const int codes[AD_ENGINE_N_STATUS] = {
        [AD_ENGINE_OK] = FD_OK,
        [AD_ENGINE_NOT_STARTED] = FD_NOT_INITIALIZED,
        [AD_ENGINE_UNSUPPORTED] = FD_NOT_SUPPORTED,
        [AD_ENGINE_FORKED] = FD_NOT_INITIALIZED,
        [AD_ENGINE_INVALID_DEVICE] = FD_INVALID_DEVICE,
        [AD_ENGINE_INVALID_QUEUE] = FD_INVALID_HANDLE,
        [AD_ENGINE_INVALID_EVENT] = FD_INVALID_HANDLE,
        [AD_ENGINE_INVALID_POINTER] = FD_INVALID_VALUE,
        [AD_ENGINE_INVALID_VALUE] = FD_INVALID_VALUE,
        [AD_ENGINE_OUT_OF_MEMORY] = FD_OUT_OF_MEMORY,
        [AD_ENGINE_NOT_READY] = FD_NOT_READY,
        [AD_ENGINE_TIMEOUT] = FD_TIMEOUT,
        [AD_ENGINE_ILLEGAL_ADDRESS] = FD_ILLEGAL_ADDRESS,
        [AD_ENGINE_WORK_FAILED] = FD_LAUNCH_FAILED,
        [AD_ENGINE_INJECTED] = FD_UNKNOWN,
    };
    bool is_known = engine_status >= 0 && engine_status < AD_ENGINE_N_STATUS;
    return is_known ? codes[engine_status] : FD_UNKNOWN;
}

void
fd_violation(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&violations_lock);
    size_t length = strlen(line);
    if (n_violations + length + 2 <= sizeof(violations)) {
        memcpy(violations + n_violations, line, length);
        n_violations += length;
        violations[n_violations++] = '\n';
        violations[n_violations] = '\0';
    }
    pthread_mutex_unlock(&violations_lock);
}

size_t
fake_violations(char *out, size_t size)
{
    pthread_mutex_lock(&violations_lock);
    size_t length = n_violations < size ? n_violations : size - 1;
    memcpy(out, violations, length);
    out[length] = '\0';
    n_violations = 0;
    pthread_mutex_unlock(&violations_lock);
    return length;
}
