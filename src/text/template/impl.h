/* Inside of the template interpreter: nodes, values and the state of one rendering.
 *
 *   source --lex--> tokens --parse--> nodes (immutable, in the template's arena)
 *   variables (JSON) --> values;  exec(nodes, values) --> text
 *
 *   template_lex.c      tags, whitespace, tokens      template_format.c   str(), repr(), % and
 * format() template_parse.c    statements                    template_json.c     JSON in, tojson
 * out template_expr.c     expressions                   template_filters.c  filters of one value
 *   template_value.c    strings, lists, dicts         template_seq.c      filters of sequences
 *   template_ops.c      operators, attributes         template_str.c      methods of str
 *   template_eval.c     expressions to values         template_methods.c  methods of list, dict ...
 *   template_exec.c     statements, loops, macros     template_tests.c    what stands behind `is`
 *   template_chars.c    Unicode properties            template_globals.c  range, namespace ...
 *   template_wrap.c     wordwrap
 *
 * Memory: everything a rendering makes lives in one arena with a limit and dies with it, so no
 * function here frees anything and a failure needs no clean-up. Values are immutable once built,
 * except namespaces, one-shot iterators and the loop's own state; that is what the sandbox allows a
 * template to change.
 *
 * Cost: every evaluated node, every element visited and every 64 bytes written is a step; a
 * rendering that passes max_steps ends with an error. `depth` bounds the C stack.
 */
#ifndef VT_TEXT_TEMPLATE_IMPL_H
#define VT_TEXT_TEMPLATE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/template/template.h"

enum {
    TPL_MAX_SOURCE = 1 << 20, /* bytes of a template */
    TPL_MAX_NESTING = 100,    /* of tags and brackets in the source */
    TPL_MAX_PARAMS = 6,       /* named parameters of a builtin */
    TPL_MAX_RANGE = 100000,   /* as jinja2's sandbox */
    TPL_MEMORY = 256 << 20,   /* bytes of values in one rendering */
};

/* ---- values ---- */

typedef struct tpl_run tpl_run;
typedef struct tpl_node tpl_node;
typedef struct tpl_builtin tpl_builtin;

typedef enum tpl_type {
    TPL_MISSING = 0, /* an argument that was not given; never seen by a template */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STR,
    TPL_LIST,
    TPL_TUPLE,
    TPL_VIEW, /* dict.keys(), .values(), .items(): sized, not subscriptable */
    TPL_DICT,
    TPL_RANGE,
    TPL_ITER, /* what Python gives as a generator: always true, no length, consumed once */
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_FUNCTION,
    TPL_METHOD,
    TPL_LOOP,
    TPL_CYCLER,
    TPL_JOINER
} tpl_type;

typedef struct tpl_value {
    tpl_type type;
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
        struct tpl_macro *macro;
        const tpl_builtin *function;
        const struct tpl_method *method;
        struct tpl_loop *loop;
        struct tpl_cycler *cycler;
        struct tpl_joiner *joiner;
    };
} tpl_value;

typedef struct tpl_str {
    const char *data; /* valid UTF-8, NUL-terminated, may hold NULs */
    size_t len;       /* bytes */
    size_t n_chars;   /* code points */
    bool markup;      /* markupsafe.Markup: `+` and `%` escape what they add */
} tpl_str;

typedef struct tpl_list {
    tpl_value *at;
    size_t n, cap;
    const char *kind; /* of views "dict_keys" ..., of groupby's tuples "group", else NULL */
} tpl_list;

typedef struct tpl_entry {
    tpl_value key, value;
    uint64_t hash;
} tpl_entry;

/* Insertion order is entry order. `index` (open addressing, entry number + 1) exists from 9 entries
 * on. */
typedef struct tpl_dict {
    tpl_entry *entry;
    size_t n, cap;
    uint32_t *index;
    size_t n_index; /* a power of two */
} tpl_dict;

typedef struct tpl_range {
    int64_t start, stop, step, n;
} tpl_range;

