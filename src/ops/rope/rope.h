/* Rotary position embedding of q and k, in place, with the optional per-head RMSNorm of q and k
 * before it (Qwen3, Gemma 3) or after it (Hunyuan). (Su et al., 2021, arXiv:2104.09864.)
 *
 * For a pair (a, b) of a head at position p with angle index i:  a' = a cos - b sin,  b' = a sin +
 * b cos, cos_sin[p] = [cos(0..dims/2) | sin(0..dims/2)], made on the host in double (model scaling
 * included). Pairs are (i, i + dims/2), or (2i, 2i + 1) when interleaved; dimensions beyond dims
 * are copied. k may have no columns: then q alone is rotated. q may have a table of its own, whose
 * amplitude grows with the position. */
#ifndef VT_OPS_ROPE_H
#define VT_OPS_ROPE_H

#include "model/model.h"
#include "ops/op.h"

typedef struct rope_args {
    const vt_batch *batch; /* position */
    vt_tensor *q;          /* [tokens, heads * head_dim], a slice */
    vt_tensor *k;          /* [tokens, kv_heads * head_dim], a slice */
    int32_t head_dim, dims;
    bool interleaved;
    const vt_tensor *cos_sin;         /* [max_context, dims] fp32 */
    const vt_tensor *q_cos_sin;       /* q's, where it is not k's; else NULL */
    const vt_tensor *q_norm, *k_norm; /* [head_dim] or NULL */
    float eps;
    bool plus_one;
    bool norm_after; /* the norms are of rotated heads */
} rope_args;

extern const vt_op rope_op;

#endif
