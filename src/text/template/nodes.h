/* A parsed template: its tokens and nodes, and the parser that makes them.
 *
 *   source --lex.c--> tokens --expr.c, parse.c--> nodes, in the template's arena
 *
 * Nodes never change after parsing, so several threads may render a template at once. Names are
 * interned: scopes compare their addresses.
 */
#ifndef VT_TEXT_TEMPLATE_NODES_H
#define VT_TEXT_TEMPLATE_NODES_H

#include "text/template/values.h"

enum {
    TPL_MAX_SOURCE = 1 << 20, /* bytes of a template */
    TPL_MAX_NESTING = 100,    /* of tags and brackets in the source */
    TPL_MAX_NAMED = 255,      /* parameters of a macro; keyword arguments that a call spells out */
};

/* ---- builtins ----
 *
 * What a template can name stands in tables of plain functions, which template.c hands to the
 * parser: parser and interpreter look names up and know no builtin themselves. */

enum { TPL_MAX_PARAMS = 5 }; /* named parameters of a builtin */

typedef struct tpl_args {
    tpl_value self; /* the value before the bar, before `is` or before the dot */
    /* arg[i] is the i-th named parameter, or TPL_MISSING. */
    tpl_value arg[TPL_MAX_PARAMS];
    const tpl_call *call; /* all arguments; variadic builtins read these instead of arg */
    int which;            /* the builtin's */
} tpl_args;

typedef vt_status (*tpl_fn)(tpl_run *r, const tpl_args *a, tpl_value *out);

/* A filter, test, method or function. */
typedef struct tpl_builtin {
    const char *name;
    tpl_fn fn;
    int32_t min, max; /* arguments needed, and taken; max -1: variadic */
    /* Names in order; one that starts with "." cannot be given by keyword. */
    const char *params[TPL_MAX_PARAMS];
    int which; /* tells apart builtins that share a function */
} tpl_builtin;

typedef struct tpl_table {
    const tpl_builtin *at;
    size_t n;
} tpl_table;

/* All builtins. An absent table has n 0. */
typedef struct tpl_tables {
    tpl_table filters[4];
    tpl_table tests, globals;
    tpl_table str_methods, list_methods, tuple_methods, dict_methods;
} tpl_tables;

/* NULL: the table has no such name (parser.c). */
const tpl_builtin *tpl_find(tpl_table table, const char *name, size_t len);
const tpl_builtin *tpl_find_filter(const tpl_tables *t, const char *name, size_t len);
const tpl_builtin *tpl_find_test(const tpl_tables *t, const char *name, size_t len);

/* ---- nodes ---- */

typedef struct tpl_node tpl_node;

typedef struct tpl_nodes {
    tpl_node **at;
    int32_t n, cap;
} tpl_nodes;

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
    TPL_N_GETATTR, /* a                                  value: the name */
    TPL_N_GETITEM, /* a[b] */
    TPL_N_SLICE,   /* a[b:c:d], each of b c d may be NULL */
    TPL_N_CALL,    /* a(args)                            args */
    TPL_N_FILTER,  /* a|builtin(args); a NULL: the text of a block */
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

typedef struct tpl_macro_def {
    const char *name;             /* NULL: the body of a call block */
    int32_t n_params, n_defaults; /* defaults belong to the last n_defaults parameters */
    const char **param;
    tpl_node **defaults;
    tpl_nodes body;
    /* The body reads caller, kwargs or varargs, which no parameter is named after. */
    bool uses_caller, uses_kwargs, uses_varargs;
} tpl_macro_def;

typedef struct tpl_node_args {
    tpl_nodes pos;
    tpl_nodes kw;               /* values; the names are in kw_name */
    const char **kw_name;       /* [kw.cap] */
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
    /* The builtin of a filter or a test. NULL: its name is unknown, which is an error only if
     * the node is evaluated. */
    const tpl_builtin *builtin;
    tpl_macro_def *macro;
};

