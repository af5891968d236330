#include "abi/arrow_c.h"
#include "base/owner.h"
#include "device/backend.h"
#include "strided.h"

static ad_error err;

/* --- descriptors --------------------------------------------------------- */

static ad_status
check_descriptor(const ad_tensor_descriptor *descriptor, ad_tensor_value *out)
{
    memset(&err, 0, sizeof(err));
    return ad_tensor_check(descriptor, "DLTensor", out, &err);
}

static void
check_refused(const ad_tensor_descriptor *descriptor, const char *message)
{
    ad_tensor_value out;
    CHECK_INT(check_descriptor(descriptor, &out), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "DLTensor");
    CHECK_HAS(err.message, message);
    CHECK(err.reason[0] != '\0');
}

static ad_tensor_descriptor
descriptor_of(ad_dl_dtype dtype, int32_t ndim, const int64_t *shape,
              const int64_t *strides)
{
    return (ad_tensor_descriptor){
        .data = STRIDED_BASE,
        .dtype = dtype,
        .ndim = ndim,
        .memory.device = AD_CPU,
        .shape = shape,
        .strides = strides,
    };
}

static void
test_invalid_types_are_refused(void)
{
    int64_t shape[] = {4};
    ad_tensor_descriptor descriptor = descriptor_of(I64, 1, shape, NULL);
    descriptor.dtype.lanes = 0;
    check_refused(&descriptor, "64 bits and 0 lanes");
    descriptor.dtype = (ad_dl_dtype){AD_DL_INT, 0, 1};
    check_refused(&descriptor, "0 bits and 1 lanes");
    descriptor.dtype = (ad_dl_dtype){AD_DL_BOOL, 1, 1};
    check_refused(&descriptor, "bool type of 1 bits");
    descriptor.dtype = (ad_dl_dtype){AD_DL_BOOL, 16, 1};
    check_refused(&descriptor, "bool type of 16 bits");
    CHECK_STR(err.reason, "dtype");
}

static void
test_invalid_dimensions_are_refused(void)
{
    int64_t shape[AD_MAX_NDIM + 1];
    for (int i = 0; i <= AD_MAX_NDIM; i++) {
        shape[i] = 1;
    }
    ad_tensor_descriptor descriptor = descriptor_of(I64, -1, shape, NULL);
    check_refused(&descriptor, "-1 dimensions");
    descriptor.ndim = INT32_MIN;
    check_refused(&descriptor, "dimensions");
    descriptor.ndim = 1000000;
    check_refused(&descriptor, "1000000 dimensions; at most 64");
    CHECK_STR(err.reason, "ndim");
    descriptor.ndim = AD_MAX_NDIM + 1;
    check_refused(&descriptor, "65 dimensions");
    descriptor.ndim = 1;
    descriptor.shape = NULL;
    check_refused(&descriptor, "no shape");
    shape[0] = -1;
    descriptor.shape = shape;
    check_refused(&descriptor, "shape[0] = -1");
    descriptor.ndim = 3;
    shape[0] = 2;
    shape[2] = INT64_MIN;
    check_refused(&descriptor, "shape[2] = -9223372036854775808");
}

static void
test_overflowing_sizes_are_refused(void)
{
    int64_t huge = INT64_MAX / 4;
    int64_t shape[] = {huge, 8};
    ad_tensor_value out;
    ad_tensor_descriptor descriptor = descriptor_of(U8, 2, shape, NULL);
    check_refused(&descriptor, "overflows");
    descriptor = descriptor_of(I64, 1, shape, NULL);
    check_refused(&descriptor, "overflows");
    descriptor = descriptor_of(F32X3, 1, shape, NULL);
    check_refused(&descriptor, "overflows");
    /* An extent of 0 makes the tensor empty, but its strides would still
     * overflow. */
    int64_t hidden[] = {huge, 8, 0};
    descriptor = descriptor_of(U8, 3, hidden, NULL);
    check_refused(&descriptor, "overflows");
    /* Half a byte per element: the number of bits overflows. The number of
     * bytes fits 63 bits, but not the address space after the data. */
    shape[0] = INT64_MAX;
    descriptor = descriptor_of(FP4, 1, shape, NULL);
    descriptor.data = (void *)8;
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK_INT(ad_tensor_nbytes(&out.tensor), INT64_MAX / 2 + 1);
    descriptor.data = (void *)(UINTPTR_MAX - 8);
    check_refused(&descriptor, "outside the address space");
}

