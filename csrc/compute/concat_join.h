/* What the files of concat.h share: one node of the result while it is made.
 */
#ifndef AD_COMPUTE_CONCAT_JOIN_H
#define AD_COMPUTE_CONCAT_JOIN_H

#include "model/array.h"
#include "compute/concat_rebase.h"
#include "order/streams.h"
#include "model/type.h"
#include "base/unaligned.h"

/* One node of the result while it is made. */
typedef struct ad_join {
    ad_schema schema;      /* borrowed */
    const ad_array *views; /* the rows to be joined; nothing is owned */
    size_t n;
    ad_device device; /* of the result: memory that the host writes */
    ad_type type;
    int64_t length;
    const void **buffers;
    int64_t n_buffers;
    ad_owner **owners; /* of the buffers */
    size_t n_owners;
    ad_array *children; /* owned */
    int64_t n_children; /* made so far */
    ad_array dictionary;
    int64_t null_count;
} ad_join;

/* All rows of the node, joined on the host. */
static inline ad_rows
ad_join_rows(const ad_join *j, ad_builder *builder)
{
    return (ad_rows){
        .builder = builder,
        .schema = j->schema,
        .views = j->views,
        .n = j->n,
        .length = j->length,
    };
}

/* What ad_int_at() reads. */
void ad_join_put_int(void *data, int width, int64_t i, int64_t value);
int64_t ad_join_max(int width, bool is_unsigned);

/* Memory for the result, its own or its runtime's; 0 bytes: both may be NULL. */
AD_MUST_CHECK ad_status ad_join_allocate(const ad_join *j, int64_t nbytes,
                                         void **out, ad_owner **owner,
                                         ad_error *err);

/* Buffer `i` of the result: new memory, which the join owns. */
AD_MUST_CHECK ad_status ad_join_new_buffer(ad_join *j, int64_t i,
                                           int64_t nbytes, void **out,
                                           ad_error *err);

AD_MUST_CHECK ad_status ad_join_size_of_rows(int64_t rows, int64_t row_size,
                                             int64_t *out, ad_error *err);

/* AD_ERR_EXCHANGE, "size": `what` does not fit the type. */
ad_status ad_join_fail_size(ad_schema schema, const char *what, ad_error *err);

/* Rows [first, first + length) of a child, as the parent counts them. */
ad_array ad_join_view_below(const ad_array *view,
                            const struct ArrowArray *node,
                            const struct ArrowSchema *schema, int64_t first,
                            int64_t length);

/* parts[v] = the values of child `i` that belong to the rows of views[v]:
 * `size` of them per row. */
void ad_join_view_child(ad_schema schema, const ad_array *views, size_t n,
                        int64_t i, int64_t size, ad_array *parts);

/* parts[v] = all values of child `i` of views[v]. */
void ad_join_view_values(ad_schema schema, const ad_array *views, size_t n,
                         int64_t i, ad_array *parts);

/* The buffers of the result; those of views are all kept. */
AD_MUST_CHECK ad_status ad_join_count_buffers(ad_schema schema,
                                              const ad_type *type,
                                              const ad_array *views, size_t n,
                                              int64_t *out, ad_error *err);

/* Memory that the result shares must not be written. */
bool ad_join_is_readonly(const ad_type *type, const ad_array *views, size_t n);

/* The rows of all views. */
AD_MUST_CHECK ad_status ad_join_count_rows(ad_schema schema,
                                           const ad_array *views, size_t n,
                                           int64_t *rows, ad_error *err);

/* Of a type with a bitmap. */
bool ad_join_may_have_nulls(const ad_array *view);

/* The nulls of all views, -1 where some are not known. Does the result need a
 * bitmap? */
bool ad_join_count_nulls(const ad_type *type, const ad_array *views, size_t n,
                         int64_t rows, int64_t *nulls);
bool ad_join_is_valid_row(const ad_array *view, int64_t i);

/* Child `i` of the result from `parts`, one per view. */
AD_MUST_CHECK ad_status ad_join_child(ad_join *j, int64_t i,
                                      const ad_array *parts, ad_error *err);

/* Buffer `buffer` of so many bits per row. */
AD_MUST_CHECK ad_status ad_join_fixed(ad_join *j, int64_t buffer,
                                      int64_t bit_width, ad_error *err);

/* AD_ERR_ARROW if strings in [first, last) of the data have no data. */
AD_MUST_CHECK ad_status ad_join_check_data(const ad_array *view, int64_t first,
                                           int64_t last, ad_error *err);

/* All but the validity of a node of these layouts (concat_offsets.c). `parts`
 * is room for one view per view. */
AD_MUST_CHECK ad_status ad_join_strings(ad_join *j, ad_error *err);
AD_MUST_CHECK ad_status ad_join_views(ad_join *j, ad_error *err);
AD_MUST_CHECK ad_status ad_join_lists(ad_join *j, ad_array *parts,
                                      ad_error *err);
AD_MUST_CHECK ad_status ad_join_list_views(ad_join *j, ad_array *parts,
                                           ad_error *err);
AD_MUST_CHECK ad_status ad_join_run_ends(ad_join *j, ad_array *parts,
                                         ad_error *err);

/* ad_concat_on where the host cannot read (concat_device.c). */
AD_MUST_CHECK ad_status ad_concat_on_device(ad_schema schema,
                                            const ad_array *arrays, size_t n,
                                            const ad_stream_choice *stream,
                                            ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_CONCAT_JOIN_H */
