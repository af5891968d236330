/* ad_schema: a node of an immutable ArrowSchema tree, and what keeps the tree
 * alive. A value of two words; copy it with ad_schema_ref.
 *
 * The tree is the producer's own, moved and kept as it came: nothing is
 * copied per node at import. `owner` is NULL for the static schemas.
 */
#ifndef AD_MODEL_SCHEMA_H
#define AD_MODEL_SCHEMA_H

#include <stdbool.h>

#include "abi/arrow_c.h"
#include "base/owner.h"
#include "base/status.h"

/* Trees deeper than this are refused: recursion must stay bounded. */
#define AD_MAX_DEPTH 64

/* And trees with more nodes than this, leaves not counted. */
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

/* The same tree seen from a child (or dictionary) node; a new reference. */
static inline ad_schema
ad_schema_at(ad_schema schema, const struct ArrowSchema *node)
{
    return (ad_schema){node, ad_owner_ref(schema.owner)};
}

/* Check a whole tree: not released, formats parse, child counts fit the
 * format, children not NULL, depth, dictionary index types are integers, no
 * negative sizes. Reads formats and pointers, never metadata. AD_ERR_ARROW
 * with the path ("children[2].dictionary"). */
AD_MUST_CHECK ad_status ad_schema_validate(const struct ArrowSchema *node,
                                           ad_error *err);

/* Move *src into an owner of its own. On success src->release is NULL; on
 * failure *src is untouched and still the caller's. Does not validate: that
 * comes first, together with the array where there is one. */
AD_MUST_CHECK ad_status ad_schema_move(struct ArrowSchema *src, ad_schema *out,
                                       ad_error *err);

/* The static, immortal schema of a one-letter primitive format (numbers and
 * bools): nullable, name "", no metadata. NULL node for any other format. */
ad_schema ad_schema_primitive(const char *format);

/* A new tree node that owns copies of the strings and takes references on the
 * children (n_children may be 0; dictionary may be NULL). `metadata` is a blob
 * or NULL. Children's `names`, when not NULL, override those of the child
 * schemas; a NULL entry keeps the child's own. */
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

/* A tree of our own that is equal to `node`, which has been validated and stays
 * whose it is. */
AD_MUST_CHECK ad_status ad_schema_copy(const struct ArrowSchema *node,
                                       ad_schema *out, ad_error *err);

/* Export a tree into one arena that shares all strings with `schema`. The
 * result lives in a holder: a consumer moves the struct out (setting release
 * to NULL) or leaves it; ad_schema_holder_free must then be called on the same
 * pointer, releases what was not moved, and frees the memory when the last
 * moved-out node is released too. Children may be moved out one by one and
 * released in any order, from any thread. */
AD_MUST_CHECK ad_status ad_schema_export(ad_schema schema,
                                         struct ArrowSchema **holder,
                                         ad_error *err);
void ad_schema_holder_free(struct ArrowSchema *holder);

/* Make a holder, which nobody else may be using, hold an export of `schema`
 * once more, whether its struct was moved out or not. False when that cannot
 * be done without an allocation: a tree with children, a struct that was moved
 * out and lives, a schema with another owner than the one first exported. */
bool ad_schema_holder_renew(struct ArrowSchema *holder, ad_schema schema);

/* Equal types: formats, names, nullability and flags, children, dictionary;
 * with `check_metadata` also the metadata of every node. The name of the root
 * counts only when check_name is set. */
AD_MUST_CHECK ad_status ad_schema_equal(const struct ArrowSchema *a,
                                        const struct ArrowSchema *b,
                                        bool check_name, bool check_metadata,
                                        bool *out, ad_error *err);

#endif /* AD_MODEL_SCHEMA_H */