/* Items computed ahead; if computing them failed, the failure shows where Python's generator would
 * raise. */
typedef struct tpl_iter {
    tpl_list items;
    size_t next;
    const char *kind; /* "generator", "list_reverseiterator" */
    bool failed;
    vt_err failure;
} tpl_iter;

typedef struct tpl_undef {
    const char *hint; /* the whole message, or NULL: built from the two below */
    const char *of;   /* type the attribute was looked up on, or NULL: a plain name */
    tpl_value key;    /* the name or element */
} tpl_undef;

typedef struct tpl_method {
    const tpl_builtin *builtin;
    tpl_value self;
} tpl_method;

typedef struct tpl_cycler {
    tpl_list items;
    size_t pos;
} tpl_cycler;

typedef struct tpl_joiner {
    tpl_value separator;
    bool used;
} tpl_joiner;

/* Variables are few per scope: a list of interned names. Scopes that a macro has captured are kept.
 */
typedef struct tpl_var {
    const char *name; /* interned: compared by address */
    tpl_value value;
    struct tpl_var *next;
} tpl_var;

typedef struct tpl_scope {
    struct tpl_scope *parent;
    tpl_var *vars;
    bool captured;
} tpl_scope;

typedef struct tpl_nodes {
    tpl_node **at;
    int32_t n, cap;
} tpl_nodes;

typedef struct tpl_macro_def {
    const char *name;             /* NULL: the body of a call block */
    int32_t n_params, n_defaults; /* defaults belong to the last n_defaults parameters */
    const char **param;
    tpl_node **defaults;
    tpl_nodes body;
    bool uses_caller, uses_kwargs,
        uses_varargs; /* read and no parameters: passed in all the same */
} tpl_macro_def;

typedef struct tpl_macro {
    const tpl_macro_def *def;
    tpl_scope *closure;
} tpl_macro;

/* Where an iteration stands, for every iterable type. */
typedef struct tpl_cursor {
    tpl_value of;
    size_t pos; /* element number; byte offset for strings */
} tpl_cursor;

typedef struct tpl_loop {
    const tpl_node *node; /* the for statement */
    tpl_scope *scope;     /* where it stands, for its test and its recursion */
    tpl_cursor cursor;
    int64_t index0, length; /* length -1: not asked yet */
    int32_t depth0;
    bool has_after, after_is_end;
    bool tested; /* the cursor's items have passed the test already */
    tpl_value after, current, before, changed;
} tpl_loop;

/* ---- calls ---- */

typedef struct tpl_call {
    tpl_value *pos; /* [n_pos] */
    int32_t n_pos;
    tpl_entry *kw; /* [n_kw]; keys are strings */
    int32_t n_kw;
} tpl_call;

/* arg[i] is the i-th named parameter or TPL_MISSING; variadic builtins read `call` instead. */
typedef vt_status (*tpl_fn)(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call,
                            tpl_value *out);

/* A filter, test, method or function. `params` are names in order; a name that starts with "."
 * cannot be given by keyword. max -1: variadic. */
struct tpl_builtin {
    const char *name;
    tpl_fn fn;
    int32_t min, max;
    const char *params[TPL_MAX_PARAMS];
};

/* ---- nodes ---- */

