/* JSON Schema to rules: what schema*.c share.
 *
 * A place of a document may have to satisfy several schemas at once (allOf, $ref beside other
 * keywords, a property that is listed twice). So a set of schemas is compiled, not one:
 *
 *   all of {a, b}   -> a's and b's $ref and allOf join the set, and what not, if and dependent...
 *                      say with other keywords (schema_expand.c)
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

/* Keywords of our own. No text of a user has them, because they are no UTF-8. */
#define SCHEMA_TYPES "\xFFtypes" /* a mask of TYPE_... */
#define SCHEMA_WAYS "\xFFways"   /* as anyOf, of which one way at a time counts */
#define SCHEMA_EXCEPT \
    "\xFF"            \
    "except"                                 /* strings that a string is not */
#define SCHEMA_LACKS "\xFFlacks"             /* a pattern that a string does not have */
#define SCHEMA_INDIVISIBLE "\xFFindivisible" /* a schema with what a number is no multiple of */
#define SCHEMA_FROM \
    "\xFF"          \
    "from" /* the first element that `contains` looks at */

/* An object has a member that is as `is` says, whose name has the pattern `pattern`, is not listed
 * by the schema `but`, and is none of the strings of the schema `names`; each may be left out. */
#define SCHEMA_HAS "\xFFhas"

enum { SCHEMA_STAGES = 3, SCHEMA_MAX_OWNERS = 64 };

typedef struct schema_member {
    const json_t *is;
    int stage;       /* 0: anyOf, oneOf and SCHEMA_WAYS are to be chosen from, 1: the last two.. */
    bool listed;     /* its enum and const have been dealt with */
    bool open;       /* objects and lists have others unless it says so, whatever `closed` is */
    uint64_t owners; /* bits of the schemas whose unevaluated... it counts for */
} schema_member;

typedef struct schema_set {
    schema_member at[SCHEMA_MAX_SET];
    int32_t n;
    bool never; /* false is in it */
} schema_set;

typedef struct schema_memo {
    schema_set set;
    symbol rule;
    struct schema_memo *next;
} schema_memo;

/* Schemas of our own by what they were made of. */
typedef enum schema_making {
    MADE_NO,
    MADE_NEGATION,
    MADE_VALUE,
    MADE_CONSTANT,
    MADE_LIST,
    MADE_IF,
    MADE_DEPENDENT,
    MADE_EXCLUSIVE,
    MADE_SUBSETS
} schema_making;

typedef struct schema_made {
    const void *of;
    schema_making how;
    json_t *is;
    struct schema_made *next;
} schema_made;

struct schema_index; /* schema_ref.c */

/* Schemas of our own that join a set: they restrict its type and the form of its values. */
typedef enum schema_mark {
    MARK_ARGUMENTS, /* the object of all arguments */
    MARK_STRING,    /* a string between tags, which are known to hold one */
    MARK_TEXT,      /* a string between tags that could hold JSON: it must not look like JSON */
    MARK_OTHER,     /* a value between tags that is no string */
    MARK_NUMBER,
    MARK_BOOLEAN,
    MARK_NULL,
    MARK_OBJECT,
    MARK_ARRAY,
    SCHEMA_MARKS
} schema_mark;

