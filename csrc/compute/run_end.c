#include "compute/run_end.h"

#include <inttypes.h>

#include "compute/bits.h"
#include "model/type.h"
#include "base/unaligned.h"

/* --- faults -------------------------------------------------------------- */

static ad_status
fail_run_end(int64_t end, int64_t before, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "run end %" PRId64 " comes after %" PRId64, end, before);
}

static ad_status
fail_last_run(int64_t end, int64_t rows, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the last run ends at %" PRId64 ", but there are %" PRId64
                   " rows",
                   end, rows);
}

/* Reads run end `i` of the child; 0 for -1. Blocks. */
static ad_status
read_run_end(ad_builder *builder, const struct ArrowArray *ends, int64_t width,
             int64_t i, int64_t *out, ad_error *err)
{
    int64_t number = 0;
    *out = 0;
    if (i < 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_builder_read(builder, ends->buffers[1],
                                     (ends->offset + i) * width, width,
                                     &number, err));
    *out = ad_int_at(&number, (int)width, 0);
    return AD_OK;
}

/* --- finding runs -------------------------------------------------------- */

/* The result of AD_KERNEL_FIND_RUNS: each member is 1 + the number of a run,
 * or 0 for none. */
typedef struct found_ends {
    int64_t bad;
    int64_t first;
    int64_t last;
} found_ends;

static ad_status
resolve(ad_builder *builder, const ad_array *view, int64_t width,
        const found_ends *found, ad_run_ends *out, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t before, end;
    if (found->bad != 0) {
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, found->bad - 2, &before, err));
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, found->bad - 1, &end, err));
        return fail_run_end(end, before, err);
    }
    if (found->last == 0) {
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, ends->length - 1, &end, err));
        return fail_last_run(end, view->offset + view->length, err);
    }
    *out = (ad_run_ends){found->first - 1, found->last - found->first + 1};
    return AD_OK;
}

/* Finds the first run that ends behind `row`. */
static int64_t
first_behind(const struct ArrowArray *ends, int64_t width, int64_t row)
{
    const char *numbers =
        (const char *)ends->buffers[1] + ends->offset * width;
    return ad_first_above(numbers, (int)width, ends->length, row);
}

/* Checks only the runs of the rows, and the one before. */
static void
find_on_host(const ad_array *view, int64_t width, found_ends *out)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t first = first_behind(ends, width, view->offset);
    int64_t last = first_behind(ends, width, view->offset + view->length - 1);
    int64_t from = first > 0 ? first - 1 : 0;
    const ad_launch launch = {
        .kernel = AD_KERNEL_FIND_RUNS,
        .source.data = (void *)ends->buffers[1],
        .source.offset = (uint64_t)((ends->offset + from) * width),
        .target.data = out,
        .length = (last < ends->length ? last + 1 : last) - from,
        .numbers = {width, -1, -1},
        .n_items = 1,
    };
    *out = (found_ends){0, 0, 0};
    if (launch.length > 0) {
        ad_kernel_run_on_host(&launch);
    }
    *out = (found_ends){
        .bad = out->bad > 0 ? from + out->bad : 0,
        .first = first + 1,
        .last = last < ends->length ? last + 1 : 0,
    };
}

static ad_status
find_on_device(ad_builder *builder, const ad_array *view, int64_t width,
               found_ends *out, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t nbytes = (int64_t)sizeof(*out);
    void *found;
    const ad_launch launch = {
        .kernel = AD_KERNEL_FIND_RUNS,
        .source.offset = (uint64_t)(ends->offset * width),
        .length = ends->length,
        .numbers = {width, view->offset, view->offset + view->length},
    };
    AD_RETURN_IF_ERR(ad_builder_allocate(builder, nbytes, &found, err));
    AD_RETURN_IF_ERR(ad_copy_bits(&builder->session, NULL, 0, found, 0,
                                  8 * nbytes, AD_BITS_ZEROS, err));
    AD_RETURN_IF_ERR(ad_session_kernel(&builder->session, ends->buffers[1],
                                       found, launch, err));
    return ad_builder_read(builder, found, 0, nbytes, out, err);
}

ad_status
ad_find_run_ends(ad_builder *builder, const ad_array *view, ad_run_ends *out,
                 ad_error *err)
{
    int64_t width;
    found_ends found;
    *out = (ad_run_ends){0, 0};
    if (view->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    if (builder->session.backend == NULL) {
        find_on_host(view, width, &found);
    } else {
        AD_RETURN_IF_ERR(find_on_device(builder, view, width, &found, err));
    }
    return resolve(builder, view, width, &found, out, err);
}

/* --- writing run ends ---------------------------------------------------- */

ad_status
ad_run_end_width(ad_schema schema, int64_t *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(
        ad_type_parse(schema.node->children[0]->format, &type, err));
    *out = type.bit_width / 8;
    return AD_OK;
}

ad_status
ad_write_run_ends(ad_builder *builder, const ad_array *view, ad_run_ends runs,
                  int64_t row, void *target, int64_t to, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t width;
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    const ad_launch launch = {
        .kernel = AD_KERNEL_ADD,
        .source.offset = (uint64_t)((ends->offset + runs.first) * width),
        .target.offset = (uint64_t)(to * width),
        .length = runs.n,
        .numbers = {width, row - view->offset, view->offset + view->length,
                    true},
    };
    return ad_session_kernel(&builder->session, ends->buffers[1], target,
                             launch, err);
}

ad_status
ad_build_run_ends(ad_schema schema, ad_device device, int64_t n,
                  const void *ends, ad_array *out, ad_error *err)
{
    const void *buffers[] = {NULL, ends};
    const ad_array_spec spec = {
        .schema = {schema.node->children[0], schema.owner},
        .memory = {.device = device},
        .length = n,
        .n_buffers = 2,
        .buffers = buffers,
    };
    return ad_array_build(&spec, out, err);
}
