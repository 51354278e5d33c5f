/* Latent attention (exec/blocks/mla.c) as a model's layers and weights have it. */
#ifndef VT_MODEL_LATENT_H
#define VT_MODEL_LATENT_H

#include "base/err.h"
#include "model/model.h"

/* Makes all layers attend to latents of the sizes in m->arch.mla, checks these, and sets the head's
 * size, its factor and the rotated dimensions. The layers and m->arch's number of heads are there.
 */
vt_status model_attend_latents(vt_model *m, vt_err *err);

/* Makes queries grow with their position, as vt_rope_params.temper says; 0: not at all. Rope then
 * goes over whole rows of the cache, whose latents keep still, so that its amplitude is that of all
 * of a query. Comes after model_attend_latents. */
vt_status model_temper_latents(vt_model *m, double temper, vt_err *err);

/* Hugging Face folders hold the matrices of all heads that make k and v of a latent as one, kv_b
 * [heads (nope + v), kv_rank]: of each head the rows of k, then those of v. Makes of it
 *
 *   k_b [heads, kv_rank, nope]   transposed, a copy
 *   v_b [heads, v, kv_rank]      pointers into kv_b
 *
 * FP8 with `scale`, which is NULL for float types, becomes F32, for a head may begin inside a block
 * of weights that share a scale. Names are the caller's. Memory is from m->arena. */
vt_status model_split_kv_b(vt_model *m, const vt_tensor *kv_b, const vt_tensor *scale,
                           vt_tensor *k_b, vt_tensor *v_b, vt_err *err);

#endif
