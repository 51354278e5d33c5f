/* Requests whose answers follow a grammar (grammar/grammar.h): the one place where the engine meets
 * grammars. To the scheduler they are constraints like others. */
#ifndef VT_ENGINE_CONSTRAINT_GRAMMAR_H
#define VT_ENGINE_CONSTRAINT_GRAMMAR_H

#include "engine/engine.h"
#include "grammar/store.h"

/* Compiles a request's grammar and makes its first mask, for vt_engine_submit_prepared. It may take
 * long: for a thread on which nobody waits. VT_ERR_GRAMMAR says what is wrong with it. The caller
 * owns a reference of *out; NULL: the request has no grammar. */
vt_status vt_engine_prepare(vt_engine *e, const vt_request_params *p, vt_grammar **out,
                            vt_err *err);
/* True if vt_engine_prepare has a grammar to compile, which may take a second. */
bool vt_engine_must_compile(vt_engine *e, const vt_request_params *p);
/* vt_engine_submit of a request whose grammar was prepared (borrowed; NULL: it has none). */
vt_status vt_engine_submit_prepared(vt_engine *e, const vt_request_params *p, vt_grammar *g,
                                    vt_request_id *id, vt_err *err);
vt_grammar_store_stats vt_engine_grammar_stats(vt_engine *e);

#endif
