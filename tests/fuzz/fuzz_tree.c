/* Arrow trees from outside, in host memory: a schema and an array are built
 * from the input, every buffer in an allocation of exactly the claimed size.
 * Import must refuse the tree or take it over, full validation must not read a
 * byte outside of the buffers, and every struct is released exactly once.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/array.h"
#include "model/type.h"
#include "validate/validate.h"

#define MAX_DEPTH 4
#define MAX_ROWS 40
#define MAX_BUFFERS 5

#define REQUIRE(condition)                                                    \
    do {                                                                      \
        if (!(condition)) {                                                   \
            abort();                                                          \
        }                                                                     \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int live; /* nodes that were not released */

/* The rest of the input; zeros after its end. */
typedef struct input {
    const uint8_t *next;
    size_t left;
} input;

static uint8_t
take(input *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->next++;
}

static const char *const FORMATS[] = {
    "n",    "b",     "c",      "S",       "i",       "l",   "g",
    "e",    "u",     "z",      "U",       "Z",       "vu",  "vz",
    "w:3",  "d:9,2", "d:30,2", "tdD",     "tdm",     "tts", "ttn",
    "tsu:", "tDn",   "tin",    "+l",      "+L",      "+vl", "+vL",
    "+w:2", "+s",    "+m",     "+us:0,1", "+ud:0,5", "+r"};
#define N_FORMATS (sizeof(FORMATS) / sizeof(FORMATS[0]))

static void
release_schema(struct ArrowSchema *node)
{
    for (int64_t i = 0; i < node->n_children; i++) {
        if (node->children[i]->release != NULL) {
            node->children[i]->release(node->children[i]);
        }
        free(node->children[i]);
    }
    free(node->children);
    if (node->dictionary != NULL) {
        if (node->dictionary->release != NULL) {
            node->dictionary->release(node->dictionary);
        }
        free(node->dictionary);
    }
    node->release = NULL;
    live--;
}

/* What a release frees, whatever a consumer wrote into the struct. */
typedef struct array_private {
    void *buffers[MAX_BUFFERS];
    int64_t n_children;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
} array_private;

static void
release_array(struct ArrowArray *node)
{
    array_private *own = node->private_data;
    for (int64_t i = 0; i < own->n_children; i++) {
        if (own->children[i]->release != NULL) {
            own->children[i]->release(own->children[i]);
        }
        free(own->children[i]);
    }
    free(own->children);
    if (own->dictionary != NULL) {
        if (own->dictionary->release != NULL) {
            own->dictionary->release(own->dictionary);
        }
        free(own->dictionary);
    }
    for (int i = 0; i < MAX_BUFFERS; i++) {
        free(own->buffers[i]);
    }
    free(node->buffers);
    free(own);
    node->release = NULL;
    live--;
}

/* `size` bytes of the input, or small numbers that grow, which offsets of a
 * sound producer are. */
static void *
fill(input *in, size_t size, size_t width)
{
    uint8_t *out = malloc(size > 0 ? size : 1);
    bool grows = take(in) & 1;
    memset(out, 0, size);
    for (size_t i = 0; i < size; i++) {
        if (!grows) {
            out[i] = take(in);
        } else if (i % width == 0) {
            out[i] = (uint8_t)(i / width + take(in) % 2);
        }
    }
    return out;
}

static int64_t
last_offset(const void *offsets, int64_t n, bool is_wide)
{
    int64_t last = 0;
    if (is_wide) {
        memcpy(&last, (const int64_t *)offsets + n, sizeof(last));
    } else {
        int32_t narrow;
        memcpy(&narrow, (const int32_t *)offsets + n, sizeof(narrow));
        last = narrow;
    }
    return last >= 0 && last < 4096 ? last : -1;
}

/* The buffers of a node, as `rows` of its type need them; false: the data of
 * strings would be larger than a test wants. */
static bool
make_buffers(input *in, const ad_type *type, int64_t rows,
             struct ArrowArray *node, array_private *own)
{
    size_t n = (size_t)rows;
    size_t width = type->wide_offsets ? 8 : 4;
    int k = 0;
    if (type->has_validity) {
        own->buffers[k++] = take(in) & 1 ? fill(in, (n + 7) / 8, 1) : NULL;
    }
    switch (type->layout) {
        case AD_LAYOUT_FIXED:
            own->buffers[k++] =
                fill(in, (n * (size_t)type->bit_width + 7) / 8,
                     type->bit_width >= 8 ? (size_t)type->bit_width / 8 : 1);
            break;
        case AD_LAYOUT_OFFSETS: {
            own->buffers[k++] = fill(in, (n + 1) * width, width);
            int64_t last =
                last_offset(own->buffers[k - 1], rows, type->wide_offsets);
            if (last < 0) {
                return false;
            }
            own->buffers[k++] = fill(in, (size_t)last, 1);
            break;
        }
        case AD_LAYOUT_VIEWS: {
            own->buffers[k++] = fill(in, n * 16, 16);
            int64_t size = take(in);
            own->buffers[k++] = fill(in, (size_t)size, 1);
            own->buffers[k] = malloc(sizeof(size));
            memcpy(own->buffers[k++], &size, sizeof(size));
            break;
        }
        case AD_LAYOUT_LIST:
            own->buffers[k++] = fill(in, (n + 1) * width, width);
            break;
        case AD_LAYOUT_LIST_VIEW:
            own->buffers[k++] = fill(in, n * width, width);
            own->buffers[k++] = fill(in, n * width, width);
            break;
        case AD_LAYOUT_SPARSE_UNION:
            own->buffers[k++] = fill(in, n, 1);
            break;
        case AD_LAYOUT_DENSE_UNION:
            own->buffers[k++] = fill(in, n, 1);
            own->buffers[k++] = fill(in, n * 4, 4);
            break;
        case AD_LAYOUT_NONE:
        case AD_LAYOUT_VALIDITY:
            break;
    }
    node->n_buffers = k;
    node->buffers = malloc(MAX_BUFFERS * sizeof(void *));
    memcpy(node->buffers, own->buffers, (size_t)k * sizeof(void *));
    return true;
}

