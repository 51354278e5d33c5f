/* EAGLE-3 heads (Li et al., 2025, arXiv:2503.01840): one layer in files of its own, trained to
 * draft for a model. It says what follows the next token:
 *
 *   g_t = in [ a_t ; b_t ; c_t ]         the model's residual stream as it enters three layers
 *   u = [ embed_norm(embedding of token t + 1) ; hidden_norm(g_t) ]
 *   h_t = layer(u)                       a layer of Llama whose q, k and v read u, and whose
 *   logits of token t + 2 = head(norm(h_t))            residual stream begins with g_t, or normed
 *
 * and of the ones after it with h in the place of g. The head may name a part of the model's tokens
 * alone; the embedding may be the model's.
 *
 * It is loaded as a model of one layer, of the family eagle3. The model computes g (vt_aux), so
 * that what goes from one to the other is one vector a token. */
#ifndef VT_MODEL_EAGLE_H
#define VT_MODEL_EAGLE_H

#include "base/err.h"
#include "model/model.h"

/* How the files of a head name its tensors. */
typedef struct vt_eagle_names {
    const char *front, *layer; /* in front of all but "lm_head.", and of the layer's behind that */
} vt_eagle_names;

enum { MODEL_EAGLE_NAME = 192 };

/* Returns what the files call the tensor that a model of one layer calls `name`: `name` itself, or
 * `out`. */
const char *model_eagle_name(const vt_eagle_names *n, const char *name, char out[MODEL_EAGLE_NAME]);
/* The ways of naming to try, to one with `front` NULL. */
extern const vt_eagle_names model_eagle_names[];

/* Reads the ids of the head's own tokens from a tensor of differences to their index, [vocab] I64
 * or I32. They are checked. NULL: the files have none, for the tokens are the model's. */
vt_status model_eagle_words(vt_model *head, const vt_tensor *differences, vt_err *err);

/* Fits a head to the model that it is to draft for: gives it the model's embedding if it has none.
 * *with: what the model is to compute. VT_ERR_USAGE or VT_ERR_UNSUPPORTED says why it cannot. */
vt_status model_eagle_fit(vt_model *head, const vt_model *target, vt_aux *with, vt_err *err);

#endif
