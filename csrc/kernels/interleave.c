#include "kernels/interleave.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/cpu_vectors.h"

/* Number of columns, or groups of columns, that are read together, so that a
 * cache line of the result is written once and not once per column. */
#define SIDE_BY_SIDE 16

/* Fewer columns than this are faster one by one. */
#define FEW 4

/* Rows of a tile, whose result stays in the nearest cache. */
#define TILE_ROWS 256

/* Columns of narrower elements are first interleaved to elements of this many
 * bytes. */
#define WIDE 8

static bool
is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* --- one column ---------------------------------------------------------- */

#define MOVE(NBYTES)                                                          \
    for (; n >= 4; n -= 4, source += 4 * from_step, target += 4 * to_step) {  \
        memcpy(target, source, NBYTES);                                       \
        memcpy(target + to_step, source + from_step, NBYTES);                 \
        memcpy(target + 2 * to_step, source + 2 * from_step, NBYTES);         \
        memcpy(target + 3 * to_step, source + 3 * from_step, NBYTES);         \
    }                                                                         \
    for (; n > 0; n--, source += from_step, target += to_step) {              \
        memcpy(target, source, NBYTES);                                       \
    }                                                                         \
    break

/* With a constant size memcpy is a load and a store. */
void
ad_move_elements(char *target, int64_t to_step, const char *source,
                 int64_t from_step, int64_t n, size_t size)
{
    if (from_step == (int64_t)size && to_step == (int64_t)size) {
        memcpy(target, source, (size_t)n * size);
        return;
    }
    if (from_step == 2 * to_step && to_step == (int64_t)size && size <= WIDE &&
        is_power_of_two(to_step)) {
        int64_t taken =
            ad_vector_take_every_second(source, target, n, to_step);
        source += taken * from_step;
        target += taken * to_step;
        n -= taken;
    }
    switch (size) {
        case 1:
            MOVE(1);
        case 2:
            MOVE(2);
        case 4:
            MOVE(4);
        case 8:
            MOVE(8);
        case 16:
            MOVE(16);
        default:
            MOVE(size);
    }
}

/* --- any number of columns ----------------------------------------------- */

#define GATHER(NBYTES)                                                        \
    for (int64_t i = 0; i < n_rows; i++) {                                    \
        for (int64_t k = 0; k < n; k++) {                                     \
            memcpy(target + i * pitch + k * (NBYTES),                         \
                   columns[k] + i * (NBYTES), NBYTES);                        \
        }                                                                     \
    }                                                                         \
    break

/* With a constant size memcpy is a load and a store. */
static void
gather(const char *const *columns, int64_t n, int64_t n_rows, int64_t size,
       char *target, int64_t pitch)
{
    if (n == 1) {
        ad_move_elements(target, pitch, columns[0], size, n_rows,
                         (size_t)size);
        return;
    }
    switch (size) {
        case 1:
            GATHER(1);
        case 2:
            GATHER(2);
        case 4:
            GATHER(4);
        case 8:
            GATHER(8);
        case 16:
            GATHER(16);
        default:
            GATHER((size_t)size);
    }
}

/* --- two columns --------------------------------------------------------- */

#define ZIP(NBYTES)                                                           \
    for (; i < n_rows; i++) {                                                 \
        memcpy(target + 2 * i * (NBYTES), a + i * (NBYTES), NBYTES);          \
        memcpy(target + (2 * i + 1) * (NBYTES), b + i * (NBYTES), NBYTES);    \
    }                                                                         \
    break

/* Interleaves two columns of elements of 1, 2 or 4 bytes. */
static void
zip(const char *a, const char *b, int64_t n_rows, int64_t size, char *target)
{
    int64_t i = ad_vector_zip(a, b, n_rows, size, target);
    switch (size) {
        case 1:
            ZIP(1);
        case 2:
            ZIP(2);
        default:
            ZIP(4);
    }
}

/* Interleaves `n` columns, a power of two, to one at `target` with elements n
 * times as wide. A single column is not copied. */