static void
test_overflowing_strides_are_refused(void)
{
    int64_t shape[] = {3, 2};
    int64_t strides[] = {INT64_MIN, 1};
    ad_tensor_value out;
    ad_tensor_descriptor descriptor = descriptor_of(I64, 2, shape, strides);
    check_refused(&descriptor, "extent overflows");
    descriptor.ndim = 1;
    check_refused(&descriptor, "extent overflows");
    shape[0] = 2; /* (2 - 1) * INT64_MIN itself does not overflow */
    check_refused(&descriptor, "extent overflows");
    descriptor.dtype = U8;
    check_refused(&descriptor, "extent overflows");
    strides[0] = INT64_MAX;
    check_refused(&descriptor, "extent overflows");
    int64_t both[] = {INT64_MAX - 1, INT64_MAX - 1};
    descriptor = descriptor_of(U8, 2, shape, both);
    check_refused(&descriptor, "extent overflows");
    int64_t down[] = {INT64_MIN, -1};
    descriptor = descriptor_of(U8, 2, shape, down);
    check_refused(&descriptor, "extent overflows");
    /* Strides of extents of 1, and those of empty tensors that overflow, are
     * ignored. */
    shape[0] = 1;
    descriptor = descriptor_of(U8, 2, shape, (int64_t[]){INT64_MIN, 1});
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK_INT(out.tensor.strides[0], 2);
    shape[1] = 0;
    shape[0] = 3;
    descriptor = descriptor_of(U8, 2, shape, down);
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK_INT(out.tensor.strides[0], 1);
    CHECK(out.tensor.data == NULL);
}

/* The sum is an address, though no pointer may be moved by as much. */
static void
test_large_byte_offsets(void)
{
    int64_t shape[] = {2, 3};
    ad_tensor_value out;
    ad_tensor_descriptor descriptor = descriptor_of(I64, 2, shape, NULL);
    descriptor.data = (void *)16;
    descriptor.byte_offset = (uint64_t)1 << 63;
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK((uintptr_t)out.tensor.data == ((uintptr_t)1 << 63) + 16);
    descriptor.ndim = 1;
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK((uintptr_t)out.tensor.data == ((uintptr_t)1 << 63) + 16);
}

static void
test_wrapping_addresses_are_refused(void)
{
    int64_t shape[] = {16};
    int64_t back[] = {-1};
    ad_tensor_value out;
    ad_tensor_descriptor descriptor = descriptor_of(I64, 1, shape, back);
    descriptor.data = (void *)64;
    check_refused(&descriptor, "outside the address space");
    descriptor.data = (void *)120;
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    descriptor = descriptor_of(I64, 1, shape, NULL);
    descriptor.data = (void *)(UINTPTR_MAX - 100);
    check_refused(&descriptor, "outside the address space");
    descriptor.data = STRIDED_BASE;
    descriptor.byte_offset = UINT64_MAX - 8;
    check_refused(&descriptor, "outside the address space");
    descriptor.data = NULL;
    descriptor.byte_offset = 0;
    check_refused(&descriptor, "16 elements but no data");
    descriptor.ndim = 0;
    check_refused(&descriptor, "1 elements but no data");
    /* Handles: only the byte offset counts. */
    descriptor = descriptor_of(I64, 1, shape, back);
    descriptor.memory.device = (ad_device){ARROW_DEVICE_OPENCL, 0};
    descriptor.data = (void *)UINTPTR_MAX;
    check_refused(&descriptor, "outside the address space");
    descriptor.byte_offset = 120;
    CHECK_INT(check_descriptor(&descriptor, &out), AD_OK);
    CHECK(out.tensor.data == descriptor.data);
    CHECK_INT(out.tensor.byte_offset, 120);
    descriptor.byte_offset = (uint64_t)INT64_MAX;
    check_refused(&descriptor, "outside the address space");
}

