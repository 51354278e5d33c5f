/* A model's weights in device memory: a twin of the vt_model whose norms, biases and embedding live
 * on the device, and the stacked matrices of its linears. Quantised and FP8 matrices in tiles with
 * the bits of the file (ops/linear/linear_quant.h), others BF16, vectors and rope tables F32. All
 * in one range of device addresses. */
#ifndef VT_EXEC_WEIGHTS_CUDA_H
#define VT_EXEC_WEIGHTS_CUDA_H

#include "device/cuda.h"
#include "exec/weights.h"

typedef struct vt_cuda_weights {
    vt_model model;     /* the twin; its layer array, tensors and `weights` are in weights.arena */
    vt_weights weights; /* weights.model is the twin */
    cuda_range range;
    size_t bytes;
    double load_ms;
} vt_cuda_weights;

/* Bytes that the weights of `m` will take on a device. */
size_t vt_cuda_weights_bytes(const vt_model *m, int32_t max_context);
/* c NULL: the twin is described but has no memory (compiles a model's kernels without a device). */
vt_status vt_cuda_weights_load(vt_cuda *c, const vt_model *m, int32_t max_context,
                               int32_t n_threads, vt_cuda_weights **out, vt_err *err);
void vt_cuda_weights_free(vt_cuda *c, vt_cuda_weights *w);

#endif