static const char *
zip_columns(const char *const *columns, int64_t n, int64_t row, int64_t n_rows,
            int64_t size, char *target)
{
    char halves[2][WIDE * TILE_ROWS];
    const char *from[WIDE];
    for (int64_t i = 0; i < n; i++) {
        from[i] = columns[i] + row * size;
    }
    for (int turn = 0; n > 1; n /= 2, size *= 2, turn = 1 - turn) {
        for (int64_t i = 0; i < n / 2; i++) {
            char *to = n == 2 ? target : halves[turn] + i * n_rows * 2 * size;
            zip(from[2 * i], from[2 * i + 1], n_rows, size, to);
            from[i] = to;
        }
    }
    return from[0];
}

/* --- a tile -------------------------------------------------------------- */

/* Rows of at most WIDE bytes without gaps. The columns are padded to a power
 * of two. The padding of a row is overwritten by the next row, and the last
 * row is written without it. */
static void
interleave_narrow(const char *const *columns, int64_t n, int64_t row,
                  int64_t n_rows, int64_t size, char *target)
{
    char zipped[WIDE * TILE_ROWS];
    const char *all[WIDE];
    int64_t n_all = 1;
    while (n_all < n) {
        n_all *= 2;
    }
    for (int64_t i = 0; i < n_all; i++) {
        all[i] = columns[i < n ? i : 0];
    }
    if (n > 1 && n == n_all) {
        zip_columns(all, n, row, n_rows, size, target);
        return;
    }
    const char *rows = zip_columns(all, n_all, row, n_rows, size, zipped);
    gather(&rows, 1, n_rows - 1, n_all * size, target, n * size);
    memcpy(target + (n_rows - 1) * n * size,
           rows + (n_rows - 1) * n_all * size, (size_t)(n * size));
}

/* Number of the `n` columns to zip: the greatest power of two whose result is
 * at most WIDE; 1 for elements that are not 1, 2 or 4 bytes wide. */
static int64_t
columns_to_zip(int64_t n, int64_t size)
{
    int64_t n_zipped = 1;
    while (is_power_of_two(size) && 2 * n_zipped <= n &&
           2 * n_zipped * size <= WIDE) {
        n_zipped *= 2;
    }
    return n_zipped;
}

static void
interleave_wide(const char *const *columns, int64_t n, int64_t row,
                int64_t n_rows, int64_t size, char *target, int64_t pitch)
{
    char zipped[SIDE_BY_SIDE][WIDE * TILE_ROWS];
    const char *groups[SIDE_BY_SIDE];
    int64_t step;
    for (int64_t k = 0; k < n; k += step) {
        int64_t n_zipped = columns_to_zip(n - k, size);
        int64_t n_groups = (n - k) / n_zipped;
        n_groups = n_groups < FEW            ? 1
                   : n_groups < SIDE_BY_SIDE ? n_groups
                                             : SIDE_BY_SIDE;
        step = n_groups * n_zipped;
        for (int64_t i = 0; i < n_groups; i++) {
            groups[i] = zip_columns(columns + k + i * n_zipped, n_zipped, row,
                                    n_rows, size, zipped[i]);
        }
        gather(groups, n_groups, n_rows, n_zipped * size, target + k * size,
               pitch);
    }
}

void
ad_interleave(const char *const *columns, int64_t n, int64_t n_rows,
              int64_t size, char *target, int64_t pitch)
{
    bool is_narrow =
        pitch <= WIDE && pitch == n * size && is_power_of_two(size);
    for (int64_t row = 0; row < n_rows; row += TILE_ROWS) {
        int64_t rest = n_rows - row;
        int64_t n_here = rest < TILE_ROWS ? rest : TILE_ROWS;
        char *here = target + row * pitch;
        if (is_narrow) {
            interleave_narrow(columns, n, row, n_here, size, here);
        } else {
            interleave_wide(columns, n, row, n_here, size, here, pitch);
        }
    }
}
