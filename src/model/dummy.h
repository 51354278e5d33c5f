/* The weights of dummy models: a pure function of (tensor name, element index), the same on a CPU,
 * on a GPU and on any number of ranks.
 *
 *   key(name)   = mix(FNV-1a of the name's bytes, 64 bits)
 *   word(k, j)  = mix(k + (j + 1) * 0x9e3779b97f4a7c15)            mix: vt_mix64, splitmix64's
 *   r(k, i)     = int16 of bits 16 (i % 4) .. of word(k, i / 4)    four elements a word
 *   matrix      : bf16( r * 2^-(15 + s) ),      s = floor(log2(cols) / 2)
 *   norm weight : bf16( 1 + r * 2^-19 )         within 1/16 of 1
 *   bias        : none of these models has one
 *
 * i counts elements of the whole tensor in row-major order: a rank that holds rows or columns of
 * it uses the whole tensor's index. Names are Hugging Face's, as
 * "model.layers.0.self_attn.q_proj.weight"; stacked experts are
 * "model.layers.0.mlp.experts.gate_proj.weight" [experts, out, in]. cols is the last dimension.
 *
 * Matrix elements are uniform in [-2^-s, 2^-s): a deviation of 0.58 to 1.15 / sqrt(cols), so every
 * matrix keeps activations near the size it gets them in. The product before rounding is exact in
 * fp32: rounding to bf16 (nearest, ties to even) is the only rounding, and no two implementations
 * can differ. */
#ifndef VT_MODEL_DUMMY_H
#define VT_MODEL_DUMMY_H

#include <string.h>

#include "base/random.h"
#include "base/tensor.h"
#include "model/model.h"

static inline uint64_t dummy_key(const char *name)
{
    return vt_mix64(vt_fnv1a(VT_FNV_OFFSET, name, strlen(name)));
}

static inline uint64_t dummy_word(uint64_t key, uint64_t j)
{
    return vt_mix64(key + (j + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* s of the table above, for a matrix. */
static inline int dummy_shift(int64_t cols) { return (63 - __builtin_clzll((uint64_t)cols)) / 2; }

/* A device needs this to make a tensor: element i is bf16(base + r(key, i) * scale). */
typedef struct dummy_rule {
    uint64_t key;
    float base, scale;
} dummy_rule;

/* The rule of a dummy model's tensor: rank 1 is a norm, others are matrices. */
dummy_rule dummy_rule_of(const vt_tensor *t);
/* Elements [begin, begin + n) of the whole tensor. */
void dummy_fill(const dummy_rule *rule, uint64_t begin, int64_t n, uint16_t *out);

/* Returns true if a model's weights are this function. Its tensors then have data reserved but not
 * filled: vt_model_host_weights fills them, a device may make its own. */
bool vt_model_is_dummy(const vt_model *m);

#endif
