/* What moe_linear's CUDA implementations share. */
#ifndef VT_OPS_MOE_CUDA_H
#define VT_OPS_MOE_CUDA_H

#include "ops/op.h"

enum { MOE_CUDA_EXPERTS = 1024 }; /* most that the fast kernels take, and tiles with them */

/* vt_impl.workspace of moe_linear's rows. */
size_t moe_cuda_workspace(const void *args, const vt_target *t);

/* Expert e's BF16 matrix is e strides behind the first. */
bool moe_cuda_stacked(const vt_weight *w, int32_t n);

#endif
