/* Finding and loading backends; the slots that a backend leaves out. */

#include "device/backend.h"

#include <pthread.h>
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "base/process.h"
#include "check.h"
#include "order/device_owner.h"
#include "order/streams.h"
#include "order/sync.h"
#include "mock_backend.h"
#include "stream_refs.h"

static void
test_is_never_null(void)
{
    ad_error err;
    const struct ad_backend *backend;
    int64_t n;
    const int32_t types[] = {0, -1, 99, 1 << 30, 7};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        CHECK(ad_backend_for(types[i]) != NULL);
        CHECK(!ad_backend_is_there(types[i]));
        CHECK(!ad_backend_has_events(types[i]));
        CHECK_INT(ad_backend_open(types[i], &backend, &err), AD_ERR_EXCHANGE);
        CHECK_STR(err.reason, "runtime");
        CHECK_HAS(err.message, "is carried as data; no runtime for it");
        CHECK_HAS(err.hint, "arrowdev.register_backend()");
        CHECK(err.has_device && err.device.type == types[i]);
        CHECK_INT(ad_backend_for(types[i])->count(&n, &err), AD_ERR_EXCHANGE);
    }
}

static void
test_loads_once_and_only_when_needed(void)
{
    const struct ad_backend *backend;
    mock_reset();
    CHECK(ad_backend_for(IN_ORDER) == ad_backend_for(PINNED));
    CHECK(ad_backend_has_events(IN_ORDER));
    CHECK_INT(mock_count().loads, 0);
    CHECK_INT(ad_backend_open(PINNED, &backend, NULL), AD_OK);
    CHECK(backend == ad_backend_for(IN_ORDER));
    CHECK_INT(ad_backend_open(IN_ORDER, &backend, NULL), AD_OK);
    CHECK(ad_backend_is_there(IN_ORDER));
    CHECK_INT(mock_count().loads, 1);
}

static void
test_failed_load_keeps_its_reason(void)
{
    const struct ad_backend *backend;
    mock_reset();
    for (int i = 0; i < 3; i++) {
        ad_error err;
        CHECK_INT(ad_backend_open(BROKEN, &backend, &err), AD_ERR_EXCHANGE);
        CHECK_STR(err.reason, "runtime");
        CHECK_HAS(err.message, "libmock.so is not there");
        CHECK_STR(err.hint, "install it");
        CHECK_INT(err.device.type, BROKEN);
    }
    CHECK_INT(ad_backend_open(BROKEN, &backend, NULL), AD_ERR_EXCHANGE);
    CHECK(!ad_backend_is_there(BROKEN));
    CHECK_INT(mock_count().loads, 1);
}

static void
check_refused(ad_status status, const ad_error *err, const char *reason,
              const char *what)
{
    CHECK_INT(status, AD_ERR_EXCHANGE);
    CHECK_STR(err->reason, reason);
    CHECK_HAS(err->message, what);
    CHECK(err->has_device);
}

/* Every slot that `type` leaves out refuses; `text` is in each message. */
static void
check_defaults(int32_t type, const char *text)
{
    const struct ad_backend *b = ad_backend_for(type);
    ad_context context = {{type, 0}, NULL};
    ad_stream stream = {5};
    ad_event event = {NULL};
    ad_block_copy copy = {.height = 1};
    ad_launch launch = {.length = 1};
    ad_memory_info info;
    ad_context where;
    ad_error err;
    void *data;
    bool flag = true;
    check_refused(b->classify(NULL, context, &info, &err), &err, "runtime",
                  text);
    check_refused(b->allocate(context, stream, 8, &data, &err), &err,
                  "runtime", text);
    check_refused(b->copy(context, stream, &copy, &err), &err, "runtime",
                  text);
    check_refused(b->launch(context, stream, &launch, &err), &err, "kernel",
                  text);
    check_refused(b->stream_context(stream, context, &where, &err), &err,
                  "runtime", text);
    check_refused(b->stream_create(context, &stream, &err), &err, "runtime",
                  text);
    check_refused(b->stream_wait(context, stream, event, &err), &err,
                  "runtime", text);
    check_refused(b->event_record(context, stream, &event, &err), &err,
                  "runtime", text);
    check_refused(b->event_query(context, event, &flag, &err), &err, "runtime",
                  text);
    check_refused(b->event_synchronize(context, event, &err), &err, "runtime",
                  text);
    CHECK_INT(b->stream_is_capturing(context, stream, &flag, &err), AD_OK);
    CHECK(!flag);
    b->deallocate(context, stream, NULL, 8);
    b->stream_destroy(context, stream);
    b->event_destroy(context, event);
    CHECK(b->claims_event(&event));
}

