/* Values of a template, and the state of one rendering.
 *
 * The template interpreter is built from the bottom up. A file includes the headers of its own part
 * and of those before it, and calls nothing in a later file:
 *
 *   1. values.h        run.c      failures, limits, memory        chars.c   characters, case
 *                      string.c   strings, text being built       repr.c    str() and repr()
 *                      value.c    lists, dicts, equality, order, iteration
 *                      format.c   "%" and format specifications
 *   2. nodes.h         lex.c      source to tokens                parser.c  the parser's tools
 *                      expr.c     expressions                     parse.c   statements
 *   3. interpreter.h   ops.c      operators, attributes           eval.c    expressions to values
 *                      exec.c     statements, loops, macros
 *   4. builtins.h      arguments.c  checks and conversions        filters.c, seq.c, str.c,
 *                      methods.c, tests.c, globals.c, json.c      what templates can name
 *   5. template.h      template.c   the public functions
 *
 * Parts 2 and 3 reach the builtins only through the tables that part 5 passes in (tpl_tables).
 *
 * Memory: everything a rendering makes lives in one arena with a limit and dies with it, so no
 * function here frees anything and a failure needs no clean-up. Values are immutable once built,
 * except namespaces, one-shot iterators and the state of a loop: these are all that the sandbox
 * allows a template to change.
 *
 * Cost: a rendering has a budget of steps (template.h). One step pays for one of
 *   - an evaluated node, an element that is visited, a probe of a hash table;
 *   - 64 bytes that are copied, hashed or compared;
 *   - 16 bytes that are decoded character by character, or searched for a substring;
 *   - 8 bytes whose case is changed.
 * Whatever scans, builds or compares pays before it works (a substring search right after it), so
 * that a step never takes more than about 200 ns and the whole budget ends within seconds. `depth`
 * bounds the C stack.
 */
#ifndef VT_TEXT_TEMPLATE_VALUES_H
#define VT_TEXT_TEMPLATE_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    TPL_MAX_RANGE = 100000, /* items of a range, as in jinja2's sandbox */
    TPL_MEMORY = 256 << 20, /* bytes of values in one rendering */
    TPL_LOOK_EVERY = 4096,  /* steps between two questions whether to stop */
};

/* ---- values ---- */

typedef struct tpl_run tpl_run;
typedef struct tpl_object tpl_object;

typedef enum tpl_type {
    TPL_MISSING = 0, /* an argument that was not given; a template never sees it */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STR,
    TPL_LIST,
    TPL_TUPLE,
    TPL_VIEW, /* dict.keys(), .values(), .items(): has a length and no subscripts */
    TPL_DICT,
    TPL_RANGE,
    TPL_ITER, /* what Python gives as a generator: always true, no length, consumed once */
    TPL_NAMESPACE,
    TPL_FUNCTION,
    TPL_METHOD,
    TPL_OBJECT /* loop, macro, joiner: see tpl_class */
} tpl_type;

typedef struct tpl_value {
    tpl_type type;
    bool markup; /* a string that `safe` made, or what came of one: jinja2's Markup */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct tpl_str *str;
        struct tpl_list *list; /* TPL_LIST, TPL_TUPLE, TPL_VIEW */
        struct tpl_dict *dict; /* TPL_DICT, TPL_NAMESPACE */
        const struct tpl_range *range;
        struct tpl_iter *iter;
        const struct tpl_undef *undef;
        const struct tpl_builtin *function;
        const struct tpl_method *method;
        tpl_object *object;
    };
} tpl_value;

typedef struct tpl_str {
    const char *data; /* valid UTF-8, NUL-terminated, may hold NULs */
    size_t len;       /* bytes */
    size_t n_chars;   /* code points */
} tpl_str;

typedef struct tpl_list {
    tpl_value *at;
    size_t n, cap;
    const char *kind; /* of views "dict_keys", "dict_values", "dict_items"; of groupby "group" */
} tpl_list;

typedef struct tpl_entry {
    tpl_value key, value;
    uint64_t hash;
} tpl_entry;

/* Entries stand in the order of insertion. `index` (open addressing, entry number + 1) exists from
 * 9 entries on. */
typedef struct tpl_dict {
    tpl_entry *entry;
    size_t n, cap;
    uint32_t *index;
    size_t n_index; /* a power of two */
} tpl_dict;

