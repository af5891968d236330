/* share/: memory and its files, handed to other processes of this machine.
 *
 * The folder owns memory files, the mappings of them in this process, what of
 * devices was exported or opened, and the server, one thread that hands
 * descriptors to processes of the same user.
 * It knows nothing of types: the description of an array is text to it. Locks:
 * one for the list of mappings, one for what is published. No lock is held
 * while an owner is released. A forked child has no server.
 */

/* Memory files: memory with a descriptor, which another process can map. */
#ifndef AD_SHARE_MEMORY_FILE_H
#define AD_SHARE_MEMORY_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/owner.h"
#include "base/status.h"

/* A mapping of a memory file from its beginning. The owner of the memory in
 * it. The descriptors belong to it. */
typedef struct ad_mapping {
    ad_owner base;
    void *data; /* NULL if nbytes is 0 */
    size_t nbytes;
    int file;
    int connection; /* to the process that shares the file; or -1 */
    bool is_writable;
    unsigned generation;             /* see ad_process_generation() */
    struct ad_mapping *next, **link; /* in the list of mappings */
} ad_mapping;

/* Make a memory file of `nbytes` zeros, which nobody can shrink or grow, and
 * map it. MemoryError if there is no room. */
AD_MUST_CHECK ad_status ad_memory_file_new(size_t nbytes, ad_mapping **out,
                                           ad_error *err);

/* Map the first `nbytes` bytes of a file that another process has sent. Takes
 * over both descriptors, on failure too. ExchangeError, "share", if the file is
 * smaller, or if somebody could shrink it, so that a read would be a fault. */
AD_MUST_CHECK ad_status ad_memory_file_map(int file, size_t nbytes,
                                           bool is_writable, int connection,
                                           ad_mapping **out, ad_error *err);

/* The mapping in which these bytes lie, with a reference for the caller; NULL
 * if they lie in none. The caller keeps the bytes alive, which are one at
 * least. */
ad_mapping *ad_mapping_find(const void *data, size_t nbytes);

#endif /* AD_SHARE_MEMORY_FILE_H */