struct vt_template {
    vt_arena arena;
    const char *name;
    const char *source; /* a copy */
    tpl_tables tables;  /* the builtins */
    tpl_nodes body;
    const char **intern; /* the names in the source, a hash table by content */
    size_t n_intern, cap_intern;
    uint64_t seed;                                                    /* of that table */
    const char *loop_name, *caller_name, *kwargs_name, *varargs_name; /* interned */
};

/* ---- tokens (lex.c) ---- */

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
    tpl_token *at; /* malloc'ed; the caller of tpl_lex frees it, after a failure too */
    size_t n, cap;
} tpl_tokens;

vt_status tpl_lex(struct vt_template *t, const char *source, size_t len, tpl_tokens *out,
                  vt_err *err);

/* ---- the parser's tools (parser.c) ---- */

typedef struct tpl_macro_scan { /* the special names that the macro being parsed reads */
    struct tpl_macro_scan *outer;
    bool caller, kwargs, varargs;          /* read */
    bool no_caller, no_kwargs, no_varargs; /* assigned first: ordinary names from then on */
} tpl_macro_scan;

typedef struct tpl_parser {
    struct vt_template *t;
    const tpl_token *tok; /* the current one */
    vt_err *err;
    int32_t nesting;
    int32_t loops; /* for loops around this point within the current macro */
    tpl_macro_scan *scan;
} tpl_parser;

vt_status tpl_syntax(const tpl_parser *p, int32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
vt_status tpl_parse_no_memory(const tpl_parser *p);
vt_status tpl_unexpected(const tpl_parser *p, const char *wanted);
/* One level deeper in tags or brackets; the caller restores p->nesting. */
vt_status tpl_nest(tpl_parser *p);
vt_status tpl_node_new(tpl_parser *p, tpl_kind kind, int32_t line, tpl_node **out);
vt_status tpl_nodes_add(tpl_parser *p, tpl_nodes *list, tpl_node *node);
/* A constant string over text that lives as long as the template. */
vt_status tpl_const_str(tpl_parser *p, const char *text, size_t len, tpl_value *out);
/* The interned form of a name, made if needed; NULL: out of memory. */
const char *tpl_intern(struct vt_template *t, const char *name, size_t len);
/* The interned form of a name, or NULL if the template never uses it. */
const char *tpl_intern_find(const struct vt_template *t, const char *name, size_t len);
/* The current token's name, interned. */
vt_status tpl_intern_token(tpl_parser *p, const char **out);
bool tpl_at_op(const tpl_parser *p, const char *op);
bool tpl_at_name(const tpl_parser *p, const char *name);
bool tpl_skip_op(tpl_parser *p, const char *op);
bool tpl_skip_name(tpl_parser *p, const char *name);
vt_status tpl_expect_op(tpl_parser *p, const char *op);
vt_status tpl_expect_name(tpl_parser *p, const char *name);
void tpl_scan_store(tpl_parser *p, const char *name);
void tpl_scan_load(tpl_parser *p, const char *name);

/* ---- expressions (expr.c) ---- */

vt_status tpl_parse_expression(tpl_parser *p, tpl_node **out);
/* end: a name that ends the tuple early ("in", "recursive"), or NULL. */
vt_status tpl_parse_tuple(tpl_parser *p, bool with_condition, const char *end, tpl_node **out);
vt_status tpl_parse_target(tpl_parser *p, bool with_namespace, const char *end, tpl_node **out);
/* |filter|filter ... over `input` (NULL: the text of a block). inline_start: the first one comes
 * without its bar. */
vt_status tpl_parse_filters(tpl_parser *p, tpl_node *input, bool inline_start, tpl_node **out);

/* ---- statements (parse.c) ---- */

/* The whole template into p->t->body. */
vt_status tpl_parse_tokens(tpl_parser *p, const tpl_tokens *tokens);

#endif
