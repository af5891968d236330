/* DLPack 1.3: the structs in capsules, and the C exchange API. ABI facts. The
 * names have the prefix ad_dl_, so that the real header can be included too;
 * tests/project/test_abi.py compares the two.
 */
#ifndef AD_ABI_DLPACK_H
#define AD_ABI_DLPACK_H

#include <stdint.h>

#define AD_DL_MAJOR 1
#define AD_DL_MINOR 3

#define AD_DL_FLAG_READ_ONLY (1ULL << 0)
#define AD_DL_FLAG_IS_COPIED (1ULL << 1)
#define AD_DL_FLAG_SUBBYTE_PADDED (1ULL << 2)

enum ad_dl_type_code {
    AD_DL_INT = 0,
    AD_DL_UINT = 1,
    AD_DL_FLOAT = 2,
    AD_DL_OPAQUE = 3,
    AD_DL_BFLOAT = 4,
    AD_DL_COMPLEX = 5,
    AD_DL_BOOL = 6,
    AD_DL_FLOAT8_E3M4 = 7,
    AD_DL_FLOAT8_E4M3 = 8,
    AD_DL_FLOAT8_E4M3B11FNUZ = 9,
    AD_DL_FLOAT8_E4M3FN = 10,
    AD_DL_FLOAT8_E4M3FNUZ = 11,
    AD_DL_FLOAT8_E5M2 = 12,
    AD_DL_FLOAT8_E5M2FNUZ = 13,
    AD_DL_FLOAT8_E8M0FNU = 14,
    AD_DL_FLOAT6_E2M3FN = 15,
    AD_DL_FLOAT6_E3M2FN = 16,
    AD_DL_FLOAT4_E2M1FN = 17
};

typedef struct ad_dl_version {
    uint32_t major;
    uint32_t minor;
} ad_dl_version;

typedef struct ad_dl_device {
    int32_t device_type;
    int32_t device_id;
} ad_dl_device;

typedef struct ad_dl_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} ad_dl_dtype;

typedef struct ad_dl_tensor {
    void *data;
    ad_dl_device device;
    int32_t ndim;
    ad_dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} ad_dl_tensor;

typedef struct ad_dl_managed {
    ad_dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct ad_dl_managed *self);
} ad_dl_managed;

typedef struct ad_dl_managed_versioned {
    ad_dl_version version;
    void *manager_ctx;
    void (*deleter)(struct ad_dl_managed_versioned *self);
    uint64_t flags;
    ad_dl_tensor dl_tensor;
} ad_dl_managed_versioned;

typedef struct ad_dl_exchange_header {
    ad_dl_version version;
    struct ad_dl_exchange_header *prev_api;
} ad_dl_exchange_header;

typedef int (*ad_dl_allocator_fn)(
    ad_dl_tensor *prototype, ad_dl_managed_versioned **out, void *error_ctx,
    void (*set_error)(void *error_ctx, const char *kind, const char *message));
typedef int (*ad_dl_from_py_fn)(void *py_object,
                                ad_dl_managed_versioned **out);
typedef int (*ad_dl_to_py_fn)(ad_dl_managed_versioned *tensor,
                              void **out_py_object);
typedef int (*ad_dl_tensor_from_py_fn)(void *py_object, ad_dl_tensor *out);
typedef int (*ad_dl_current_stream_fn)(int32_t device_type, int32_t device_id,
                                       void **out_stream);

typedef struct ad_dl_exchange_api {
    ad_dl_exchange_header header;
    ad_dl_allocator_fn managed_tensor_allocator;
    ad_dl_from_py_fn managed_tensor_from_py_object_no_sync;
    ad_dl_to_py_fn managed_tensor_to_py_object_no_sync;
    ad_dl_tensor_from_py_fn dltensor_from_py_object_no_sync; /* optional */
    ad_dl_current_stream_fn current_work_stream;
} ad_dl_exchange_api;

#endif /* AD_ABI_DLPACK_H */