typedef enum tpl_kind {
    /* expressions          a, b, c, d                         else */
    TPL_N_CONST = 0, /*                                    value */
    TPL_N_NAME,      /*                                    name */
    TPL_N_NSREF,     /* target ns.attr                     name, attr */
    TPL_N_TUPLE,     /*                                    items */
    TPL_N_LIST,      /*                                    items */
    TPL_N_DICT,      /*                                    items: key, value, key, value ... */
    TPL_N_COND,      /* a if b else c (c may be NULL) */
    TPL_N_OR,
    TPL_N_AND,     /* a, b */
    TPL_N_NOT,     /* a */
    TPL_N_COMPARE, /* a                                  items: operands, each with its op */
    TPL_N_BINARY,  /* a op b */
    TPL_N_CONCAT,  /*                                    items */
    TPL_N_NEG,
    TPL_N_POS,     /* a */
    TPL_N_GETATTR, /* a                                  attr */
    TPL_N_GETITEM, /* a[b] */
    TPL_N_SLICE,   /* a[b:c:d], each of b c d may be NULL */
    TPL_N_CALL,    /* a(args)                            args */
    TPL_N_FILTER,  /* a|builtin(args); a NULL: a block's text */
    TPL_N_TEST,    /* a is builtin(args) */
    /* statements */
    TPL_N_DATA,         /*                                    value */
    TPL_N_OUTPUT,       /* a */
    TPL_N_IF,           /* a                                  body, orelse, items: the elifs */
    TPL_N_FOR,          /* a target, b iterable, c test or NULL   body, orelse, recursive */
    TPL_N_SET,          /* a target, b expression */
    TPL_N_SET_BLOCK,    /* a target, b filters or NULL        body */
    TPL_N_MACRO,        /*                                    macro */
    TPL_N_CALL_BLOCK,   /* a the call                         macro */
    TPL_N_GENERATION,   /*                                    macro */
    TPL_N_FILTER_BLOCK, /* b filters                          body */
    TPL_N_WITH,         /*                                    items: target, value, ...; body */
    TPL_N_BREAK,
    TPL_N_CONTINUE
} tpl_kind;

typedef enum tpl_op {
    TPL_OP_ADD = 0,
    TPL_OP_SUB,
    TPL_OP_MUL,
    TPL_OP_DIV,
    TPL_OP_FLOORDIV,
    TPL_OP_MOD,
    TPL_OP_POW,
    TPL_OP_EQ,
    TPL_OP_NE,
    TPL_OP_LT,
    TPL_OP_LE,
    TPL_OP_GT,
    TPL_OP_GE,
    TPL_OP_IN,
    TPL_OP_NOT_IN
} tpl_op;

typedef struct tpl_node_args {
    tpl_nodes pos;
    tpl_nodes kw; /* values; the names are in kw_name */
    const char **kw_name;
    tpl_node *dyn_pos, *dyn_kw; /* *x and **x, or NULL */
} tpl_node_args;

struct tpl_node {
    tpl_kind kind;
    tpl_op op;
    int32_t line;
    bool recursive;
    const char *name, *attr; /* interned */
    tpl_value value;
    tpl_node *a, *b, *c, *d;
    tpl_nodes items, body, orelse;
    tpl_node_args *args;
    const tpl_builtin
        *builtin; /* NULL: unknown, refused if it is ever reached (inside an if or inline if) */
    tpl_macro_def *macro;
};

struct vt_template {
    vt_arena arena;
    const char *name;
    tpl_nodes body;
    const char **intern; /* names in the source, a hash table by content */
    size_t n_intern, cap_intern;
    const char *loop_name, *caller_name, *kwargs_name, *varargs_name; /* interned */
};

/* The interned form of a name, or NULL if the template never uses it. */
const char *tpl_intern_find(const vt_template *t, const char *name, size_t len);

/* ---- tokens (template_lex.c) ---- */

typedef enum tpl_token_type {
    TPL_T_EOF = 0,
    TPL_T_DATA,
    TPL_T_VARIABLE_BEGIN,
    TPL_T_VARIABLE_END,
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_NAME,
    TPL_T_STRING,
    TPL_T_INTEGER,
    TPL_T_FLOAT,
    TPL_T_OPERATOR
} tpl_token_type;

typedef struct tpl_token {
    tpl_token_type type;
    int32_t line;
    const char *text; /* data, name, string: the value (NUL-terminated); operator: its spelling */
    size_t len;
    int64_t integer;
    double real;
} tpl_token;

typedef struct tpl_tokens {
    tpl_token *at;
    size_t n, cap;
} tpl_tokens;

