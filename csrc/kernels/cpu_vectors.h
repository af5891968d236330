/* Vector instructions of some processors that no compiler generates from plain
 * C.
 *
 * Each function processes as many elements as it can, from the first on, and
 * returns their number: 0 on other processors. The caller processes the rest.
 * No byte of a bitmap is read unless it holds one of the bits.
 */
#ifndef AD_KERNELS_CPU_VECTORS_H
#define AD_KERNELS_CPU_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Unpacks bits [at, at + n) to bytes of 0 or 1. */
int64_t ad_vector_unpack(const unsigned char *bits, int64_t at,
                         unsigned char *bytes, int64_t n);

/* Packs bytes to bits: a bit is set if the byte is not 0; with `flip`, if it
 * is 0. Returns a multiple of 8. */
int64_t ad_vector_pack(const unsigned char *bytes, unsigned char *bits,
                       int64_t n, bool flip);

/* Copies bits [from, from + n) to `target`, from its first bit on. Returns a
 * multiple of 8. */
int64_t ad_vector_copy_bits(const unsigned char *source, int64_t from,
                            unsigned char *target, int64_t n);

/* Adds the number of set bits in n words to *total. */
int64_t ad_vector_count_bits(const uint64_t *words, int64_t n, int64_t *total);

/* Fills null elements of `size` bytes: 1, 2, 4 or 8. Elements whose bit is set
 * are copied from `from`, which may be `to` itself; the others become `value`,
 * in which a shorter value is repeated. */
int64_t ad_vector_fill(const unsigned char *bits, int64_t at,
                       const unsigned char *from, unsigned char *to, int64_t n,
                       int64_t size, uint64_t value);

/* Interleaves elements of 1, 2 or 4 bytes of `a` and `b`; returns the number
 * of elements of each. */
int64_t ad_vector_zip(const char *a, const char *b, int64_t n, int64_t size,
                      char *to);

/* Copies every second element, of 1, 2, 4 or 8 bytes, starting with the first.
 * Nothing after the last copied element is read. */
int64_t ad_vector_take_every_second(const char *from, char *to, int64_t n,
                                    int64_t size);

#endif /* AD_KERNELS_CPU_VECTORS_H */
