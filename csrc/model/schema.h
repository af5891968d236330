/* ad_schema: a node of an immutable ArrowSchema tree, with the tree's owner. A
 * value of two words; copy it with ad_schema_ref.
 *
 * The tree is the producer's own, moved and unchanged: an import copies
 * nothing per node. `owner` is NULL for the static schemas.
 */
#ifndef AD_MODEL_SCHEMA_H
#define AD_MODEL_SCHEMA_H

#include <stdbool.h>

#include "abi/arrow_c.h"
#include "base/owner.h"
#include "base/status.h"

/* Deeper trees are refused, to bound recursion. */
#define AD_MAX_DEPTH 64

/* Trees with more nodes, not counting leaves, are refused. */
#define AD_MAX_NESTED (1 << 22)

typedef struct ad_schema {
    const struct ArrowSchema *node; /* borrowed from owner */
    ad_owner *owner;
} ad_schema;

static inline ad_schema
ad_schema_ref(ad_schema schema)
{
    ad_owner_ref(schema.owner);
    return schema;
}

static inline void
ad_schema_unref(ad_schema schema)
{
    ad_owner_unref(schema.owner);
}

/* The same tree, viewed from a child (or dictionary) node; a new reference. */
static inline ad_schema
ad_schema_at(ad_schema schema, const struct ArrowSchema *node)
{
    return (ad_schema){node, ad_owner_ref(schema.owner)};
}

/* Checks a whole tree: not released, valid formats, child counts that fit the
 * format, no NULL children, depth, integer indices of dictionaries, no
 * negative sizes. Reads formats and pointers, never metadata. Fails with
 * AD_ERR_ARROW and the path ("children[2].dictionary"). */
AD_MUST_CHECK ad_status ad_schema_validate(const struct ArrowSchema *node,
                                           ad_error *err);

/* Moves *src into an owner of its own. On success src->release is NULL; on
 * failure *src is untouched and still the caller's. Does not validate: the
 * caller has done so, for schema and array together if there is an array. */
AD_MUST_CHECK ad_status ad_schema_move(struct ArrowSchema *src, ad_schema *out,
                                       ad_error *err);

/* Indexed by the letter of a primitive format (numbers and bool); `format` is
 * NULL for any other letter. */
extern const struct ArrowSchema ad_schema_primitives[128];

/* The static, immortal schema of a one-letter primitive format: nullable, name
 * "", no metadata. The node is NULL for any other format. */
static inline ad_schema
ad_schema_primitive(const char *format)
{
    unsigned char letter = (unsigned char)format[0];
    bool is_primitive = letter < 128 && letter != '\0' && format[1] == '\0' &&
                        ad_schema_primitives[letter].format != NULL;
    return (ad_schema){is_primitive ? &ad_schema_primitives[letter] : NULL,
                       NULL};
}

/* A new node that owns copies of the strings and takes references on the
 * children (n_children may be 0; dictionary may be NULL). `metadata` is a blob
 * or NULL. `names`, if not NULL, replace the names of the children; a NULL
 * entry keeps the child's own. */
typedef struct ad_schema_spec {
    const char *format;
    const char *name; /* NULL means "" */
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    const ad_schema *children;
    const char *const *names;
    const ad_schema *dictionary;
} ad_schema_spec;

AD_MUST_CHECK ad_status ad_schema_build(const ad_schema_spec *spec,
                                        ad_schema *out, ad_error *err);

/* The type of a name: "int32", "utf8", "string", "bool", "double",
 * "timestamp[us, UTC]", "date32", "decimal128(10, 2)", "list<int32>",
 * "struct<a: int32 not null, b: string>", and all else that ad_type_print()
 * writes, but for extensions. The spellings of pyarrow and nanoarrow are both
 * accepted; items of lists need no name, and members of unions no id. A format
 * string of a type without children is a name, too. It is nullable unless
 * " not null" is at its end. A name of a field ends at its first ":", and has no
 * comma, angle bracket, and blanks at its ends. AD_ERR_VALUE for a name that is
 * not known, AD_ERR_ARROW for a tree that ad_schema_validate() refuses. */
AD_MUST_CHECK ad_status ad_schema_from_name(const char *name, ad_schema *out,
                                            ad_error *err);

/* Copies the tree of `node`, which has been validated and is not consumed. */
AD_MUST_CHECK ad_status ad_schema_copy(const struct ArrowSchema *node,
                                       ad_schema *out, ad_error *err);

/* Exports a tree into one arena that shares all strings with `schema`. The
 * root is in a holder. A consumer moves the struct out (and sets release to
 * NULL) or leaves it there. ad_schema_holder_free must be called on the same
 * pointer in either case: it releases the nodes that were not moved. The
 * schema is dropped with the last node, and a holder whose nodes are released
 * keeps the structs only. Children may be moved out one by one and released in
 * any order, from any thread. */
AD_MUST_CHECK ad_status ad_schema_export(ad_schema schema,
                                         struct ArrowSchema **holder,
                                         ad_error *err);
void ad_schema_holder_free(struct ArrowSchema *holder);

/* The same into a struct of the consumer; a single node needs no
 * allocation. */
AD_MUST_CHECK ad_status ad_schema_export_to(ad_schema schema,
                                            struct ArrowSchema *out,
                                            ad_error *err);

/* Exports `schema` into an existing holder again, whether its struct was moved
 * out or not. No other thread may use the holder. Returns false if that needs
 * an allocation: for a tree with children, a moved struct that is not
 * released, or a schema with another owner than the first one. */
bool ad_schema_holder_renew(struct ArrowSchema *holder, ad_schema schema);

/* Compares types: formats, names of fields, flags, children, dictionary; with
 * `check_metadata` also the metadata of every node, and the names of children
 * that are no fields (items of lists, entries of maps). The name of the root
 * is compared only if check_name is set. */
AD_MUST_CHECK ad_status ad_schema_equal(const struct ArrowSchema *a,
                                        const struct ArrowSchema *b,
                                        bool check_name, bool check_metadata,
                                        bool *out, ad_error *err);

/* Whether `test` holds for each pair of nodes of two trees. It is called for a
 * pair before the nodes below; the trees have the same shape, or it is false
 * where they differ. */
bool ad_schema_all(const struct ArrowSchema *a, const struct ArrowSchema *b,
                   bool (*test)(const struct ArrowSchema *a,
                                const struct ArrowSchema *b));

/* Number of nodes of the tree. */
size_t ad_schema_count_nodes(const struct ArrowSchema *node);

#endif /* AD_MODEL_SCHEMA_H */