typedef struct tpl_range {
    int64_t start, stop, step, n;
} tpl_range;

/* Items computed ahead. If computing them failed, the failure shows where Python's generator would
 * raise. */
typedef struct tpl_iter {
    tpl_list items;
    size_t next;
    const char *kind; /* "generator", "list_reverseiterator" */
    bool failed;
    vt_err failure;
} tpl_iter;

typedef struct tpl_undef {
    const char *hint;  /* the whole message, or NULL: it is built from the two below */
    const char *owner; /* type that lacks the attribute; NULL: a plain name is undefined */
    tpl_value key;     /* the name or element */
} tpl_undef;

/* A function that is bound to a value: "abc".upper */
typedef struct tpl_method {
    const struct tpl_builtin *builtin;
    tpl_value self;
} tpl_method;

typedef struct tpl_call {
    tpl_value *pos; /* [n_pos] */
    int32_t n_pos;
    tpl_entry *kw; /* [n_kw]; keys are strings */
    int32_t n_kw;
} tpl_call;

/* Text being built, in the arena. */
typedef struct tpl_text {
    char *data;
    size_t len, cap;
} tpl_text;

/* The abilities of an object. Loops, macros and joiners are objects: each lives in a file above the
 * evaluator, which reaches them through these functions. */
typedef struct tpl_class {
    const char *name; /* Python's name of the type */
    vt_status (*call)(tpl_run *r, tpl_object *self, const tpl_call *call, tpl_value *out);
    /* NULL: the object has no attributes */
    vt_status (*attribute)(tpl_run *r, tpl_object *self, const tpl_str *name, tpl_value *out,
                           bool *found);
    /* repr(); NULL: the object has none, because Python shows its address */
    vt_status (*repr)(tpl_run *r, tpl_object *self, tpl_text *t);
} tpl_class;

struct tpl_object {
    const tpl_class *class; /* the first member of every object's struct */
};

/* Position of an iteration over any iterable type. */
typedef struct tpl_cursor {
    tpl_value over;
    size_t pos; /* element number; byte offset for strings */
} tpl_cursor;

/* The item that a loop is at, and the loop around it: errors name the message they came from. */
typedef struct tpl_looped {
    tpl_value item;
    const struct tpl_looped *outer;
} tpl_looped;

/* ---- one rendering (run.c) ---- */

struct tpl_run {
    const char *name;            /* the template's, for messages */
    const struct vt_template *t; /* nodes.h */
    vt_err *err;
    vt_arena arena;
    int64_t max_steps;
    int64_t steps_now, steps_later; /* steps left before the next look at `stop`, and after it */
    bool (*stop)(void *context);    /* NULL: nothing can stop the rendering */
    void *stop_context;
    uint64_t seed; /* of the hash tables */
    int32_t depth, max_depth;
    int32_t line;
    size_t max_output;
    int64_t now;
    /* the interpreter's (interpreter.h) */
    tpl_text *out; /* where output goes: the rendering's text, or that of the innermost capture */
    struct tpl_scope *scope;
    struct tpl_var *free_vars;
    const tpl_looped *looped; /* the innermost loop that runs; NULL: none */
    int flow;                 /* a break or continue on its way to the loop (exec.c) */
};

/* Each fails with "NAME:LINE: ..." and the status VT_ERR_USAGE, VT_ERR_UNSUPPORTED or
 * VT_ERR_MEMORY. */
