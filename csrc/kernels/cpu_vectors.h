/* What some processors have instructions for that no compiler makes of plain C.
 *
 * Each function does as much as it can from the beginning, and returns how
 * much: 0 on other processors. The caller does the rest. No byte of a bitmap
 * is read that holds none of the bits.
 */
#ifndef AD_KERNELS_CPU_VECTORS_H
#define AD_KERNELS_CPU_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Bits [at, at + n) as bytes of 0 or 1. */
int64_t ad_vector_unpack(const unsigned char *bits, int64_t at,
                         unsigned char *bytes, int64_t n);

/* Bits that say which bytes are not 0; `flip`: which are. A multiple of 8. */
int64_t ad_vector_pack(const unsigned char *bytes, unsigned char *bits,
                       int64_t n, bool flip);

/* Bits [from, from + n) to a whole byte. A multiple of 8. */
int64_t ad_vector_copy_bits(const unsigned char *source, int64_t from,
                            unsigned char *target, int64_t n);

/* Add the number of bits that are set in n words to *total. */
int64_t ad_vector_count_bits(const uint64_t *words, int64_t n, int64_t *total);

/* Elements of `size` bytes, 1, 2, 4 or 8: those whose bit is set are taken from
 * `from`, which may be `to` itself; the others become `value`, in which a
 * shorter one is repeated. */
int64_t ad_vector_fill(const unsigned char *bits, int64_t at,
                       const unsigned char *from, unsigned char *to, int64_t n,
                       int64_t size, uint64_t value);

/* Elements of 1, 2 or 4 bytes of `a` and of `b` in turns; counts those of one
 * of them. */
int64_t ad_vector_zip(const char *a, const char *b, int64_t n, int64_t size,
                      char *to);

/* The first of each two elements of 1, 2, 4 or 8 bytes. What is behind the last
 * one that is taken is not read. */
int64_t ad_vector_take_every_second(const char *from, char *to, int64_t n,
                                    int64_t size);

#endif /* AD_KERNELS_CPU_VECTORS_H */
