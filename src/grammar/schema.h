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