/* --- copies -------------------------------------------------------------- */

static void
check_copy(const ad_tensor *source, char order)
{
    ad_tensor_value copy;
    CHECK_INT(ad_tensor_copy(source, order, &copy, &err), AD_OK);
    strided_check_equal(source, &copy.tensor);
    CHECK(ad_tensor_is_contiguous(&copy.tensor, order));
    CHECK_INT(copy.tensor.flags, AD_TENSOR_COPIED);
    CHECK(ad_device_equal(copy.tensor.memory.device, AD_CPU));
    ad_tensor_clear(&copy.tensor);
    CHECK(copy.tensor.memory.owner == NULL);
}

static void
test_copies_match_a_naive_indexer(void)
{
    static const ad_dl_dtype dtypes[] = {
        {AD_DL_UINT, 8, 1},  {AD_DL_INT, 16, 1},          {AD_DL_FLOAT, 32, 1},
        {AD_DL_INT, 64, 1},  {AD_DL_COMPLEX, 128, 1},     {AD_DL_FLOAT, 32, 3},
        {AD_DL_UINT, 24, 1}, {AD_DL_FLOAT4_E2M1FN, 4, 2},
    };
    for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
        for (size_t i = 0; i < N_STRIDED_SHAPES; i++) {
            for (int mode = 0; mode < N_STRIDED_MODES; mode++) {
                ad_tensor_value x;
                strided_make(&strided_shapes[i], mode, dtypes[k], &x);
                x.tensor.flags = AD_TENSOR_IMMUTABLE;
                x.tensor.memory.readonly = true;
                check_copy(&x.tensor, 'C');
                check_copy(&x.tensor, 'F');
            }
        }
    }
}

static void
test_copy_refuses_devices_and_streams(void)
{
    ad_tensor_value x, copy;
    unsigned char target[64];
    strided_make(&(strided_shape){1, {4}}, STRIDED_C, I64, &x);
    x.tensor.memory.device = (ad_device){ARROW_DEVICE_CUDA, 0};
    CHECK_INT(ad_tensor_copy(&x.tensor, 'C', &copy, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");
    CHECK_HAS(err.message, "memory on cuda:0 cannot be read by the host");
    CHECK(err.has_device);
    CHECK_INT(ad_tensor_copy_contiguous(&x.tensor, 'C', target, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");

    ad_sync *sync;
    x.tensor.memory.device = AD_CPU;
    CHECK_INT(ad_sync_new(AD_SYNC_STREAM, AD_CPU, NULL, NULL, &sync, &err),
              AD_OK);
    x.tensor.memory.sync = sync;
    CHECK_INT(ad_tensor_copy(&x.tensor, 'C', &copy, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    ad_tensor_clear(&x.tensor);

    x.tensor.memory.sync = NULL;
    for (long n = 1;; n++) {
        check_fail_nth(n);
        ad_status status = ad_tensor_copy(&x.tensor, 'C', &copy, &err);
        check_fail_nth(0);
        if (status == AD_OK) {
            CHECK_INT(n, 2);
            break;
        }
        CHECK_INT(status, AD_ERR_MEMORY);
    }
    ad_tensor_clear(&copy.tensor);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_invalid_types_are_refused),
        CHECK_TEST(test_invalid_dimensions_are_refused),
        CHECK_TEST(test_overflowing_sizes_are_refused),
        CHECK_TEST(test_overflowing_strides_are_refused),
        CHECK_TEST(test_large_byte_offsets),
        CHECK_TEST(test_wrapping_addresses_are_refused),
        CHECK_TEST(test_copies_match_a_naive_indexer),
        CHECK_TEST(test_copy_refuses_devices_and_streams),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
