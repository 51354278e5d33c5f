/* The interpreter: nodes and variables to text.
 *
 *   ops.c    operators, attributes, items, slices
 *   eval.c   expressions to values; calls
 *   exec.c   statements, scopes, loops, macros
 *
 * The interpreter looks names up in the template's tables (nodes.h) and knows no builtin itself.
 */
#ifndef VT_TEXT_TEMPLATE_INTERPRETER_H
#define VT_TEXT_TEMPLATE_INTERPRETER_H

#include "text/template/nodes.h"

/* ---- operators (ops.c) ---- */

vt_status tpl_binary(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, tpl_value *out);
vt_status tpl_compare(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, bool *out);
vt_status tpl_negate(tpl_run *r, tpl_value a, bool minus, tpl_value *out);
/* of.name: attribute first, then item.  of[key]: item first, then attribute. */
vt_status tpl_getattr(tpl_run *r, tpl_value of, tpl_value name, tpl_value *out);
vt_status tpl_getitem(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out);
vt_status tpl_slice(tpl_run *r, tpl_value of, tpl_value start, tpl_value stop, tpl_value step,
                    tpl_value *out);
/* A method of `self` as a value. */
vt_status tpl_bind_method(tpl_run *r, const tpl_builtin *builtin, tpl_value self, tpl_value *out);

/* ---- evaluation (eval.c) ---- */

/* Variables are few per scope: a list of interned names. */
typedef struct tpl_var {
    const char *name; /* interned: compared by address */
    tpl_value value;
    struct tpl_var *next;
} tpl_var;

typedef struct tpl_scope {
    struct tpl_scope *parent;
    tpl_var *vars;
    bool captured; /* a macro sees it: it outlives its block */
} tpl_scope;

/* The variable in this scope alone; NULL if there is none. One step pays for 16 names. */
vt_status tpl_scope_find(tpl_run *r, const tpl_scope *s, const char *name, tpl_var **out);

vt_status tpl_eval(tpl_run *r, const tpl_node *n, tpl_value *out);
/* spare_kw: room for keyword arguments that the caller adds itself. */
vt_status tpl_eval_args(tpl_run *r, const tpl_node_args *args, tpl_call *out, int32_t spare_kw);
/* Calls a builtin; `what` is "filter", "test" ... for messages. */
vt_status tpl_apply(tpl_run *r, const tpl_builtin *b, const char *what, tpl_value self,
                    const tpl_call *call, tpl_value *out);
vt_status tpl_call_value(tpl_run *r, tpl_value f, const tpl_call *call, tpl_value *out);
/* The filters of a block applied to `input`. */
vt_status tpl_eval_filters(tpl_run *r, const tpl_node *n, tpl_value input, tpl_value *out);

/* ---- execution (exec.c) ---- */

vt_status tpl_exec(tpl_run *r, const tpl_nodes *body);
/* Variables from outside; a name that the template never reads is left out. */
vt_status tpl_bind_variables(tpl_run *r, const tpl_dict *variables);

#endif
