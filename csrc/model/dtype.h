/* Element types of tensors: one table (dtypes.def), read in every direction.
 */
#ifndef AD_MODEL_DTYPE_H
#define AD_MODEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/dlpack.h"
#include "base/status.h"

typedef enum ad_dtype_extension {
    AD_DTYPE_NONE,  /* the Arrow format says it all */
    AD_DTYPE_BOOL8, /* arrow.bool8 over int8 */
    AD_DTYPE_DLPACK /* arrowdev.dlpack over fixed-width storage */
} ad_dtype_extension;

typedef struct ad_dtype_info {
    const char *name;
    ad_dl_dtype dtype; /* one lane */
    const char *arrow; /* storage format, "" when there is none per element */
    ad_dtype_extension extension;
    const char *typestr; /* kind and size, without byte order; or "" */
    const char *buffer;  /* PEP 3118 code in standard size; or "" */
} ad_dtype_info;

/* Row of a DLPack type, any number of lanes; NULL for types that the table
 * does not have. */
const ad_dtype_info *ad_dtype_find(ad_dl_dtype dtype);

/* Row whose storage in Arrow is `format` with no extension; or NULL. */
const ad_dtype_info *ad_dtype_by_format(const char *format);

/* What an array interface or a buffer says of its elements. */
typedef struct ad_element {
    ad_dl_dtype dtype;
    bool is_swapped;  /* bytes are in the other order than this machine's */
    const char *time; /* datetime64, timedelta64: Arrow's format for them, of
                         which NaT is a null; the dtype is int64. Or NULL */
} ad_element;

/* Read an array interface's typestr ("<f4") or a buffer format ("<f", "l",
 * NULL = "B"). Types that have no equivalent, units of time that Arrow has
 * not, structured and object types fail with AD_ERR_EXCHANGE, text that is no
 * such string with AD_ERR_VALUE. `itemsize` is the producer's and must
 * agree. */
AD_MUST_CHECK ad_status ad_dtype_from_typestr(const char *typestr,
                                              ad_element *out, ad_error *err);
AD_MUST_CHECK ad_status ad_dtype_from_buffer(const char *format,
                                             int64_t itemsize, ad_element *out,
                                             ad_error *err);

/* AD_ERR_EXCHANGE for elements that have to be looked at one by one, to be
 * swapped or for NaT, by who does not; `why` ends the message: "they may lie
 * on a device". */
AD_MUST_CHECK ad_status ad_element_require_plain(const ad_element *element,
                                                 const char *why,
                                                 ad_error *err);

#define AD_DTYPE_NAME_SIZE 40

/* Write "float32", "float32x4" or "dlpack(code=77, bits=3, lanes=1)" into
 * `buffer` (AD_DTYPE_NAME_SIZE bytes) and return it. */
const char *ad_dtype_format(ad_dl_dtype dtype, char *buffer);

/* Read what ad_dtype_format writes. False for any other text. */
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