static void
test_slots_left_out_refuse(void)
{
    check_defaults(BARE, "the bare runtime cannot ");
    CHECK(!ad_backend_has_events(BARE));
}

static void
test_stand_in_refuses(void)
{
    ad_error err;
    ad_context context;
    char text[32];
    const struct ad_backend *b = ad_backend_for(7);
    check_defaults(7, "memory on vulkan:0 is carried as data");
    check_refused(b->primary_context((ad_device){7, 0}, &context, &err), &err,
                  "runtime", "vulkan:0");
    check_refused(b->synchronize((ad_context){{7, 0}, NULL}, &err), &err,
                  "runtime", "vulkan:0");
    CHECK_INT(b->load(&err), AD_ERR_EXCHANGE);
    CHECK_INT(b->describe(text, sizeof(text), &err), AD_ERR_EXCHANGE);
    CHECK_INT(b->device_name(0, text, sizeof(text), &err), AD_ERR_EXCHANGE);
}

static void
test_require_host(void)
{
    ad_error err;
    CHECK_INT(ad_require_host(AD_CPU, &err), AD_OK);
    CHECK_INT(ad_require_host((ad_device){PINNED, 0}, &err), AD_OK);
    check_refused(ad_require_host((ad_device){IN_ORDER, 1}, &err), &err,
                  "device", "memory on cuda:1 cannot be read by the host");
    check_refused(ad_require_host((ad_device){7, 0}, &err), &err, "device",
                  "memory on vulkan:0 is carried as data");
}

static void
test_device_error_carries_the_code(void)
{
    ad_error err;
    ad_device device = {IN_ORDER, 0};
    CHECK_INT(ad_fail_device(&err, device, "cuX", 7, "CUDA_ERROR_Y", "hint"),
              AD_ERR_DEVICE);
    CHECK_STR(err.message, "cuX on cuda:0 failed: CUDA_ERROR_Y (7)");
    CHECK_INT(err.code, 7);
    CHECK_STR(err.hint, "hint");
    CHECK_INT(ad_fail_device(&err, device, "cuX", 7, NULL, NULL),
              AD_ERR_DEVICE);
    CHECK_HAS(err.message, "without a name");
    CHECK_INT(ad_fail_device(NULL, device, "cuX", 7, NULL, NULL),
              AD_ERR_DEVICE);
}

static void
test_list_of_backends(void)
{
    size_t n;
    const struct ad_backend *const *all = ad_backends(&n);
    CHECK_INT(n, 5);
    CHECK_STR(all[0]->name, "inorder");
    CHECK(all[0] == ad_backend_for(IN_ORDER));
}

/* --- backends that are registered ----------------------------------------- */

enum {
    GUEST = 7 /* VULKAN */
};

static bool guest_is_there;

static ad_status
guest_load(ad_error *err)
{
    return guest_is_there ? AD_OK
                          : ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                                    "the guest is not there");
}

static ad_status
guest_count(int64_t *out, ad_error *err)
{
    *out = 1;
    return AD_OK;
}

static const struct ad_backend guest = {
    .name = "guest",
    .device_types = (const int32_t[]){GUEST, 0},
    .load = guest_load,
    .count = guest_count,
};

static void
test_registered_backend(void)
{
    ad_error err;
    const struct ad_backend *backend;
    size_t before, n;
    const struct ad_backend *const *all = ad_backends(&before);
    CHECK(!ad_backend_is_there(GUEST)); /* not kept: none was there */
    CHECK_INT(ad_backend_register(&guest, &err), AD_OK);
    CHECK(all == ad_backends(&n));
    CHECK_INT(n, before + 1);
    CHECK(all[before] == ad_backend_for(GUEST));
    CHECK_INT(ad_backend_open(GUEST, &backend, &err), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "the guest is not there");
    guest_is_there = true;
    CHECK_INT(ad_backend_open(GUEST, &backend, &err), AD_ERR_EXCHANGE);
    ad_backend_retry(GUEST);
    CHECK_INT(ad_backend_open(GUEST, &backend, &err), AD_OK);
    CHECK(backend == all[before]);
    ad_backends(&n);
    CHECK_INT(n, before + 1);
}

