/* A constraint for answers that begin with reasoning: <think> ... </think>, or other tags, then
 * what a grammar says, or anything.
 *
 *             <think>              </think>
 *   START ──────────────> INSIDE ────────────> OUTSIDE   the grammar holds
 *     │                     │ budget used up      ^
 *     │                     └──> CLOSING ─────────┘      the tokens of "\n</think>\n\n", one by one
 *     └── anything else ──────────────────────────┘
 *
 * A grammar that has an opening (vt_grammar_opening) holds behind it: up to there, in FREE, which
 * then takes the place of OUTSIDE, the answer is any text, and may end.
 *
 * The engine's threads call it as constraint.h says. */
#ifndef VT_ENGINE_CONSTRAINT_THOUGHT_H
#define VT_ENGINE_CONSTRAINT_THOUGHT_H

#include "engine/constraint/constraint.h"
#include "grammar/grammar.h"

enum { VT_THOUGHT_MAX_TAG = 64 }; /* bytes of a tag, with its NUL */

typedef struct vt_thought_rules {
    const vt_tokenizer *t; /* outlives the constraint */
    vt_grammar *g;  /* of the answer behind the thought; NULL: any text. A reference is kept */
    bool inside;    /* the prompt ends behind <think> */
    bool none;      /* the answer has no thought */
    int32_t most;   /* tokens of the whole answer */
    int32_t budget; /* tokens of the thought, after which it is closed; 0: any number */
    const char *open, *close; /* NULL: <think> and </think>; copied */
} vt_thought_rules;

/* False: out of memory. */
bool vt_thought_new(const vt_thought_rules *rules, vt_constraint *out);

#endif
