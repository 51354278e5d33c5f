/* Grammars that a model's answer has to follow: JSON by a schema, a regular expression, a choice of
 * texts, or GBNF.
 *
 *   vocabulary   the tokens' bytes as a trie                 once a tokenizer   vocab.h
 *   grammar      rules over lexemes; a lexeme is regular     once a schema      rules.h, schema.c
 *   machine      states, made when a text first gets there   with its grammar   machine.h
 *   matcher      a state, and those before it                one a sequence     matcher.c
 *
 * Lexemes are matched without a longest-match rule: where one may end and go on as well, both are
 * followed. A rule may not begin with itself. */
#ifndef VT_GRAMMAR_GRAMMAR_H
#define VT_GRAMMAR_GRAMMAR_H

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"
#include "vitrine.h"

typedef struct vt_grammar_vocab vt_grammar_vocab;
typedef struct vt_grammar vt_grammar;
typedef struct vt_matcher vt_matcher;

enum {
    VT_GRAMMAR_MAX_TEXT = 1 << 20,    /* bytes of a schema, a choice or a GBNF text */
    VT_GRAMMAR_MAX_DEPTH = 64,        /* nesting of a schema */
    VT_GRAMMAR_MAX_SYMBOLS = 200000,  /* of all rules */
    VT_GRAMMAR_MAX_BYTES = 64 << 20,  /* memory of one grammar with all its states */
    VT_GRAMMAR_FRESH_BYTES = 16 << 20 /* above it, new requests get a fresh copy */
};

/* Of the tokens below n_ids only, which is what the model can choose from. */
vt_status vt_grammar_vocab_new(const vt_tokenizer *t, int32_t n_ids, vt_grammar_vocab **out,
                               vt_err *err);
void vt_grammar_vocab_free(vt_grammar_vocab *v); /* after its grammars; may be NULL */
/* Makes what all JSON strings share. */
vt_status vt_grammar_warm(vt_grammar_vocab *v, vt_err *err);

/* Compiles; the grammar has one reference. VT_ERR_USAGE says what is wrong where. Any thread; `v`
 * has to outlive the grammar. */
vt_status vt_grammar_compile(vt_grammar_vocab *v, vt_grammar_kind kind, const char *text,
                             size_t len, vt_grammar **out, vt_err *err);
/* The text behind which the grammar begins to hold, at the answer's beginning only or anywhere;
 * NULL: it holds from the answer's beginning on. */
const char *vt_grammar_opening(const vt_grammar *g, bool *at_start);
/* Clears the bits of tokens that begin with these bytes, the rest of an opening, and go on with
 * what may not come at the grammar's beginning. Returns how many; VT_GRAMMAR_LATE: the call is
 * hurried (vt_matcher_hurry), and was broken off. */
enum { VT_GRAMMAR_LATE = -1 };
int32_t vt_grammar_forbid(vt_grammar *g, bool hurried, const char *bytes, int32_t n,
                          uint32_t *words, int32_t n_words);
vt_grammar *vt_grammar_ref(vt_grammar *g);
void vt_grammar_unref(vt_grammar *g); /* may be NULL */
size_t vt_grammar_bytes(vt_grammar *g);
/* True if it met a limit, or has grown beyond VT_GRAMMAR_FRESH_BYTES: new requests get another. */
bool vt_grammar_is_worn(vt_grammar *g);

/* True if it has met a limit before any token: no answer can follow it. */
bool vt_grammar_is_hopeless(vt_grammar *g);

/* Makes the first mask of an answer of `most` tokens, so that it is there when an answer begins.
 * VT_ERR_USAGE: it meets a limit, as the grammar takes too many states to be followed. */
vt_status vt_grammar_begin(vt_grammar *g, int32_t most, vt_err *err);

/* ---- one sequence ---- */

/* `most`: tokens that the answer may have, its end token included; 0: any number. Keeps a reference
 * of g. NULL: out of memory. */
vt_matcher *vt_matcher_new(vt_grammar *g, int32_t most);
void vt_matcher_free(vt_matcher *m); /* may be NULL */
/* From now on a mask, begin or take that would take more than some milliseconds is broken off, and
 * so is one while another thread is at work on the grammar: others wait for this thread. false:
 * they take as long as they do, which is how a matcher begins. */
void vt_matcher_hurry(vt_matcher *m, bool on);
/* Returns true if the last mask, begin or take was broken off: its answer was false, the words of a
 * mask mean nothing, and nothing else has changed. The same call without hurry gives the answer. */
bool vt_matcher_is_late(const vt_matcher *m);
/* Returns true if nothing may follow because the grammar has met a limit. */
bool vt_matcher_is_too_large(const vt_matcher *m);
/* Sets the bits of the tokens that may come next: words[id / 32] bit id % 32. The words have to be
 * zeros. Near the end of `most` only tokens are left behind which the answer can still be ended in
 * time. False: none may come; the answer has ended, or a limit was met. */
bool vt_matcher_mask(vt_matcher *m, uint32_t *words, int32_t n_words);
/* The answer begins with these bytes, which are part of a token that is not counted. False: it
 * may not, and nothing has changed. */
bool vt_matcher_begin(vt_matcher *m, const char *bytes, int32_t n);
/* False: the token may not come, and nothing has changed. */
bool vt_matcher_take(vt_matcher *m, int32_t token);
/* Takes back the last n tokens: at most VT_MATCHER_BACK. */
enum { VT_MATCHER_BACK = 64 };
void vt_matcher_undo(vt_matcher *m, int32_t n);
/* True if the answer may end here. */
bool vt_matcher_accepts(vt_matcher *m);
/* Bytes that end the answer from here, at least. */
int32_t vt_matcher_least(vt_matcher *m);

/* The cost of masks so far. */
typedef struct vt_matcher_cost {
    int64_t n, n_cached; /* masks; of them those whose state had been seen before */
    int64_t ns, worst_ns;
    int64_t n_closing; /* masks that were cut to end in time */
} vt_matcher_cost;
vt_matcher_cost vt_matcher_spent(const vt_matcher *m);

#endif
