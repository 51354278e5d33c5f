/* The CUDA rows of moe_route and moe_linear share this. */
#ifndef VT_OPS_MOE_CUDA_H
#define VT_OPS_MOE_CUDA_H

#include "device/cuda/cuda.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_params.h"
#include "ops/op.h"

enum { MOE_CUDA_EXPERTS = 1024 }; /* the most that the fast kernels take */

/* vt_impl.workspace of moe_linear's rows, and where its parts lie in it. */
size_t moe_cuda_workspace(const void *args, const vt_target *t);

typedef struct moe_cuda_scratch {
    size_t order, tiles, n_tiles; /* what moe_group.cu writes */
    size_t h, part;               /* [slots, ffn] BF16, [slots, hidden] F32 or BF16 */
    size_t bytes;
} moe_cuda_scratch;

moe_cuda_scratch moe_cuda_scratch_of(const moe_linear_args *a, int64_t tokens);
vt_status moe_cuda_check_workspace(const moe_linear_args *a, const vt_lane *lane);

/* Launches moe_group.cu: sorts the slots by expert, and cuts each expert's into tiles of up to
 * `width`. */
vt_status moe_cuda_run_group(const moe_linear_args *a, const vt_lane *lane, int32_t width,
                             int32_t threads);

/* The form of the experts' weights for moe_linear's rows. */
extern const vt_packing moe_cuda_packing;

/* The plan of the router's rows: one int32, the number of tokens that are not padding. */
extern const vt_host_plan moe_cuda_tokens_plan;

/* The parameters that both kernels of a router read. */
moe_route_params moe_cuda_route_params(const moe_route_args *a, const vt_lane *lane);

/* For describe: the shapes of a router and of the experts' products. */
void moe_cuda_route_shape(const moe_route_args *a, const vt_size *size, vt_cut *out);
void moe_cuda_linear_cut(const moe_linear_args *a, const vt_size *size, vt_cut *out);

/* Returns true if the kernels of every row know the call's types, activation and biases. */
bool moe_cuda_knows(const moe_linear_args *a);
/* Returns true if the first product, or the second, has biases. */
static inline bool moe_cuda_bias(const moe_linear_args *a, bool up)
{
    return (up ? a->bias : a->down_bias) != NULL;
}
/* The members of a first product's parameters for its biases and its activation. */
#define MOE_EXPERT_EXTRAS(a)                                                                   \
    .bias = (a)->bias ? (a)->bias->data : NULL,                                                \
    .up_bias = (a)->bias ? (const float *)(a)->bias->data + (a)->n_experts * (a)->bias->dim[1] \
                         : NULL,                                                               \
    .limit = (a)->limit

/* Return true if the weights are matrices of equal size that lie one behind the other: in BF16, or
 * in quantised tiles. */
bool moe_cuda_stacked(const vt_weight *w, int32_t n);
bool moe_cuda_tiled(const vt_weight *w, int32_t n);

/* Counts the bytes by which quantised tiles are larger than the file, for the experts that the card
 * counts. */
vt_cost moe_cuda_extra(const void *args, const vt_target *t, const vt_batch *batch);

#endif
