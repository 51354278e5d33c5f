/* What a compiled grammar is, for the files of this folder. */
#ifndef VT_GRAMMAR_INTERNAL_H
#define VT_GRAMMAR_INTERNAL_H

#include <jansson.h>

#include "grammar/machine.h"

/* The text by which a model begins to call tools. */
typedef struct call_opening {
    const char *text; /* NULL: the grammar holds from the answer's beginning on */
    bool at_start;    /* it counts at the answer's beginning only */
} call_opening;

struct vt_grammar {
    machine m;
    call_opening opening;
    pthread_mutex_t lock; /* of the machine */
    int32_t refs;         /* atomic */
};

/* The front ends: each adds rules and returns their root. */
vt_status schema_compile(rules *g, const json_t *schema, bool closed, symbol *root, vt_err *err);
vt_status calls_compile(rules *g, const vt_grammar_vocab *v, const json_t *calls, symbol *root,
                        call_opening *opening, vt_err *err);
vt_status gbnf_compile(rules *g, const char *text, size_t len, symbol *root, vt_err *err);

#endif
