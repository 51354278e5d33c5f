/* Requests whose answers follow a grammar (grammar/grammar.h): the one place where the engine meets
 * grammars. To the scheduler they are constraints like others. */
#ifndef VT_ENGINE_CONSTRAINT_GRAMMAR_H
#define VT_ENGINE_CONSTRAINT_GRAMMAR_H

#include "engine/engine.h"
#include "grammar/store.h"

/* Compiles a request's grammar, so that vt_engine_submit finds it. It may take long: for a thread
 * on which nobody waits. VT_ERR_USAGE says what is wrong with it. Without a grammar it does
 * nothing. */
vt_status vt_engine_prepare(vt_engine *e, const vt_request_params *p, vt_err *err);
vt_grammar_store_stats vt_engine_grammar_stats(vt_engine *e);

#endif
