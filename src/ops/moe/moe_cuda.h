/* What moe_linear's CUDA implementations share. */
#ifndef VT_OPS_MOE_CUDA_H
#define VT_OPS_MOE_CUDA_H

#include "ops/op.h"

enum { MOE_CUDA_EXPERTS = 1024 }; /* most that the fast kernels take, and tiles with them */

/* Bytes of lane workspace that moe_linear needs. */
size_t moe_cuda_workspace(int64_t tokens, int32_t used, int32_t experts, int32_t hidden,
                          int32_t ffn);

/* Expert e's BF16 matrix is e strides behind the first. */
bool moe_cuda_stacked(const vt_weight *w, int32_t n);

#endif
