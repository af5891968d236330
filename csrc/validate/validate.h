/* validate/: every row checked against the columnar format.
 *
 * Fixed-size values, strings, nested types, and notes on what is legal but
 * unusual. Assumes that model/ has checked the structure, believes nothing
 * that a buffer says, and reads device memory in pieces through copy/. Blocks
 * for the array's event. Any thread; no lock of its own.
 */

/* Do an array's buffers hold what the columnar format says they must?
 *
 * ad_array_validate looks at the structs alone; this looks at every row. The
 * structs say how long each buffer is, but for one: the data of strings are
 * believed to end where the last offset says, as the C data interface has no
 * other size for them.
 */
#ifndef AD_VALIDATE_VALIDATE_H
#define AD_VALIDATE_VALIDATE_H

#include "model/array.h"
#include "base/text.h"

/* Check the rows of the view, and all rows of everything below it:
 *   null_count against the bitmap; keys and entries of maps, and run ends,
 *   without nulls
 *   offsets: at least 0, without decrease, within the child
 *   list views: offset and size within the child, in null rows too
 *   unions: type ids of the schema; dense: offsets within the child, and
 *   without decrease per child
 *   run ends: at least 1, strictly increasing, the last one past the last row
 *   dictionary indices within the dictionary
 *   views: sizes, buffer numbers and offsets in range, prefix as in the
 *   buffer, inline values padded with zeros
 *   UTF-8 of strings
 *   decimals within their precision, dates in whole days, times within a day
 * The values of null rows are not looked at, but for offsets. AD_ERR_ARROW
 * with the path of the node; the message has the row and the value of the
 * first fault.
 *
 * Waits for the event, and blocks. Device memory that the host cannot reach
 * is read back in pieces of AD_PIECE bytes (but for bytes that no rule is
 * about); refused during graph capture. */
AD_MUST_CHECK ad_status ad_array_validate_full(const ad_array *array,
                                               ad_error *err);

/* What is unusual in the structs but legal, one line each. Reads no memory
 * of buffers. The array has been validated. */
AD_MUST_CHECK ad_status ad_array_notes(const ad_array *array, ad_text *out,
                                       ad_error *err);

#endif /* AD_VALIDATE_VALIDATE_H */
