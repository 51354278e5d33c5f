/* A model's weights in device memory, all in one range of device addresses. Each matrix has the
 * form that the CUDA implementation which will run it asks for (vt_impl.packing); vectors, routers
 * and rope tables are F32. */
#ifndef VT_EXEC_WEIGHTS_CUDA_H
#define VT_EXEC_WEIGHTS_CUDA_H

#include "device/cuda/cuda.h"
#include "exec/ranks.h"
#include "exec/weights.h"

typedef struct vt_cuda_weights {
    vt_weights weights; /* every matrix has one part, in device memory */
    cuda_range range;
    size_t bytes;
    double load_ms; /* from describing them to the end of the upload */
} vt_cuda_weights;

/* Weights that are on their way to the device. */
typedef struct vt_cuda_upload_run vt_cuda_upload_run;

/* Bytes that the weights of `m`, or a rank's shard of them, will take on a device. The model has
 * passed vt_ranks_check. */
size_t vt_cuda_weights_bytes(const vt_model *m, int32_t max_context, const vt_rank *r);
/* Converts the entries of `l` with `n_threads` host threads and copies them to the device. c NULL:
 * the weights are described but have no memory (to cost a program, or to compile a model's kernels
 * without a device). The list may be freed afterwards. */
vt_status vt_cuda_weights_realise(vt_cuda *c, const vt_layout *l, int32_t max_context,
                                  int32_t n_threads, vt_cuda_weights **out, vt_err *err);
/* The same in two calls, so that other work goes on meanwhile. `begin` describes the weights, gives
 * them memory and addresses, and starts threads that fill it; a program may be built of *out at
 * once, but no step may run before `end`. `end` waits and frees `run`; with `stop` the upload ends
 * early. If either fails, the caller still owns *out. `l` must live until `end`. */
vt_status vt_cuda_weights_begin(vt_cuda *c, const vt_layout *l, int32_t max_context,
                                int32_t n_threads, vt_cuda_weights **out, vt_cuda_upload_run **run,
                                vt_err *err);
vt_status vt_cuda_weights_end(vt_cuda_upload_run *run, bool stop, vt_err *err);
/* vt_cuda_weights_realise for all weights of a model. */
vt_status vt_cuda_weights_load(vt_cuda *c, const vt_model *m, int32_t max_context,
                               int32_t n_threads, vt_cuda_weights **out, vt_err *err);
void vt_cuda_weights_free(vt_cuda *c, vt_cuda_weights *w);

#endif