static void
test_device_types_that_cannot_be_registered(void)
{
    static const struct {
        int32_t types[3];
        const char *message;
    } cases[] = {
        {{IN_ORDER, 0},
         "the backend other cannot serve cuda: its backend is "
         "inorder"},
        {{11, PINNED, 0}, "cannot serve cuda_host: its backend is inorder"},
        {{AD_N_DEVICE_TYPES, 0}, "there is no such type"},
        {{-3, 0}, "there is no such type"},
    };
    size_t before, n;
    ad_backends(&before);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_error err;
        struct ad_backend other = guest;
        other.name = "other";
        other.device_types = cases[i].types;
        CHECK_INT(ad_backend_register(&other, &err), AD_ERR_EXCHANGE);
        CHECK_STR(err.reason, "runtime");
        CHECK_HAS(err.message, cases[i].message);
        CHECK_HAS(err.hint, "one backend");
    }
    ad_backends(&n);
    CHECK_INT(n, before);
    CHECK(!ad_backend_is_there(11));
}

/* --- threads and forks ------------------------------------------------------ */

static void *
open_queues(void *unused)
{
    const struct ad_backend *backend;
    CHECK_INT(ad_backend_open(QUEUES, &backend, NULL), AD_OK);
    return unused;
}

static void
test_threads_load_once(void)
{
    pthread_t threads[8];
    mock_reset();
    for (int i = 0; i < 8; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, open_queues, NULL), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(mock_count().loads, 1);
}

#ifndef _WIN32

/* The status with which a forked child that ran `body` ended. */
static int
in_child(void (*body)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static ad_sync *inherited;
static ad_owner *inherited_owner;

static void
count_release(ad_owner *owner)
{
    (void)owner;
    fprintf(stderr, "memory of the parent was released\n");
    _exit(3);
}

static const ad_owner_ops count_release_ops = {.destroy = count_release,
                                               .name = "test"};

static void
child_refuses(void)
{
    ad_error err;
    const struct ad_backend *backend;
    ad_stream_ref stream;
    bool flag;
    long before = mock_count().events_destroyed;
    CHECK(ad_backend_is_forked(IN_ORDER));
    CHECK(!ad_backend_is_there(IN_ORDER));
    CHECK_INT(ad_backend_open(IN_ORDER, &backend, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    CHECK_HAS(err.message, "forked");
    CHECK_HAS(err.hint, "spawn");
    CHECK_INT(ad_stream_own((ad_context){{IN_ORDER, 0}, NULL}, AD_USE_WORK,
                            &stream, &err),
              AD_ERR_EXCHANGE);
    CHECK_INT(ad_sync_query(inherited, &flag, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    CHECK_INT(ad_sync_wait(inherited, "a test", &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    ad_sync_unref(inherited);
    CHECK_INT(mock_count().events_destroyed, before);
    ad_owner_unref(inherited_owner);
    /* One that the parent had not loaded is as good as new. */
    CHECK(!ad_backend_is_forked(CLAIMS));
    CHECK_INT(ad_backend_open(CLAIMS, &backend, NULL), AD_OK);
    /* A failed load stays one. */
    CHECK_INT(ad_backend_open(BROKEN, &backend, &err), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "libmock.so is not there");
}

static void
test_forked_child_refuses_and_drops(void)
{
    ad_owner inner;
    ad_context context = {{IN_ORDER, 0}, (void *)0x1000};
    mock_reset();
    ad_owner_init(&inner, &count_release_ops);
    unsigned generation = ad_process_generation();
    CHECK_INT(ad_sync_record(ON_OF(context, ((ad_stream){7}), NULL),
                             &inherited, NULL),
              AD_OK);
    CHECK_INT(
        ad_device_owner_new(&inner, context, NULL, &inherited_owner, NULL),
        AD_OK);
    CHECK_INT(ad_owner_record_stream(inherited_owner,
                                     ON_OF(context, ((ad_stream){7}), NULL),
                                     NULL),
              AD_OK);
    CHECK_INT(in_child(child_refuses), 0);
    CHECK_INT(ad_process_generation(), generation);
    CHECK(ad_backend_is_there(IN_ORDER));
    ad_sync_unref(inherited);
    free(inherited_owner); /* its memory is on this stack */
}

#endif

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_is_never_null),
        CHECK_TEST(test_loads_once_and_only_when_needed),
        CHECK_TEST(test_failed_load_keeps_its_reason),
        CHECK_TEST(test_slots_left_out_refuse),
        CHECK_TEST(test_stand_in_refuses),
        CHECK_TEST(test_require_host),
        CHECK_TEST(test_device_error_carries_the_code),
        CHECK_TEST(test_list_of_backends),
        CHECK_TEST(test_registered_backend),
        CHECK_TEST(test_device_types_that_cannot_be_registered),
        CHECK_TEST(test_threads_load_once),
#ifndef _WIN32
        CHECK_TEST(test_forked_child_refuses_and_drops),
#endif
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
