/* JSON Schema to rules: what schema*.c share.
 *
 * A place of a document may have to satisfy several schemas at once (allOf, $ref beside other
 * keywords, a property that is listed twice). So a set of schemas is compiled, not one:
 *
 *   all of {a, b}   -> a's and b's $ref and allOf join the set
 *                   -> anyOf, oneOf: one alternative for each branch, each a set of its own
 *                   -> what is left are keywords: gathered into one `wanted`, then written as rules
 *
 * Equal sets are one rule, so recursion through $ref ends. */
#ifndef VT_GRAMMAR_SCHEMA_H
#define VT_GRAMMAR_SCHEMA_H

#include "grammar/internal.h"

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_STRING = 16,
    TYPE_INTEGER = 32,
    TYPE_FRACTION = 64, /* a number that is no integer */
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ANY = 127
};

enum {
    SCHEMA_MAX_SET = 64,            /* schemas that hold at one place */
    SCHEMA_MAX_LEVELS = 200,        /* places below each other, through $ref too */
    SCHEMA_MAX_COUNT = 10000,       /* of minItems, maxItems, minProperties, maxProperties */
    SCHEMA_MAX_BRANCHES = 4096,     /* of all anyOf and oneOf together, multiplied out */
    SCHEMA_MAX_COMPARISONS = 300000 /* of schemas inside branches of oneOf */
};

typedef struct schema_set {
    struct schema_member {
        const json_t *is;
        int stage; /* 0: anyOf and oneOf are still to be chosen from, 1: oneOf, 2: neither */
    } at[SCHEMA_MAX_SET];
    int32_t n;
    bool never; /* false is in it */
} schema_set;

typedef struct schema_memo {
    schema_set set;
    symbol rule;
    struct schema_memo *next;
} schema_memo;

typedef struct compiler {
    rules *g;
    const json_t *root;
    vt_err *err;
    bool closed;     /* objects with `properties` have no others unless they say so */
    bool old_refs;   /* drafts up to 7: keywords beside $ref do not count */
    bool draft_4;    /* exclusiveMinimum is true or false */
    char path[1024]; /* where in the schema, for messages */
    size_t path_len;
    int32_t level, branches, comparisons;
    schema_memo *memo[256];
    symbol blanks; /* a lexeme, may be empty */
} compiler;

/* A number as the digits that it is written with. */
typedef struct decimal {
    bool given, negative, exclusive;
    char whole[400], fraction[400]; /* without needless zeros; whole of 0.5 is "0" */
} decimal;

bool decimal_read(const json_t *v, decimal *out); /* false: too long, or no number */

vt_status schema_refuse(compiler *c, const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends to the path for the time of a call; the result is its length before. */
size_t schema_enter(compiler *c, const char *keyword, const char *name);
void schema_leave(compiler *c, size_t before);

/* The rule of a set that holds one schema, or several. */
vt_status schema_one(compiler *c, const json_t *schema, symbol *out);
vt_status schema_rule(compiler *c, schema_set *set, symbol *out);
bool schema_add(schema_set *set, const json_t *schema);
/* The schema that a reference names. */
vt_status schema_resolve(compiler *c, const json_t *ref, const json_t **out);
unsigned schema_types(const json_t *schema); /* of "type"; TYPE_ANY if it is not there */

/* ---- schema_leaf.c and those that it uses ---- */

/* Adds the alternatives of a set without $ref, allOf, anyOf and oneOf to a rule. */
vt_status schema_leaf(compiler *c, const schema_set *set, symbol rule);
vt_status schema_object(compiler *c, const schema_set *set, symbol *out);
vt_status schema_array(compiler *c, const schema_set *set, symbol *out);
/* The body of a string, without quotes. *free: nothing is said of it but perhaps its length. */
vt_status schema_string(compiler *c, const schema_set *set, rx *body, bool *free);
vt_status schema_number(compiler *c, const schema_set *set, bool integer, rx *out);
/* Returns true if the two can never hold of one value. */
bool schema_disjoint(compiler *c, const json_t *a, const json_t *b);
/* The text of a string and its closing quote, in the one spelling that is generated. */
rx schema_literal(compiler *c, const char *s, size_t n);
/* A pattern for a format, to be matched whole; NULL: it is an annotation. */
const char *schema_format(const char *name);
/* One given value. */
vt_status schema_value(compiler *c, const json_t *v, symbol *out);

#endif
