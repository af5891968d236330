/* Strided tensors for tests, and a naive indexer. For the tests of tensors,
 * copies and the bridge.
 */
#ifndef AD_TESTS_STRIDED_H
#define AD_TESTS_STRIDED_H

#include "check.h"
#include "model/tensor.h"

#define U8 ((ad_dl_dtype){AD_DL_UINT, 8, 1})
#define I16 ((ad_dl_dtype){AD_DL_INT, 16, 1})
#define I64 ((ad_dl_dtype){AD_DL_INT, 64, 1})
#define F32 ((ad_dl_dtype){AD_DL_FLOAT, 32, 1})
#define BOOL ((ad_dl_dtype){AD_DL_BOOL, 8, 1})
#define C64 ((ad_dl_dtype){AD_DL_COMPLEX, 64, 1})
#define C128 ((ad_dl_dtype){AD_DL_COMPLEX, 128, 1})
#define BF16 ((ad_dl_dtype){AD_DL_BFLOAT, 16, 1})
#define FP4 ((ad_dl_dtype){AD_DL_FLOAT4_E2M1FN, 4, 1})
#define FP4X2 ((ad_dl_dtype){AD_DL_FLOAT4_E2M1FN, 4, 2})
#define FP6 ((ad_dl_dtype){AD_DL_FLOAT6_E2M3FN, 6, 1})
#define F32X3 ((ad_dl_dtype){AD_DL_FLOAT, 32, 3})

/* The value of each byte depends on its address. */
static unsigned char strided_memory[1 << 16];

#define STRIDED_BASE (strided_memory + (1 << 15))

static inline void
strided_prepare(void)
{
    for (size_t i = 0; i < sizeof(strided_memory); i++) {
        strided_memory[i] = (unsigned char)(i * 167 + i / 256 * 13);
    }
}

typedef struct strided_shape {
    int32_t ndim;
    int64_t extent[6];
} strided_shape;

static const strided_shape strided_shapes[] = {
    {0, {0}},       {1, {0}},          {1, {1}},          {1, {7}},
    {2, {3, 4}},    {2, {1, 5}},       {2, {5, 1}},       {2, {0, 3}},
    {2, {3, 0}},    {3, {2, 3, 4}},    {3, {2, 1, 4}},    {3, {1, 1, 1}},
    {3, {0, 0, 2}}, {4, {2, 3, 2, 3}}, {4, {3, 1, 2, 1}}, {5, {2, 2, 3, 1, 2}},
};

#define N_STRIDED_SHAPES (sizeof(strided_shapes) / sizeof(strided_shapes[0]))

/* Layouts of the elements. */
enum {
    STRIDED_C,
    STRIDED_F,
    STRIDED_ROWS_F,  /* dimension 0 outermost, the others reversed */
    STRIDED_ROTATED, /* dimension 0 outermost, the others rotated */
    STRIDED_STEP,    /* every second element of a C-contiguous block */
    STRIDED_PITCH,   /* rows with a gap after each */
    STRIDED_BACK,    /* the last dimension backwards */
    STRIDED_BACK_0,  /* the first dimension backwards */
    STRIDED_SPREAD,  /* the last dimension repeated */
    STRIDED_SPREAD_0,
    N_STRIDED_MODES
};

static inline void
strided_order(int mode, int32_t ndim, int32_t *order)
{
    for (int32_t i = 0; i < ndim; i++) {
        order[i] = i;
        if (mode == STRIDED_F) {
            order[i] = ndim - 1 - i;
        } else if (mode == STRIDED_ROWS_F && i > 0) {
            order[i] = ndim - i;
        } else if (mode == STRIDED_ROTATED && i > 0) {
            order[i] = i + 1 < ndim ? i + 1 : 1;
        }
    }
}

static inline void
strided_strides(int mode, int32_t ndim, const int64_t *shape, int64_t *out)
{
    int32_t order[6];
    int64_t stride = mode == STRIDED_STEP ? 2 : 1;
    strided_order(mode, ndim, order);
    for (int32_t k = ndim - 1; k >= 0; k--) {
        out[order[k]] = stride;
        stride *= shape[order[k]] > 0 ? shape[order[k]] : 1;
        if (mode == STRIDED_PITCH && k == 1) {
            stride += 3;
        }
    }
    if (ndim > 0 && (mode == STRIDED_BACK || mode == STRIDED_SPREAD)) {
        out[ndim - 1] = mode == STRIDED_BACK ? -out[ndim - 1] : 0;
    }
    if (ndim > 0 && (mode == STRIDED_BACK_0 || mode == STRIDED_SPREAD_0)) {
        out[0] = mode == STRIDED_BACK_0 ? -out[0] : 0;
    }
}

static inline void
strided_make(const strided_shape *shape, int mode, ad_dl_dtype dtype,
             ad_tensor_value *out)
{
    int64_t strides[6];
    ad_error err;
    strided_strides(mode, shape->ndim, shape->extent, strides);
    ad_tensor_descriptor descriptor = {
        .data = STRIDED_BASE,
        .dtype = dtype,
        .ndim = shape->ndim,
        .memory.device = AD_CPU,
        .shape = shape->extent,
        .strides = strides,
    };
    CHECK_INT(ad_tensor_check(&descriptor, "the test", out, &err), AD_OK);
}

/* Advances to the next index in C order; false after the last one. */
static inline bool
strided_next(const ad_tensor *tensor, int64_t *index)
{
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (++index[i] < tensor->shape[i]) {
            return true;
        }
        index[i] = 0;
    }
    return false;
}

static inline const unsigned char *
strided_at(const ad_tensor *tensor, const int64_t *index)
{
    int64_t element = 0;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        element += index[i] * tensor->strides[i];
    }
    return (const unsigned char *)ad_tensor_address(tensor) +
           element * (ad_dtype_bits(tensor->dtype) / 8);
}

/* Checks that both have the same shape, and the same bytes at every index. */
static inline void
strided_check_equal(const ad_tensor *a, const ad_tensor *b)
{
    int64_t index[AD_MAX_NDIM] = {0};
    CHECK_INT(a->ndim, b->ndim);
    CHECK(ad_dtype_equal(a->dtype, b->dtype));
    for (int32_t i = 0; i < a->ndim; i++) {
        CHECK_INT(a->shape[i], b->shape[i]);
    }
    if (ad_tensor_size(a) == 0) {
        CHECK(a->data == NULL && b->data == NULL);
        return;
    }
    do {
        CHECK(memcmp(strided_at(a, index), strided_at(b, index),
                     ad_dtype_bits(a->dtype) / 8) == 0);
    } while (strided_next(a, index));
}

#endif /* AD_TESTS_STRIDED_H */
