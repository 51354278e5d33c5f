/* The parts of a compiled grammar, for the files of this folder. */
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
    size_t bytes;         /* atomic: of the machine, when it was last called */
    bool failed;          /* atomic: likewise */
};

/* Begins a call of a grammar's machine, and takes its lock. False: the call is hurried, and another
 * thread has it. */
bool grammar_enter(vt_grammar *g, bool hurried);
/* Ends the call. True: it was broken off, because it would have taken long. */
bool grammar_leave(vt_grammar *g);

typedef enum argument_writing {
    WRITE_JSON,
    WRITE_PYTHON, /* K=V, K=V with Python's words */
    WRITE_GEMMA,  /* {K:<|"|>text<|"|>,K:1} */
    WRITE_TAGS    /* each between tags: strings as they are, other values as JSON */
} argument_writing;

/* How a call writes its arguments. '~' is a line break that may be left out, '%' a type. The
 * spellings of special tokens stand for these tokens where the vocabulary has them. */
typedef struct argument_form {
    argument_writing writing;
    const char *key, *key_end; /* TAGS: around a name */
    const char *value_end;     /* TAGS: behind a value, with line breaks */
    const char *banned[2];     /* what no string may hold, because it would end there */
    enum { TYPES_UNTOLD, TYPES_TRUE_FALSE, TYPES_NAMED } types; /* what '%' is */
} argument_form;

/* A text as an expression, with '#' (a number), '~' and special tokens. */
rx calls_text(rules *g, const vt_grammar_vocab *v, const char *text);

/* The front ends: each adds rules and returns their root. */
vt_status schema_compile(rules *g, const json_t *schema, bool closed, symbol *root, vt_err *err);
/* The same for arguments, which are an object. */
vt_status schema_compile_arguments(rules *g, const json_t *schema, bool closed,
                                   const argument_form *form, const vt_grammar_vocab *v,
                                   symbol *root, vt_err *err);
vt_status calls_compile(rules *g, const vt_grammar_vocab *v, const json_t *calls, symbol *root,
                        call_opening *opening, vt_err *err);
vt_status gbnf_compile(rules *g, const char *text, size_t len, symbol *root, vt_err *err);

#endif
