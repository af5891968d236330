/* Backends of others: the table of arrowdev_backend.h behind struct ad_backend,
 * which stays free to change. A device type has one of them for the life of
 * the process. All states of a runtime (not loaded, failed, forked) are the
 * registry's.
 */
#ifndef AD_DEVICE_FOREIGN_H
#define AD_DEVICE_FOREIGN_H

#include "../../arrowdev/include/arrowdev_backend.h"
#include "base/status.h"

/* Check the table, copy it and register the copy. AD_ERR_VALUE for a table
 * that this version cannot use, AD_ERR_EXCHANGE with the reason "runtime"
 * where the type has a backend. With `again` it is no error that this very
 * table has been registered before. */
AD_MUST_CHECK ad_status ad_foreign_register(int32_t device_type,
                                            const arrowdev_backend *table,
                                            bool again, ad_error *err);

#endif /* AD_DEVICE_FOREIGN_H */
