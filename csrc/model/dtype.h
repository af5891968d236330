/* Element types of tensors, from one table (dtypes.def).
 */
#ifndef AD_MODEL_DTYPE_H
#define AD_MODEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/dlpack.h"
#include "base/status.h"

/* For the table: codes of the buffer protocol with 64 bits. */
#if __SIZEOF_LONG__ == 8
#define AD_BUFFER_INT64 "l"
#define AD_BUFFER_UINT64 "L"
#else
#define AD_BUFFER_INT64 "q"
#define AD_BUFFER_UINT64 "Q"
#endif

typedef enum ad_dtype_extension {
    AD_DTYPE_NONE,  /* the Arrow format is enough */
    AD_DTYPE_BOOL8, /* arrow.bool8 over int8 */
    AD_DTYPE_DLPACK /* arrowdev.dlpack over fixed-width storage */
} ad_dtype_extension;

typedef struct ad_dtype_info {
    const char *name;
    ad_dl_dtype dtype; /* one lane */
    const char *arrow; /* storage format; "" if elements have none of their
                          own */
    ad_dtype_extension extension;
    const char *typestr; /* kind and size, without byte order; or "" */
    const char *buffer;  /* native PEP 3118 code; or "" */
} ad_dtype_info;

/* Row of a DLPack type with any number of lanes; NULL for types that are not
 * in the table. */
const ad_dtype_info *ad_dtype_find(ad_dl_dtype dtype);

/* Row whose Arrow storage is `format` without an extension; or NULL. */
const ad_dtype_info *ad_dtype_by_format(const char *format);

/* Element type of an array interface or a buffer. */
typedef struct ad_element {
    ad_dl_dtype dtype;
    bool is_swapped;  /* the byte order is not this machine's */
    const char *time; /* datetime64, timedelta64: the Arrow format, in which
                         NaT is a null; the dtype is int64. Otherwise NULL */
} ad_element;

/* Parses the typestr of an array interface ("<f4") or the format of a buffer
 * ("<f", "l", NULL = "B"). AD_ERR_EXCHANGE for types without an equivalent,
 * units of time that Arrow does not have, and structured and object types;
 * AD_ERR_VALUE for text of another form. `itemsize` is the producer's and must
 * agree. */
AD_MUST_CHECK ad_status ad_dtype_from_typestr(const char *typestr,
                                              ad_element *out, ad_error *err);
AD_MUST_CHECK ad_status ad_dtype_from_buffer(const char *format,
                                             int64_t itemsize, ad_element *out,
                                             ad_error *err);

/* Fails with AD_ERR_EXCHANGE for elements that the caller would have to read
 * one by one, to swap their bytes or to find NaT. `why` ends the message:
 * "they may lie on a device". */
AD_MUST_CHECK ad_status ad_element_require_plain(const ad_element *element,
                                                 const char *why,
                                                 ad_error *err);

#define AD_DTYPE_NAME_SIZE 40

/* Writes "float32", "float32x4" or "dlpack(code=77, bits=3, lanes=1)" to
 * `buffer` (AD_DTYPE_NAME_SIZE bytes) and returns it. */
const char *ad_dtype_format(ad_dl_dtype dtype, char *buffer);

/* Parses the names that ad_dtype_format writes. False for any other text. */
bool ad_dtype_from_name(const char *name, ad_dl_dtype *out);

/* Bits of one element, lanes included; never 0 for a valid type. */
static inline uint32_t
ad_dtype_bits(ad_dl_dtype dtype)
{
    return (uint32_t)dtype.bits * dtype.lanes;
}

static inline bool
ad_dtype_equal(ad_dl_dtype a, ad_dl_dtype b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

#endif /* AD_MODEL_DTYPE_H */
