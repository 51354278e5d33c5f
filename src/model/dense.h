/* Dense layers behind pooling: what a sentence-transformers folder calls Dense (EmbeddingGemma has
 * two).
 *
 *   y = act(W x + b)      W [out, in]; b may be missing; act is tanh or nothing
 *
 * They take about as many products as one token does in one layer, so the host computes them, in
 * fp32 weights and sums of double precision.
 *
 *   2_Dense/config.json         in_features, out_features, bias, activation_function
 *   2_Dense/model.safetensors   linear.weight, linear.bias */
#ifndef VT_MODEL_DENSE_H
#define VT_MODEL_DENSE_H

#include <jansson.h>

#include "base/err.h"
#include "model/model.h"

/* The facts of a layer's config.json. */
typedef struct vt_dense_said {
    int32_t in, out;
    bool bias, tanh;
} vt_dense_said;

/* Reads a layer's config.json. What is not computed here is refused by name. */
vt_status vt_dense_config(const char *path, const json_t *root, vt_dense_said *out, vt_err *err);
/* Appends the layer in this folder to m->pooled.dense. Its weights are copied. */
vt_status vt_dense_read(vt_model *m, const char *folder, vt_err *err);
/* Appends a layer; its input must be what the layer before it, or the model, makes. */
vt_status vt_dense_add(vt_model *m, const char *path, const vt_tensor *weight,
                       const vt_tensor *bias, bool tanh, vt_err *err);

/* Returns the size of a vector made of states [hidden]. */
int32_t vt_dense_out(const vt_pooled *p, int32_t hidden);
/* Returns the largest size that a vector has on its way. */
int32_t vt_dense_most(const vt_pooled *p, int32_t hidden);
/* Applies all layers to x, in place. x, y and `work` have room for vt_dense_most numbers. */
void vt_dense_apply(const vt_pooled *p, double *x, double *y, float *work);

#endif
