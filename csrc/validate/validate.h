/* validate/: checks every row against the columnar format.
 *
 * Fixed-size values, strings, nested types, and notes on unusual but legal
 * structs. Assumes that model/ has checked the structure, trusts no buffer
 * contents, and reads device memory in pieces through copy/. Waits for the
 * array's event. Any thread; no lock of its own.
 */

/* Checks the buffers of an array against the columnar format.
 *
 * ad_array_validate() checks only the structs; ad_array_validate_full() checks
 * every row. The structs determine the size of each buffer but one: the data
 * of strings are assumed to end at the last offset, since the C data interface
 * has no other size for them.
 */
#ifndef AD_VALIDATE_VALIDATE_H
#define AD_VALIDATE_VALIDATE_H

#include "model/array.h"
#include "base/text.h"

/* Checks the rows of the view, and all rows of its descendants:
 *   null_count equals the nulls in the bitmap; keys and entries of maps, and
 *   run ends, have no nulls
 *   offsets: at least 0, not decreasing, within the child
 *   list views: offset and size within the child, in null rows too
 *   unions: type ids of the schema; dense: offsets within the child, and not
 *   decreasing per child
 *   run ends: at least 1, strictly increasing, the last one past the last row
 *   dictionary indices within the dictionary
 *   views: sizes, buffer numbers and offsets in range, prefix equal to the
 *   value's first bytes, inline values padded with zeros
 *   strings: valid UTF-8
 *   decimals within their precision, dates in whole days, times within a day
 * The values of null rows are not checked, except for offsets. AD_ERR_ARROW
 * has the path of the node; the message has the row and the value of the first
 * fault.
 *
 * Blocks, after waiting for the event. Device memory that the host cannot
 * access is read back in pieces of 1 MiB; bytes that no rule concerns
 * are not read. Fails during graph capture. */
AD_MUST_CHECK ad_status ad_array_validate_full(const ad_array *array,
                                               ad_error *err);

/* Checks what a row refers to, and nothing else: offsets, list views, type
 * ids, run ends, dictionary indices and views are within their buffers and
 * children. The structs have been checked and the host can read the memory
 * now. Without the GIL. */
AD_MUST_CHECK ad_status ad_array_validate_references(const ad_array *array,
                                                     ad_error *err);

/* Describes what is unusual but legal in the structs, one line each. Reads no
 * buffers. The array must have been validated. */
AD_MUST_CHECK ad_status ad_array_notes(const ad_array *array, ad_text *out,
                                       ad_error *err);

#endif /* AD_VALIDATE_VALIDATE_H */
