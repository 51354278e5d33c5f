/* What the CUDA rows of moe_route and moe_linear share. */
#ifndef VT_OPS_MOE_CUDA_H
#define VT_OPS_MOE_CUDA_H

#include "device/cuda.h"
#include "ops/moe/moe.h"
#include "ops/op.h"

enum { MOE_CUDA_EXPERTS = 1024 }; /* the most that the fast kernels take */

/* vt_impl.workspace of moe_linear's rows. */
size_t moe_cuda_workspace(const void *args, const vt_target *t);

/* The plan of the router's rows: one int32, the number of tokens that are not padding. */
extern const vt_host_plan moe_cuda_tokens_plan;

/* For describe: the shapes of a router and of the experts' products. */
void moe_cuda_route_shape(const moe_route_args *a, const vt_size *size, vt_cut *out);
void moe_cuda_linear_cut(const moe_linear_args *a, const vt_size *size, vt_cut *out);

/* Returns true if the weights are BF16 matrices of equal size that lie one behind the other. */
bool moe_cuda_stacked(const vt_weight *w, int32_t n);

#endif
