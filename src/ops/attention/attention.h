/* Attention over paged KV.
 *
 *   o[t, h, :] = sum_j softmax_j(scale * q[t, h] . k[j, h / group]) v[j, h / group]
 *   over j <= position[t] + after, as far as the sequence goes
 *   and, with a window w > 0,  j > position[t] - w
 *
 * after is 0 in causal attention. Where it is not, a token sees those behind it, so a step has to
 * bring all tokens of the sequence.
 *
 * A head may have a sink: a score that takes part in the softmax and has no value, so that its
 * weights sum to less than 1 (gpt-oss).
 *
 * Scores may have a cap c: they become c tanh(score / c) (Gemma 2).
 *
 * In the absorbed form of latent attention (DeepSeek-V2, 2024, arXiv:2405.04434) K's rows hold V
 * too: v_pool is k_pool, and V the last v_dim values of a row. A head of o then has v_dim values.
 *
 * attention_decode handles the sequences 0 .. n_decode-1 of the batch (1 to VT_DECODE_MOST tokens
 * each), attention_prefill the others. The tokens' own K and V are in the pool before the op runs.
 * Online softmax in fp32 (Milakov and Gimelshein, 2018, arXiv:1805.02867); KV is walked in blocks
 * that begin at multiples of ATTENTION_BLOCK absolute positions, so that a row's result does not
 * depend on the batch, the chunking or the threads. group = heads / kv_heads.
 *
 * What makes q and stores K and V may come with a decode (before): a row that does that work itself
 * (vt_impl.makes_before) reads what that call reads, in place of q and of the tokens' own K and V.
 *
 * Pools of FP8 (E4M3) hold k / k_scale and v / v_scale; others have scales of 1. */
#ifndef VT_OPS_ATTENTION_H
#define VT_OPS_ATTENTION_H

#include "ops/rope_store/rope_store.h"

enum { ATTENTION_BLOCK = 64 };

typedef struct attention_args {
    const vt_batch *batch;
    const vt_tensor *q;               /* [tokens, heads * head_dim], a slice */
    const vt_tensor *k_pool, *v_pool; /* [pages, kv_heads, page_size, head_dim] */
    vt_tensor *o;                     /* [tokens, heads * (v_dim or head_dim)] */
    int32_t heads, kv_heads, head_dim;
    int32_t v_dim; /* 0: V has a pool of its own, in rows of head_dim */
    float scale, k_scale, v_scale;
    int32_t window; /* 0: none */
    int32_t after;  /* positions behind a token's own that it sees: 0, or up to INT32_MAX (all) */
    const vt_tensor *sinks; /* [heads] float type, or NULL */
    float cap;              /* of scores; 0: none */
    rope_store_args before; /* the call in front of a decode; before.rope.q is NULL: none */
} attention_args;

extern const vt_op attention_prefill_op;
extern const vt_op attention_decode_op;

#endif
