/* MTP heads (multi-token prediction; DeepSeek-AI, 2024, arXiv:2412.19437, section 2.2): one more
 * layer, which some models bring along. It says what follows the next token:
 *
 *   u = in [ embed_norm(embedding of token t + 1) ; hidden_norm(h_t) ]     h: the model's hidden
 *   h'_t = final_norm(layer(u))                                               states, normed
 *   logits of token t + 2 = head(h'_t)
 *
 * and of the ones after it with h' in the place of h. The embedding and the head are the model's.
 * An MTP head is loaded as a model of its own, of one layer like the last one of the model that
 * attends; the names of its tensors are translated. */
#ifndef VT_MODEL_MTP_H
#define VT_MODEL_MTP_H

#include <jansson.h>

#include "base/err.h"
#include "model/model.h"

enum { MODEL_MTP_NAME = 192 };

/* Makes of a description of a model, whose layers are there, that of its MTP head. */
vt_status model_mtp_make(vt_model *m, vt_err *err);
/* The same of a folder's config.json, which may have such heads of other forms. */
vt_status model_mtp_read_config(vt_model *m, const char *path, const json_t *config, vt_err *err);
/* An error unless files that say "`key` is n" have a head of one layer. */
vt_status model_mtp_check(const vt_model *m, const char *key, int32_t n, vt_err *err);
/* An error where m is an MTP head, and one of its tensors was looked for and not found: files may
 * leave out a head that their configuration announces. */
vt_status model_mtp_found(const vt_model *m, bool found, vt_err *err);
/* Returns what the files call the tensor of an MTP head that a model of one layer calls `name`:
 * `name` itself, or `out`. */
const char *model_mtp_name(const vt_model *m, bool hf, const char *name, char out[MODEL_MTP_NAME]);
/* Returns true if a tensor of the files may belong to m: all may, unless m is an MTP head. */
bool model_mtp_owns(const vt_model *m, const char *name);

#endif
