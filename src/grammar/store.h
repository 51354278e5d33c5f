/* Compiled grammars of one tokenizer, so that a schema that comes again is there already. */
#ifndef VT_GRAMMAR_STORE_H
#define VT_GRAMMAR_STORE_H

#include "grammar/grammar.h"

typedef struct vt_grammar_store vt_grammar_store;

enum { VT_GRAMMAR_STORE_BYTES = 64 << 20 }; /* what the grammars that nobody uses may take */

/* Cheap: the vocabulary, of the tokens below n_ids, is made with the first grammar. `t` is
 * borrowed. NULL: out of memory. */
vt_grammar_store *vt_grammar_store_new(const vt_tokenizer *t, int32_t n_ids);
/* After the last of its grammars has been given back; may be NULL. */
void vt_grammar_store_free(vt_grammar_store *s);
/* Any thread. Compiles, or finds what was compiled, or for what it was refused. The caller owns a
 * reference. */
vt_status vt_grammar_store_get(vt_grammar_store *s, vt_grammar_kind kind, const char *text,
                               size_t len, vt_grammar **out, vt_err *err);
/* Any thread. From now on vt_grammar_store_get refuses this text, which was compiled, for `why`. */
void vt_grammar_store_refuse(vt_grammar_store *s, vt_grammar_kind kind, const char *text,
                             size_t len, const vt_err *why);
/* Any thread. True if vt_grammar_store_get would find it now, or its refusal. */
bool vt_grammar_store_has(vt_grammar_store *s, vt_grammar_kind kind, const char *text, size_t len);

typedef struct vt_grammar_store_stats {
    int64_t n_compiled, n_refused, n_found, compile_ns; /* found: with refusals */
    int32_t n;
    size_t bytes;
} vt_grammar_store_stats;
vt_grammar_store_stats vt_grammar_store_look(vt_grammar_store *s);

#endif