vt_status tpl_lex(vt_template *t, const char *source, size_t len, tpl_tokens *out, vt_err *err);

/* ---- the parser (template_parse.c, template_expr.c) ---- */

typedef struct tpl_macro_scan { /* which special names the macro being parsed reads */
    struct tpl_macro_scan *outer;
    bool caller, kwargs, varargs;          /* read */
    bool no_caller, no_kwargs, no_varargs; /* assigned first: ordinary names from then on */
} tpl_macro_scan;

typedef struct tpl_parser {
    vt_template *t;
    const tpl_token *tok; /* the current one */
    const tpl_token *tokens;
    vt_err *err;
    int32_t nesting;
    int32_t loops; /* for loops around this point within the current macro */
    tpl_macro_scan *scan;
} tpl_parser;

vt_status tpl_syntax(const tpl_parser *p, int32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
vt_status tpl_node_new(tpl_parser *p, tpl_kind kind, int32_t line, tpl_node **out);
vt_status tpl_nodes_add(tpl_parser *p, tpl_nodes *list, tpl_node *node);
const char *tpl_intern(vt_template *t, const char *name, size_t len); /* NULL: out of memory */
bool tpl_at_op(const tpl_parser *p, const char *op);
bool tpl_at_name(const tpl_parser *p, const char *name);
bool tpl_skip_op(tpl_parser *p, const char *op);
bool tpl_skip_name(tpl_parser *p, const char *name);
vt_status tpl_expect_op(tpl_parser *p, const char *op);
vt_status tpl_expect_name(tpl_parser *p, const char *name);
vt_status tpl_unexpected(const tpl_parser *p, const char *wanted);
void tpl_scan_store(tpl_parser *p, const char *name);
void tpl_scan_load(tpl_parser *p, const char *name);

vt_status tpl_parse_expression(tpl_parser *p, tpl_node **out);
/* end: a name that ends the tuple early ("in", "recursive"), or NULL. */
vt_status tpl_parse_tuple(tpl_parser *p, bool with_condition, const char *end, tpl_node **out);
vt_status tpl_parse_target(tpl_parser *p, bool with_namespace, const char *end, tpl_node **out);
vt_status tpl_parse_filters(tpl_parser *p, tpl_node *of, bool inline_start, tpl_node **out);

/* ---- a rendering ---- */

typedef enum tpl_flow { TPL_FLOW_NONE = 0, TPL_FLOW_BREAK, TPL_FLOW_CONTINUE } tpl_flow;

/* Text being built, in the arena. */
typedef struct tpl_text {
    char *data;
    size_t len, cap;
} tpl_text;

struct tpl_run {
    const vt_template *t;
    vt_err *err;
    vt_arena arena;
    int64_t steps_left;
    int64_t max_steps;
    int32_t depth, max_depth;
    int32_t line;
    size_t max_output;
    int64_t now;
    tpl_text *out; /* where output goes: the rendering's, or the innermost capture's */
    tpl_scope *scope;
    tpl_var *free_vars;
    tpl_flow flow;
};

/* "NAME:LINE: ..." */
vt_status tpl_fail(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_unsupported(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_limit(tpl_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
vt_status tpl_no_memory(tpl_run *r);
vt_status tpl_charge(tpl_run *r, size_t steps);
/* Around anything that may recurse; tpl_leave after every tpl_enter that returned VT_OK. */
vt_status tpl_enter(tpl_run *r);
static inline void tpl_leave(tpl_run *r) { r->depth--; }
/* p = n zeroed elements from the rendering's arena, or return. */
#define TPL_NEW(r, p, n)                                             \
    do {                                                             \
        (p) = vt_arena_alloc(&(r)->arena, (size_t)(n), sizeof *(p)); \
        if (!(p)) {                                                  \
            tpl_no_memory(r);                                        \
            return VT_ERR_MEMORY;                                    \
        }                                                            \
    } while (0)

/* ---- values (template_value.c) ---- */

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
static inline bool tpl_is_int(tpl_value v) { return v.type == TPL_INT || v.type == TPL_BOOL; }
static inline bool tpl_is_number(tpl_value v) { return tpl_is_int(v) || v.type == TPL_FLOAT; }
static inline int64_t tpl_as_int(tpl_value v) { return v.type == TPL_BOOL ? v.boolean : v.integer; }
static inline double tpl_as_float(tpl_value v)
{
    return v.type == TPL_FLOAT ? v.real : (double)tpl_as_int(v);
}
static inline bool tpl_is_list(tpl_value v)
{
    return v.type == TPL_LIST || v.type == TPL_TUPLE || v.type == TPL_VIEW;
}
static inline bool tpl_str_is(const tpl_str *s, const char *c)
{
    return s->len == strlen(c) && memcmp(s->data, c, s->len) == 0;
}

const char *tpl_type_name(tpl_value v); /* Python's: "str", "NoneType" */
size_t tpl_count_chars(const char *s, size_t len);
/* A string value over bytes that live as long as the rendering / over a copy of them. */
vt_status tpl_str_wrap(tpl_run *r, const char *s, size_t len, tpl_value *out);
vt_status tpl_str_copy(tpl_run *r, const char *s, size_t len, tpl_value *out);
vt_status tpl_str_printf(tpl_run *r, tpl_value *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
vt_status tpl_str_markup(tpl_run *r, tpl_value s, bool markup, tpl_value *out);
/* Byte offset of character `n` (n <= n_chars). */
size_t tpl_str_offset(const tpl_str *s, size_t n);

vt_status tpl_text_add(tpl_run *r, tpl_text *t, const void *bytes, size_t n);
vt_status tpl_text_puts(tpl_run *r, tpl_text *t, const char *s);
vt_status tpl_text_fill(tpl_run *r, tpl_text *t, const char *bytes, size_t n, int64_t times);
vt_status tpl_text_value(tpl_run *r, const tpl_text *t, tpl_value *out); /* the text as a string */

vt_status tpl_list_new(tpl_run *r, size_t cap, tpl_list **out);
vt_status tpl_list_add(tpl_run *r, tpl_list *l, tpl_value v);
void tpl_list_reverse(tpl_list *l);
vt_status tpl_pair(tpl_run *r, tpl_value a, tpl_value b, tpl_value *out); /* a tuple of two */
vt_status tpl_dict_new(tpl_run *r, tpl_dict **out);
/* Keys must be hashable (tpl_hash) or this fails. */
vt_status tpl_dict_set(tpl_run *r, tpl_dict *d, tpl_value key, tpl_value value);
/* *out NULL: no such key. An unhashable key is not found. */
vt_status tpl_dict_find(tpl_run *r, const tpl_dict *d, tpl_value key, tpl_value **out);
bool tpl_hashable(tpl_value v);

bool tpl_truth(tpl_value v);
vt_status tpl_equal(tpl_run *r, tpl_value a, tpl_value b, bool *equal);
/* Python's ordering: *order < 0, 0, > 0; fails for types that have none. `op` is for the message.
 */
vt_status tpl_order(tpl_run *r, tpl_value a, tpl_value b, const char *op, int *order);
bool tpl_length(tpl_value v, int64_t *n); /* false: the type has no len() */

bool tpl_iterable(tpl_value v);
vt_status tpl_cursor_init(tpl_run *r, tpl_value of, tpl_cursor *c); /* fails if not iterable */
vt_status tpl_cursor_next(tpl_run *r, tpl_cursor *c, tpl_value *item, bool *end);
vt_status tpl_to_list(tpl_run *r, tpl_value v, tpl_list **out); /* list(v), always a fresh list */
vt_status tpl_contains(tpl_run *r, tpl_value item, tpl_value in, bool *found);
/* A one-shot iterator over what was computed; keeps `status` (and r->err) for when it is reached.
 */
vt_status tpl_iter_new(tpl_run *r, tpl_list *items, vt_status status, tpl_value *out);

vt_status tpl_undefined_name(tpl_run *r, const char *name, tpl_value *out);
vt_status tpl_undefined_hint(tpl_run *r, const char *hint, tpl_value *out);
vt_status tpl_undefined_of(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out);
vt_status tpl_fail_undefined(tpl_run *r, tpl_value v);

/* ---- operators (template_ops.c) ---- */

vt_status tpl_binary(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, tpl_value *out);
vt_status tpl_compare(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, bool *out);
vt_status tpl_negate(tpl_run *r, tpl_value a, bool minus, tpl_value *out);
vt_status tpl_getattr(tpl_run *r, tpl_value of, tpl_value name, tpl_value *out);
vt_status tpl_getitem(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out);
vt_status tpl_attribute(tpl_run *r, tpl_value of, const tpl_str *name, tpl_value *out, bool *found);
vt_status tpl_slice(tpl_run *r, tpl_value of, tpl_value start, tpl_value stop, tpl_value step,
                    tpl_value *out);

/* ---- text forms (template_format.c) ---- */

vt_status tpl_put_str(tpl_run *r, tpl_text *t, tpl_value v);  /* str(v) */
vt_status tpl_put_repr(tpl_run *r, tpl_text *t, tpl_value v); /* repr(v) */
vt_status tpl_to_str(tpl_run *r, tpl_value v, tpl_value *out);
size_t tpl_format_float(double d, char *out /* [40] */);         /* repr(float) */
vt_status tpl_put_escaped(tpl_run *r, tpl_text *t, tpl_value v); /* HTML, unless markup */
vt_status tpl_percent(tpl_run *r, const tpl_str *format, tpl_value args, tpl_value *out);
vt_status tpl_str_format(tpl_run *r, const tpl_str *format, const tpl_call *call, tpl_value *out);
/* One value by a format specification: the part of {} after the colon. */
vt_status tpl_put_spec(tpl_run *r, tpl_text *t, tpl_value v, const char *spec, size_t len);

/* ---- evaluation (template_eval.c, template_exec.c) ---- */

vt_status tpl_eval(tpl_run *r, const tpl_node *n, tpl_value *out);
vt_status tpl_eval_args(tpl_run *r, const tpl_node_args *args, tpl_call *out, int32_t spare_kw);
vt_status tpl_apply(tpl_run *r, const tpl_builtin *b, const char *what, tpl_value self,
                    const tpl_call *call, tpl_value *out);
vt_status tpl_call_value(tpl_run *r, tpl_value f, const tpl_call *call, tpl_value *out);
vt_status tpl_call_macro(tpl_run *r, const tpl_macro *m, const tpl_call *call, tpl_value *out);
vt_status tpl_exec(tpl_run *r, const tpl_nodes *body);
vt_status tpl_loop_call(tpl_run *r, tpl_loop *loop, tpl_value iterable, tpl_value *out);
vt_status tpl_loop_attribute(tpl_run *r, tpl_loop *loop, const tpl_str *name, tpl_value *out,
                             bool *found);
/* A filter block's input: filters with a NULL `a` read it. */
vt_status tpl_eval_filters(tpl_run *r, const tpl_node *n, tpl_value input, tpl_value *out);

vt_status tpl_bind_variable(tpl_run *r, const char *name, size_t len, tpl_value value);

/* Checks of arguments, for builtins; `what` names the argument in the message. */
vt_status tpl_want_str(tpl_run *r, tpl_value v, const char *what, const tpl_str **out);
vt_status tpl_want_int(tpl_run *r, tpl_value v, const char *what, int64_t absent,
                       int64_t *out); /* absent if missing or none */
/* str.replace with counting; count < 0: all. */
vt_status tpl_replace(tpl_run *r, const tpl_str *s, const tpl_str *old, const tpl_str *fresh,
                      int64_t count, tpl_value *out);
/* Text in a field of `width` characters; align as in format(): '<' '>' '^'. */
vt_status tpl_justify(tpl_run *r, const tpl_str *s, int64_t width, char align, const char *fill,
                      size_t n_fill, tpl_value *out);
vt_status tpl_parse_int(tpl_run *r, const tpl_str *s, int64_t base, int64_t *out, bool *ok);
bool tpl_parse_float(const tpl_str *s, double *out);

/* ---- builtins; NULL if there is none of that name ---- */

const tpl_builtin *tpl_find(const tpl_builtin *table, size_t n, const char *name, size_t len);
const tpl_builtin *tpl_filter(const char *name, size_t len);
const tpl_builtin *tpl_seq_filter(const char *name, size_t len);
const tpl_builtin *tpl_test(const char *name, size_t len);
const tpl_builtin *tpl_global(const char *name, size_t len);
const tpl_builtin *tpl_str_method(const char *name, size_t len);
const tpl_builtin *tpl_method_of(tpl_value v, const char *name, size_t len);

/* ---- sequences (template_seq.c) ---- */

/* Sorts items[i] by keys[i], stable; keys may be the items. first_part: keys are tuples, ordered by
 * their first value alone. */
vt_status tpl_sort(tpl_run *r, tpl_list *items, tpl_list *keys, bool first_part, bool reverse);

/* ---- wordwrap (template_wrap.c) ---- */

vt_status tpl_filter_wordwrap(tpl_run *r, tpl_value self, const tpl_value *arg,
                              const tpl_call *call, tpl_value *out);

/* ---- JSON (template_json.c) ---- */

vt_status tpl_variables(tpl_run *r, const char *json, size_t len);
/* The same from an object that is parsed already. */
vt_status tpl_variables_of(tpl_run *r, struct json_t *object);
vt_status tpl_filter_tojson(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call,
                            tpl_value *out);

/* ---- characters (template_chars.c) ---- */

typedef enum tpl_class {
    TPL_C_ALPHA = 0,
    TPL_C_DECIMAL,
    TPL_C_DIGIT,
    TPL_C_NUMERIC,
    TPL_C_SPACE,
    TPL_C_LOWER,
    TPL_C_UPPER,
    TPL_C_TITLE,
    TPL_C_PRINTABLE,
    TPL_C_CASED,
    TPL_C_CASE_IGNORABLE,
    TPL_C_ID_START,
    TPL_C_ID_CONTINUE,
    TPL_C_COUNT
} tpl_class;
typedef enum tpl_case { TPL_UPPER = 0, TPL_LOWER, TPL_TITLECASE, TPL_FOLD } tpl_case;

bool tpl_char_is(uint32_t c, tpl_class k);
/* Up to three code points. */
int tpl_char_case(uint32_t c, tpl_case k, uint32_t out[3]);
/* Decodes one character of valid UTF-8; returns its bytes. */
size_t tpl_decode(const char *s, size_t len, uint32_t *c);
size_t tpl_encode(uint32_t c, char out[4]);
static inline bool tpl_space(uint32_t c) { return tpl_char_is(c, TPL_C_SPACE); }
/* str.upper() and friends of s[begin..len); what stands before `begin` counts for a final sigma. */
vt_status tpl_put_case(tpl_run *r, tpl_text *t, const char *s, size_t begin, size_t len,
                       tpl_case k);
/* The small sigma for the capital one at s[at], final or not. */
vt_status tpl_put_sigma(tpl_run *r, tpl_text *t, const tpl_str *s, size_t at);
/* Where the line that begins at `begin` ends, and where the next begins (str.splitlines' ends). */
void tpl_line_end(const tpl_str *s, size_t begin, size_t *end, size_t *next);
/* Ends of the string without whitespace (chars NULL) or without the characters of `chars`. */
void tpl_strip(const tpl_str *s, const tpl_str *chars, bool left, bool right, size_t *begin,
               size_t *end);

#endif
