/* Opening the draft model of --draft MODEL (engine/draft_model.h). */
#ifndef VT_ENGINE_DRAFT_LOAD_H
#define VT_ENGINE_DRAFT_LOAD_H

#include "engine/draft.h"
#include "engine/options.h"
#include "exec/executor.h"
#include "model/model.h"

/* True if the option names a model, or the model's own MTP head ("mtp"); false for off and lookup.
 */
bool vt_draft_is_model(const char *value);
bool vt_draft_is_mtp(const char *value);

/* Loads the model that option `draft` names and makes a drafter of it for an engine of `target`
 * whose executor has these limits and `n_threads` threads. It runs where the options say that the
 * engine runs, on the first GPU of several. *aux: what the model is to compute for it (an EAGLE-3
 * head); else left alone. VT_ERR_USAGE or VT_ERR_UNSUPPORTED says why a model
 * cannot draft for this one. */
vt_status vt_draft_load(const vt_model *target, const vt_options *o, const vt_limits *limits,
                        int32_t n_threads, vt_drafter *out, vt_aux *aux, vt_err *err);

#endif
