/* Notes on what is unusual but legal in an array's structs. */
#include <inttypes.h>

#include "validate/validate.h"

/* A node on the path from the root. */
typedef struct step {
    const struct step *above; /* NULL: the root */
    int64_t i;                /* number of the child; -1: the dictionary */
} step;

static ad_status
add_path(ad_text *out, const step *at, ad_error *err)
{
    if (at->above->above != NULL) {
        AD_RETURN_IF_ERR(add_path(out, at->above, err));
        AD_RETURN_IF_ERR(ad_text_append(out, ".", err));
    }
    return at->i < 0
               ? ad_text_append(out, "dictionary", err)
               : ad_text_printf(out, err, "children[%" PRId64 "]", at->i);
}

static ad_status
note(ad_text *out, const step *at, const char *text, ad_error *err)
{
    if (at->above != NULL) {
        AD_RETURN_IF_ERR(add_path(out, at, err));
        AD_RETURN_IF_ERR(ad_text_append(out, ": ", err));
    }
    AD_RETURN_IF_ERR(ad_text_append(out, text, err));
    return ad_text_append(out, "\n", err);
}

/* --- the device array ---------------------------------------------------- */

static ad_status
note_device(const ad_array *array, const step *root, ad_text *out,
            ad_error *err)
{
    bool is_cpu = array->memory.device.type == ARROW_DEVICE_CPU;
    if (array->had_event) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "a CPU array should have no sync_event, because host memory "
                 "has no event type; it is ignored, and the data are taken as "
                 "ready (specification, \"Synchronization event types\")",
                 err));
    } else if (array->memory.sync != NULL &&
               (ad_device_traits(array->memory.device.type) & AD_NO_EVENTS) !=
                   0) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "the device type has no event type, so sync_event should be "
                 "NULL; it is carried and not interpreted (specification, "
                 "\"Synchronization event types\")",
                 err));
    }
    if (is_cpu && array->memory.device.id != -1) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "a CPU array should have device_id -1 (specification, "
                 "\"ArrowDeviceArray.device_id\")",
                 err));
    }
    return AD_OK;
}

/* --- nodes --------------------------------------------------------------- */

static ad_status
note_node(const struct ArrowSchema *schema, const struct ArrowArray *node,
          const step *at, ad_text *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    bool has_end =
        type.layout == AD_LAYOUT_OFFSETS || type.layout == AD_LAYOUT_LIST;
    if (has_end && node->buffers[1] == NULL) {
        AD_RETURN_IF_ERR(
            note(out, at,
                 "the offsets buffer is NULL, but should hold one offset even "
                 "without rows (columnar format, \"Variable-size Binary "
                 "Layout\")",
                 err));
    }
    if (!(schema->flags & ARROW_FLAG_NULLABLE) && node->null_count > 0) {
        AD_RETURN_IF_ERR(
            note(out, at,
                 "there are nulls, but the schema says that it is not "
                 "nullable (C data interface, \"ArrowSchema.flags\")",
                 err));
    }
    for (int64_t i = 0; i < node->n_children; i++) {
        const step below = {at, i};
        AD_RETURN_IF_ERR(note_node(schema->children[i], node->children[i],
                                   &below, out, err));
    }
    if (node->dictionary != NULL) {
        const step below = {at, -1};
        return note_node(schema->dictionary, node->dictionary, &below, out,
                         err);
    }
    return AD_OK;
}

ad_status
ad_array_notes(const ad_array *array, ad_text *out, ad_error *err)
{
    const step root = {NULL, 0};
    AD_RETURN_IF_ERR(note_device(array, &root, out, err));
    return note_node(array->schema.node, array->node, &root, out, err);
}