typedef struct compiler {
    rules *g;
    const json_t *root;
    vt_err *err;
    const argument_form *form;     /* NULL: JSON */
    const vt_grammar_vocab *vocab; /* with `form` */
    json_t *mark[SCHEMA_MARKS];
    bool closed;     /* objects with `properties` have no others unless they say so */
    bool old_refs;   /* drafts up to 7: keywords beside $ref do not count */
    bool draft_4;    /* exclusiveMinimum is true or false */
    char path[1024]; /* where in the schema, for messages */
    size_t path_len;
    int32_t level, branches, comparisons;
    schema_memo *memo[256];
    schema_made *made[256];
    struct schema_index *index;
    bool addressed;  /* some schema inside of the document has an $id or an anchor */
    bool draft_2019; /* `contains` says nothing of unevaluatedItems */
    const json_t *owner[SCHEMA_MAX_OWNERS]; /* schemas with unevaluated... */
    int32_t n_owners;
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
/* The same for a schema below a keyword of `from`. */
vt_status schema_join(compiler *c, schema_set *set, const schema_member *from, const char *keyword,
                      const json_t *schema);
/* $ref, allOf and the like of all members join the set. */
vt_status schema_flatten(compiler *c, schema_set *set);
/* The bit of a schema with unevaluated...; 0: it has none, or is none of the set's. */
uint64_t schema_owner_bit(const compiler *c, const json_t *schema);

/* ---- schema_ref.c ---- */

vt_status schema_index_make(compiler *c);
void schema_index_free(struct schema_index *x); /* may be NULL */
/* The schema that a reference names. */
vt_status schema_resolve(compiler *c, const char *keyword, const json_t *ref, const json_t **out);

/* ---- schema_expand.c: keywords as other ones; all results are kept until the end ---- */

/* The schema that holds where s does not. */
vt_status schema_negate(compiler *c, const json_t *s, const json_t **out);
const json_t *schema_not(compiler *c, const json_t *s); /* {"not": s} */
const json_t *schema_conditional(compiler *c, const json_t *s);
vt_status schema_dependent(compiler *c, const char *keyword, const json_t *v, const json_t **out);
/* The ways of a oneOf, each with the negation of those that could hold as well. */
const json_t *schema_exclusive(compiler *c, const json_t *list);
/* The ways of an anyOf, each choice of some of it. */
vt_status schema_subsets(compiler *c, const json_t *list, const json_t **out);
const json_t *schema_either(compiler *c, const json_t *const *s, int32_t n);
const json_t *schema_constant(compiler *c, const json_t *v);
/* An object, list or number by its keywords. */
const json_t *schema_of_value(compiler *c, const json_t *v);
void schema_made_free(compiler *c);

unsigned schema_types(const json_t *schema); /* of "type"; TYPE_ANY if it is not there */

/* Refuses keywords that are not supported, and types that are none. */
vt_status schema_check(compiler *c, const json_t *schema);
unsigned schema_type_of(const json_t *v);
bool schema_is_refused(const char *keyword); /* it is known and not supported */

/* ---- schema_leaf.c and those that it uses ---- */

/* Adds the alternatives of a set without $ref, allOf, anyOf and oneOf to a rule. */
vt_status schema_leaf(compiler *c, const schema_set *set, symbol rule);
vt_status schema_object(compiler *c, const schema_set *set, symbol *out);
vt_status schema_array(compiler *c, const schema_set *set, symbol *out);
/* A keyword that is a number from 0 on; *out stays where it is not there. */
vt_status schema_count(compiler *c, const json_t *s, const char *keyword, int64_t *out);
/* The tighter ones of all members; *max is -1 where there is none. */
vt_status schema_counts(compiler *c, const schema_set *set, const char *least, const char *most,
                        int64_t *min, int64_t *max);
/* The strings that a schema allows, in the spelling of names. */
vt_status schema_strings(compiler *c, const json_t *s, int depth, rx *out);
/* The body of a string, without quotes. *free: nothing is said of it at all. */
vt_status schema_string(compiler *c, const schema_set *set, rx *body, bool *free);
vt_status schema_number(compiler *c, const schema_set *set, bool integer, rx *out);
/* Returns true if the two can never hold of one value. */
bool schema_disjoint(compiler *c, const json_t *a, const json_t *b);
/* The body of a given string, in the one spelling that is generated. */
rx schema_literal(compiler *c, const char *s, size_t n, char_form form);
/* A pattern for a format, to be matched whole; NULL: it is an annotation. */
const char *schema_format(const char *name);
/* One given value. */
vt_status schema_value(compiler *c, const json_t *v, symbol *out);

/* ---- schema_notation.c: how values are written ---- */

vt_status notation_begin(compiler *c);
void notation_end(compiler *c);
bool notation_has(const compiler *c, const schema_set *set, schema_mark mark);
/* True if the set's strings stand between tags, as they are. `set` NULL: inside of a value. */
bool notation_is_bare(const compiler *c, const schema_set *set);
char_form notation_chars(const compiler *c, const schema_set *set);
/* Any character of a string of which nothing is said. */
rx notation_char(const compiler *c, const schema_set *set);
/* A string with what stands around it. */
rx notation_string(compiler *c, const schema_set *set, rx body);
vt_status notation_given(compiler *c, const schema_set *set, const char *s, size_t n, rx *out);
/* true, false and null as they are written. */
const char *notation_word(const compiler *c, const char *json);
/* A name of a nested object with what stands around it; `names` are the bodies of strings. */
rx notation_names(compiler *c, rx names);
/* Names of arguments: those of `names` that can be written. */
rx notation_argument_names(compiler *c, rx names);
vt_status notation_check_name(compiler *c, const char *name);
/* An argument: its name and its value, of which `value` is what the schema says. */
vt_status notation_argument(compiler *c, rx names, const char *name, const schema_set *value,
                            symbol *out);

#endif
