/* A model's weights in device memory, all in one range of device addresses. Each matrix has the
 * form that the CUDA implementation which will run it asks for (vt_impl.packing); vectors, routers
 * and rope tables are F32. */
#ifndef VT_EXEC_WEIGHTS_CUDA_H
#define VT_EXEC_WEIGHTS_CUDA_H

#include "device/cuda.h"
#include "exec/weights.h"

typedef struct vt_cuda_weights {
    vt_weights weights; /* every matrix has one part, in device memory */
    cuda_range range;
    size_t bytes;
    double load_ms;
} vt_cuda_weights;

/* Bytes that the weights of `m` will take on a device. */
size_t vt_cuda_weights_bytes(const vt_model *m, int32_t max_context);
/* Converts the entries of `l` with `n_threads` host threads and copies them to the device. c NULL:
 * the weights are described but have no memory (to cost a program, or to compile a model's kernels
 * without a device). The list may be freed afterwards. */
vt_status vt_cuda_weights_realise(vt_cuda *c, const vt_layout *l, int32_t max_context,
                                  int32_t n_threads, vt_cuda_weights **out, vt_err *err);
/* The same for all weights of a model. */
vt_status vt_cuda_weights_load(vt_cuda *c, const vt_model *m, int32_t max_context,
                               int32_t n_threads, vt_cuda_weights **out, vt_err *err);
void vt_cuda_weights_free(vt_cuda *c, vt_cuda_weights *w);

#endif