static bool make_node(input *in, int depth, struct ArrowSchema *schema,
                      struct ArrowArray *array);

/* Allocated child structs, both of them released where making fails. */
static bool
make_child(input *in, int depth, struct ArrowSchema **schema,
           struct ArrowArray **array)
{
    *schema = calloc(1, sizeof(**schema));
    *array = calloc(1, sizeof(**array));
    return make_node(in, depth + 1, *schema, *array);
}

static bool
make_node(input *in, int depth, struct ArrowSchema *schema,
          struct ArrowArray *array)
{
    ad_error err;
    ad_type type;
    size_t n_formats = depth < MAX_DEPTH ? N_FORMATS : 24; /* no children */
    array_private *own = calloc(1, sizeof(*own));
    schema->format = FORMATS[take(in) % n_formats];
    schema->name = depth == 0 ? "" : "item";
    schema->flags = take(in) & (ARROW_FLAG_NULLABLE | 1);
    schema->release = release_schema;
    array->private_data = own;
    array->release = release_array;
    live += 2;
    REQUIRE(ad_type_parse(schema->format, &type, &err) == AD_OK);

    int64_t n_children = type.n_children >= 0 ? type.n_children : 2;
    schema->children = calloc((size_t)n_children + 1, sizeof(void *));
    own->children = calloc((size_t)n_children + 1, sizeof(void *));
    array->children = own->children;
    for (int64_t i = 0; i < n_children; i++) {
        schema->n_children = array->n_children = own->n_children = i + 1;
        if (!make_child(in, depth, &schema->children[i], &own->children[i])) {
            return false;
        }
    }
    bool is_index = type.layout == AD_LAYOUT_FIXED && type.bit_width >= 8;
    if (is_index && depth < MAX_DEPTH && take(in) % 8 == 1) {
        schema->dictionary = calloc(1, sizeof(*schema));
        own->dictionary = calloc(1, sizeof(*array));
        array->dictionary = own->dictionary;
        if (!make_node(in, depth + 1, schema->dictionary, own->dictionary)) {
            return false;
        }
    }
    int64_t rows = take(in) % MAX_ROWS;
    array->offset = take(in) % (rows + 1);
    array->length = rows - array->offset;
    array->null_count = (int64_t)(take(in) % 4) - 1;
    return make_buffers(in, &type, rows, array, own);
}

/* Numbers that no sound producer writes, for the structure check alone. */
static void
spoil(input *in, struct ArrowArray *node)
{
    static const int64_t numbers[] = {
        -1, -2, INT64_MAX, INT64_MIN, INT64_MAX - 7, 1LL << 40};
    int64_t number = numbers[take(in) % 6];
    switch (take(in) % 4) {
        case 0:
            node->length = number;
            break;
        case 1:
            node->offset = number;
            break;
        case 2:
            node->null_count = number;
            break;
        default:
            node->n_buffers = number;
    }
}

static void
import(struct ArrowSchema *schema, struct ArrowDeviceArray *device)
{
    ad_error err;
    ad_array array;
    ad_array part;
    ad_text notes = {0};
    if (ad_array_import(schema, device, false, &array, &err) != AD_OK) {
        REQUIRE(schema->release != NULL && device->array.release != NULL);
        return;
    }
    REQUIRE(schema->release == NULL && device->array.release == NULL);
    ad_status status = ad_array_notes(&array, &notes, &err);
    REQUIRE(status == AD_OK);
    status = ad_array_validate_full(&array, &err);
    REQUIRE(status == AD_OK || err.message[0] != '\0');
    if (array.length > 1 &&
        ad_array_slice(&array, 1, array.length - 1, &part, &err) == AD_OK) {
        status = ad_array_validate_full(&part, &err);
        ad_array_clear(&part);
    }
    ad_text_clear(&notes);
    ad_array_clear(&array);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    ad_error err;
    struct ArrowSchema schema = {0};
    struct ArrowDeviceArray device = {.device_type = 1, .device_id = -1};
    uint8_t mode = take(&in);
    if (make_node(&in, 0, &schema, &device.array)) {
        if (mode % 4 == 0) {
            spoil(&in, &device.array);
            ad_status status = ad_array_validate(&schema, &device.array, &err);
            REQUIRE(status == AD_OK || err.message[0] != '\0');
        } else {
            import(&schema, &device);
        }
    }
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    if (device.array.release != NULL) {
        device.array.release(&device.array);
    }
    REQUIRE(live == 0);
    return 0;
}