vt_status tpl_fail(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_unsupported(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_limit(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_overflow(tpl_run *r); /* an integer needs more than 64 bits */

/* Takes steps from the budget; fails when it is used up or the caller wants to stop. */
vt_status tpl_charge_slowly(tpl_run *r, size_t steps);
static inline vt_status tpl_charge(tpl_run *r, size_t steps)
{
    if (steps > (size_t)r->steps_now)
        return tpl_charge_slowly(r, steps);
    r->steps_now -= (int64_t)steps;
    return VT_OK;
}
int64_t tpl_steps_taken(const tpl_run *r);

/* Around anything that may recurse; tpl_leave after every tpl_enter that returned VT_OK. */
vt_status tpl_enter(tpl_run *r);
static inline void tpl_leave(tpl_run *r) { r->depth--; }

/* n zeroed elements of `size` bytes from the rendering's arena. NULL: the error is set, and the
 * caller returns VT_ERR_MEMORY. */
void *tpl_alloc(tpl_run *r, size_t n, size_t size);

/* ---- making values, looking into them ---- */

static inline tpl_value tpl_none(void) { return (tpl_value){.type = TPL_NONE}; }
static inline tpl_value tpl_bool(bool b) { return (tpl_value){.type = TPL_BOOL, .boolean = b}; }
static inline tpl_value tpl_int(int64_t i) { return (tpl_value){.type = TPL_INT, .integer = i}; }
static inline tpl_value tpl_float(double d) { return (tpl_value){.type = TPL_FLOAT, .real = d}; }
static inline tpl_value tpl_of_str(const tpl_str *s)
{
    return (tpl_value){.type = TPL_STR, .str = s};
}
static inline tpl_value tpl_of_list(tpl_type type, tpl_list *l)
{
    return (tpl_value){.type = type, .list = l};
}
static inline tpl_value tpl_of_dict(tpl_dict *d)
{
    return (tpl_value){.type = TPL_DICT, .dict = d};
}
static inline tpl_value tpl_of_object(tpl_object *o)
{
    return (tpl_value){.type = TPL_OBJECT, .object = o};
}
static inline bool tpl_is_int(tpl_value v) { return v.type == TPL_INT || v.type == TPL_BOOL; }
static inline bool tpl_is_number(tpl_value v) { return tpl_is_int(v) || v.type == TPL_FLOAT; }
static inline int64_t tpl_as_int(tpl_value v) { return v.type == TPL_BOOL ? v.boolean : v.integer; }
static inline double tpl_as_float(tpl_value v)
{
    return v.type == TPL_FLOAT ? v.real : (double)tpl_as_int(v);
}
/* Missing or none: an argument that was left out. */
static inline bool tpl_absent(tpl_value v) { return v.type == TPL_MISSING || v.type == TPL_NONE; }
static inline bool tpl_str_is(const tpl_str *s, const char *c)
{
    return s->len == strlen(c) && memcmp(s->data, c, s->len) == 0;
}

/* ---- characters (chars.c) ---- */

/* Decodes the character at s; returns its bytes. */
static inline size_t tpl_next(const char *s, uint32_t *c) { return (size_t)vt_utf8_next(s, c); }

typedef enum tpl_case { TPL_UPPER = 0, TPL_LOWER, TPL_TITLECASE } tpl_case;

bool tpl_is_space(uint32_t c);
bool tpl_is_alpha(uint32_t c);
bool tpl_is_alnum(uint32_t c);
bool tpl_is_digit(uint32_t c);
bool tpl_is_lower(uint32_t c);
bool tpl_is_upper(uint32_t c);
bool tpl_is_cased(uint32_t c);
bool tpl_is_printable(uint32_t c);
/* A character of a name, the first one or a later one. */
bool tpl_is_name(uint32_t c, bool first);
/* Up to three code points; returns how many. */
int tpl_char_case(uint32_t c, tpl_case k, uint32_t out[3]);
/* The sigma at s[pos] is the last letter of a word and has the final form in lower case. */
bool tpl_is_final_sigma(const char *s, size_t len, size_t pos);
/* Offset of the character before s[pos]; pos > 0. */
size_t tpl_char_before(const char *s, size_t pos);
/* Bytes of white space at the beginning of s; length of s without the white space at its end. */
size_t tpl_spaces_before(const char *s, size_t len);
size_t tpl_trimmed_length(const char *s, size_t len);
/* The line that begins at `begin`: where it ends, and where the next begins (as
 * str.splitlines()). */
void tpl_line_end(const tpl_str *s, size_t begin, size_t *end, size_t *next);

/* ---- strings and text (string.c) ---- */

const char *tpl_type_name(tpl_value v); /* Python's: "str", "NoneType" */
size_t tpl_count_chars(const char *s, size_t len);
/* A string value over bytes that live as long as the rendering; over a copy of them. */
vt_status tpl_str_wrap(tpl_run *r, const char *s, size_t len, tpl_value *out);
vt_status tpl_str_copy(tpl_run *r, const char *s, size_t len, tpl_value *out);
vt_status tpl_str_printf(tpl_run *r, tpl_value *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Byte offset of character `n` (n <= n_chars). */
size_t tpl_str_offset(const tpl_str *s, size_t n);
/* Position of the first or last `sub` in s[0..len), or NULL. */
vt_status tpl_search(tpl_run *r, const char *s, size_t len, const tpl_str *sub, bool last,
                     const char **at);
/* The last one again, where the caller has paid for going through s. */
vt_status tpl_search_back(tpl_run *r, const char *s, size_t len, const tpl_str *sub,
                          const char **at);

vt_status tpl_text_add(tpl_run *r, tpl_text *t, const void *bytes, size_t n);
vt_status tpl_text_puts(tpl_run *r, tpl_text *t, const char *s);
vt_status tpl_text_fill(tpl_run *r, tpl_text *t, const char *bytes, size_t n, int64_t times);
vt_status tpl_text_value(tpl_run *r, const tpl_text *t, tpl_value *out); /* the text as a string */
/* str.upper() and the like of s[begin..len); the characters before `begin` decide about a final
 * sigma. */
vt_status tpl_put_case(tpl_run *r, tpl_text *t, const char *s, size_t begin, size_t len,
                       tpl_case k);

/* ---- text forms (repr.c) ---- */

vt_status tpl_put_str(tpl_run *r, tpl_text *t, tpl_value v);  /* str(v) */
vt_status tpl_put_repr(tpl_run *r, tpl_text *t, tpl_value v); /* repr(v) */
vt_status tpl_to_str(tpl_run *r, tpl_value v, tpl_value *out);
/* str(v) as markup: markup stays as it is, in anything else & < > ' and " are escaped. */
vt_status tpl_escape(tpl_run *r, tpl_value v, tpl_value *out);
size_t tpl_format_float(double d, char *out /* [40] */); /* repr(float) */

/* ---- lists and dicts (value.c) ---- */

vt_status tpl_list_new(tpl_run *r, size_t cap, tpl_list **out);
vt_status tpl_list_add(tpl_run *r, tpl_list *l, tpl_value v);
void tpl_list_reverse(tpl_list *l);
vt_status tpl_pair(tpl_run *r, tpl_value a, tpl_value b, tpl_value *out); /* a tuple of two */
vt_status tpl_dict_new(tpl_run *r, tpl_dict **out);
/* Fails for a key that cannot be hashed. */
vt_status tpl_dict_set(tpl_run *r, tpl_dict *d, tpl_value key, tpl_value value);
/* The same for lookups; *out is NULL where there is no such key. */
vt_status tpl_dict_find(tpl_run *r, const tpl_dict *d, tpl_value key, tpl_value **out);
vt_status tpl_hashable(tpl_run *r, tpl_value v, bool *hashable);

bool tpl_truth(tpl_value v);
vt_status tpl_equal(tpl_run *r, tpl_value a, tpl_value b, bool *equal);
/* Python's order: *order < 0, 0, > 0, or 2 for a NaN; fails for types that have none. `op` is for
 * the message. */
vt_status tpl_order(tpl_run *r, tpl_value a, tpl_value b, const char *op, int *order);
bool tpl_length(tpl_value v, int64_t *n); /* false: the type has no len() */

bool tpl_iterable(tpl_value v);
vt_status tpl_cursor_init(tpl_run *r, tpl_value over, tpl_cursor *c); /* fails if not iterable */
vt_status tpl_cursor_next(tpl_run *r, tpl_cursor *c, tpl_value *item, bool *end);
vt_status tpl_to_list(tpl_run *r, tpl_value v, tpl_list **out); /* list(v), always a new list */
vt_status tpl_contains(tpl_run *r, tpl_value item, tpl_value in, bool *found);
/* A one-shot iterator over `items`; a `status` that is a failure (its message in r->err) shows
 * when the template reaches their end. */
vt_status tpl_iter_new(tpl_run *r, tpl_list *items, vt_status status, tpl_value *out);

vt_status tpl_undefined_name(tpl_run *r, const char *name, tpl_value *out);
vt_status tpl_undefined_hint(tpl_run *r, const char *hint, tpl_value *out);
vt_status tpl_undefined_in(tpl_run *r, tpl_value owner, tpl_value key, tpl_value *out);
vt_status tpl_fail_undefined(tpl_run *r, tpl_value v);

/* ---- formatting (format.c) ---- */

/* format % args */
vt_status tpl_percent(tpl_run *r, tpl_value format, tpl_value args, tpl_value *out);
/* One value by a format specification: the part of {} after the colon. */
vt_status tpl_put_spec(tpl_run *r, tpl_text *t, tpl_value v, const char *spec, size_t len);

#endif
