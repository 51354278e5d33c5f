/* y = epilogue(x W^T + bias) (+ residual): GEMM for many rows, GEMV for one; weights quantised or
 * not.
 *
 *   NONE:    y[t, j] = x[t, :] . W[j, :] + bias[j] + residual[t, j]          y is [tokens, rows]
 *   SWIGLU:  y[t, j] = silu(g) * u      with g, u from parts 0 (gate) and 1 (up) of a paired weight
 *   GEGLU:   y[t, j] = gelu_tanh(g) * u                                    y is [tokens, rows / 2]
 *   CLAMPED: y[t, j] = g / (1 + e^(-1.702 g)) * (u + 1)      with g at most `limit`, |u| likewise
 *
 * The residual may be y itself (x += o(...)). Quantised weights (CPU with AVX2 or more): the
 * activations of each row are quantised to int8 in blocks of 32 with an fp32 scale, and the
 * products of a block are summed in int32; float weights: fp32 products, fp32 sums (BF16 and FP8
 * with AMX: each activation is two bf16). The portable implementation dequantises weights instead.
 * On Hopper, FP8 weights with a scale for each block: the activations of many tokens are rounded to
 * E4M3 in units of 128 columns with an fp32 scale, unless the program is deterministic.
 * Which of these runs, and in which order the blocks are added, depends on the weight's type and
 * the instruction set only (ops/op.h). */
#ifndef VT_OPS_LINEAR_H
#define VT_OPS_LINEAR_H

#include "ops/op.h"

typedef enum linear_epilogue {
    LINEAR_NONE = 0,
    LINEAR_SWIGLU,
    LINEAR_GEGLU,
    LINEAR_CLAMPED
} linear_epilogue;

typedef struct linear_args {
    const vt_tensor *x;        /* [tokens, cols] */
    const vt_weight *w;        /* [rows, cols] */
    const vt_tensor *bias;     /* [rows] float type, in the order of the parts; or NULL */
    const vt_tensor *residual; /* [tokens, rows] or NULL; may be y */
    /* x is norm(before), with the weights `norm` (ops/rmsnorm). A row that makes the norm itself
     * reads `before` in place of x (vt_impl.makes_before). NULL: x is all that there is. */
    const vt_tensor *before; /* [tokens, cols] */
    const vt_tensor *norm;   /* [cols] fp32 */
    float eps;
    bool plus_one;
    vt_tensor *y;
    linear_epilogue epilogue;
    float limit; /* of LINEAR_CLAMPED */
    bool fresh;  /* CUDA: the kernel before this one writes the weights, so no part of them may be
                    loaded while it still runs */
    float scale; /* multiplies x W^T before bias; 1 unless the model scales its logits */
} linear_args;

extern const vt_op linear_op;

/* The row that runs products with this weight on a CPU; NULL if none takes its type. */
const vt_impl *linear_row_for(const vt_weight *w, const vt_target *t);
/* The row of a CPU that reads the call's weight in the form in which it was packed. For a weight
 * that was not packed: the best row that reads it as it is. */
const vt_impl *linear_packed_row(const linear_args *args, const vt_target *t);

#endif
