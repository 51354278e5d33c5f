/* A model: an architecture description with knobs, named weights, a tokenizer and a chat template.
 * One description for every family; the program builder reads the knobs and nothing else. */
#ifndef VT_MODEL_MODEL_H
#define VT_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/tensor.h"
#include "model/role.h"
#include "vitrine.h"

struct vt_tokenizer;                /* text/tokenizer/tokenizer.h */
struct vt_template;                 /* text/template/template.h */
typedef struct vt_family vt_family; /* model/family.h */

/* VT_ACT_CLAMPED: of gated pairs, with a limit (ops/linear/linear.h). VT_ACT_RELU2: the square of
 * ReLU, without a gate */
typedef enum vt_activation {
    VT_ACT_SILU,
    VT_ACT_GELU_TANH,
    VT_ACT_CLAMPED,
    VT_ACT_RELU2,
    VT_ACT_GELU_ERF
} vt_activation;
typedef enum vt_rope_scaling {
    VT_ROPE_PLAIN,
    VT_ROPE_LINEAR,
    VT_ROPE_LLAMA3,
    VT_ROPE_YARN,
    VT_ROPE_LONGROPE
} vt_rope_scaling;

enum { VT_ROPES = 2, VT_KV_GROUPS = 4 }; /* at most: ropes of a model, shapes of its K and V */
enum { VT_AUX_LAYERS = 3 };              /* whose input an EAGLE-3 head reads */

typedef struct vt_rope_params {
    double base;      /* theta */
    int32_t dims;     /* rotated dimensions of a head, <= head_dim, even */
    bool interleaved; /* pairs (2i, 2i+1); else (i, i + dims/2) */
    vt_rope_scaling scaling;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    int32_t original_context;                 /* llama3, yarn, longrope */
    double attn_factor;          /* yarn, longrope; 0: 0.1 ln(factor) + 1, or 1 of longrope */
    double beta_fast, beta_slow; /* yarn */
    bool yarn_truncate;          /* yarn: correction range rounded outwards (default true) */
    /* longrope: what frequencies are divided by, [dims / 2], in contexts up to the original one and
     * in longer ones */
    const float *short_factor, *long_factor;
    int32_t still; /* so many of the last pairs are not rotated: their angle is 0 */
    int32_t span;  /* the dimensions that frequencies are spread over; 0: dims */
    /* cos and sin times 1 + temper ln(1 + floor(position / original_context)); 0: times 1 */
    double temper;
} vt_rope_params;

/* Multi-head latent attention (exec/blocks/mla.c): sizes of the vectors that it makes keys, values
 * and queries from. A head's q and k have `nope` dimensions that are not rotated and then `rope`
 * that are; the latter of k are one vector for all heads. */
typedef struct vt_mla {
    int32_t q_rank;  /* of q's latent; 0: q is made from the hidden state itself */
    int32_t kv_rank; /* of the latent of k and v; 0: no layer has such attention */
    int32_t nope, rope, v;
    float norm_eps; /* of the norms of latents */
} vt_mla;

/* Layers of linear attention (ops/gated_delta/gated_delta.h). */
typedef struct vt_delta {
    int32_t k_heads, v_heads, k_dim, v_dim;
    int32_t gate_rank; /* of the products that make decays and gates (exec/blocks/kda.c); else 0 */
    bool log_decay;    /* the files hold the decay's logarithm */
    bool tiled; /* V head j has K head j mod k_heads, for the files have them in that order */
} vt_delta;

/* Layers of selective state spaces, Mamba-2 (ops/selective_state/selective_state.h). */
typedef struct vt_mamba {
    int32_t heads, groups, head_dim, state_dim;
    float step_min, step_max; /* of a token's step; step_max 0: no limit */
    bool log_decay;           /* the files hold the decay's logarithm */
} vt_mamba;

typedef struct vt_arch {
    char family[32]; /* "llama", "qwen3", "gemma3", ... */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, max_context;
    float norm_eps;
    bool layer_norm;    /* norms subtract the mean (LayerNorm), and may have a bias; else RMSNorm */
    bool norm_plus_one; /* weights are applied as (1 + w); GGUF files have it folded in: false */
    bool tied_head;     /* the head is the embedding */
    vt_activation activation;
    float act_limit;      /* of VT_ACT_CLAMPED */
    float embed_scale;    /* 1, or sqrt(hidden) for Gemma */
    float attn_scale;     /* multiplies q k; 1/sqrt(head_dim) unless the model says otherwise */
    float residual_scale; /* multiplies what a block adds to the residual stream; usually 1 */
    float logit_scale;    /* 1 unless the model says otherwise */
    int32_t window;       /* sliding window in tokens, counting the token itself; 0: none */
    vt_rope_params rope[VT_ROPES];
    int32_t n_ropes;
    /* mixture of experts; n_experts 0: dense */
    int32_t n_experts, n_experts_used, expert_ffn;
    /* learned positions: rows of the table, and its row of position 0; 0: there is none */
    int32_t n_positions, first_position;
    int32_t n_types;    /* of texts in a sequence, which have a vector each; 0: they have none */
    int32_t n_labels;   /* 1: the model has a classifier that scores pairs of texts; 0: none */
    int32_t shared_ffn; /* of the expert that every token has; 0: there is none */
    /* how experts are chosen and weighed (ops/moe/moe.h); expert_groups 0: there are none */
    bool route_sigmoid;
    int32_t expert_groups, expert_groups_used;
    float route_scale;
    int32_t conv_taps; /* of layers that mix tokens by a short convolution; 0: none does */
    vt_mla mla;        /* kv_rank 0: no layer attends to latents */
    vt_delta delta;    /* k_heads 0: no layer has a delta rule */
    vt_mamba mamba;    /* heads 0: no layer has a state space */
    bool out_gate;     /* attention's output has a gate, whose numbers come out of q's projection */
    bool norm_topk;    /* the weights of the chosen experts are rescaled to a sum of 1 */
    bool v_norm;       /* each head of v is normalised, without a weight */
    float scores_within; /* c: scores of attention become c tanh(score / c); 0: they stay */
    float logits_within; /* c: logits become c tanh(logit / c); 0: they stay as they are */
    int32_t per_layer;   /* numbers that a token's embedding has for each layer beside; 0: none */
} vt_arch;

/* Which hidden states a vector is made of. */
typedef enum vt_pooling {
    VT_POOLING_NONE, /* none: the model, or the engine, generates text */
    VT_POOLING_LAST, /* the last token's */
    VT_POOLING_MEAN, /* the mean of all */
    VT_POOLING_CLS,  /* the first token's */
    VT_POOLING_RANK  /* one, of which a score is read (model/rank.h) */
} vt_pooling;

/* A text that belongs in front of a text to embed: "query: ". */
typedef struct vt_named_prompt {
    const char *name, *text;
} vt_named_prompt;

/* A dense layer behind pooling (model/dense.h). */
typedef struct vt_dense {
    const vt_tensor *weight, *bias; /* [out, in], [out] or NULL */
    bool tanh;
} vt_dense;

enum { VT_DENSE_MOST = 4 };

/* Facts of a model's files about making vectors (model/pooled.h). */
typedef struct vt_pooled {
    vt_pooling how;                /* NONE: they say nothing */
    bool unscaled;                 /* vectors are not scaled to length 1 */
    vt_dense dense[VT_DENSE_MOST]; /* [n_dense] what the pooled state passes, in this order */
    int32_t n_dense;
    vt_named_prompt *prompt; /* [n_prompts] */
    int32_t n_prompts;
    const char *usual; /* the text of the prompt that is taken without being asked for; or NULL */
} vt_pooled;

/* An MTP head, as a model of one layer (model/mtp.h). */
typedef struct vt_mtp {
    int32_t behind; /* the number of layers of the model that it belongs to; 0: this is none */
    const vt_tensor *embed_norm, *hidden_norm, *in; /* [hidden], [hidden], [hidden, 2 hidden] */
} vt_mtp;

/* An EAGLE-3 head, as a model of one layer (model/eagle.h). Its vocabulary may be a part of that of
 * the model which it drafts for. Its norms are `mtp`'s. */
typedef struct vt_eagle {
    bool is;                            /* false: this is none */
    const struct vt_eagle_names *names; /* how its files name its tensors; NULL: as a model's */
    bool normed_stream;  /* its residual stream begins with the normed hidden state */
    int32_t words;       /* tokens of the model */
    const int32_t *word; /* [vocab] the model's ids of its own tokens; NULL: they are the same */
    int32_t aux_hidden;  /* the hidden size of the model */
    int32_t n_aux;       /* layers of the model that its files name; 0: the usual ones */
    int32_t aux[VT_AUX_LAYERS];
} vt_eagle;

/* An EAGLE-3 head has its model compute this beside the logits: the residual stream as it enters
 * these layers, side by side, through a matrix [hidden of the head, layers * hidden]. */
typedef struct vt_aux {
    int32_t layer[VT_AUX_LAYERS]; /* the number of layers: behind the last */
    const vt_tensor *in;          /* NULL: nothing */
} vt_aux;

/* The weights of a classifier that scores pairs of texts. */
typedef struct vt_ranker {
    const vt_tensor *dense, *dense_bias; /* [hidden, hidden], [hidden] */
    const vt_tensor *out, *out_bias;     /* [1, hidden], [1]; NULL: the model has none */
    bool linear;                         /* the score is the logit itself, not its sigmoid */
} vt_ranker;

/* How a layer attends. */
typedef struct vt_heads {
    int32_t heads, kv_heads, dim;
    int32_t window;    /* tokens that a token sees, counting itself; 0: all before it */
    int8_t rope;       /* which of the model's ropes; -1: q and k are not rotated */
    int32_t after;     /* tokens behind it that a token sees: 0, or up to INT32_MAX (all) */
    int32_t v_dim;     /* K's rows hold V too, as their last v_dim values; 0: they do not */
    bool q_rope_next;  /* q is rotated by the rope after k's, whose amplitude alone differs */
    bool v_of_k;       /* v is k as it is projected: there is no projection of v */
    bool norm_rotated; /* norms of q and k are of rotated heads; else of heads to be rotated */
} vt_heads;

/* Matrices are [out, in]; norms and biases have rank 1; the experts' matrices rank 3,
 * [n_experts, out, in]. */
typedef struct vt_layer {
    uint8_t mixer, ffn; /* vt_block_kind */
    uint8_t norms;      /* VT_NORM_BEFORE | VT_NORM_AFTER */
    vt_heads head;
    int16_t kv_of;       /* the layer whose keys and values it reads: itself, or one before it */
    int32_t state_bytes; /* of state that a sequence has here in place of keys and values; or 0 */
    int16_t kv_group;    /* layers whose keys and values have one shape, with a window or all
                            without one, are a group */
    int32_t ffn_size;    /* of its dense feed-forward; 0: vt_arch.ffn */
    const vt_tensor *weight[VT_ROLES]; /* NULL: the layer does not have it */
    /* of FP8 weights: one number, or one for each 128 x 128 block; of experts: rank 3, every
     * expert's own, [n_experts, 1, 1] or blocks */
    const vt_tensor *scale[VT_ROLES];
    /* An FP8 cache stores K and V divided by these; 1 where the file gives none. */
    float kv_k_scale, kv_v_scale;
} vt_layer;

struct vt_model {
    vt_arena arena; /* holds everything below */
    char *name, *path;
    vt_arch arch;
    const vt_family *family;                    /* of a model with weights */
    const vt_tensor *embed, *final_norm, *head; /* head == embed if tied */
    /* what is added to the embedding, and the norm of the sum; NULL: none */
    const vt_tensor *positions, *types, *embed_norm, *embed_norm_bias;
    /* embeddings for each layer: their table, what of the first embedding is added, its norm */
    const vt_tensor *per_layer, *per_layer_in, *per_layer_norm;
    vt_ranker ranker;
    vt_mtp mtp;
    vt_eagle eagle;
    vt_aux aux;      /* of a head: its own; of the model that it drafts for: what that computes */
    vt_layer *layer; /* [n_layers] */
    int64_t weight_bytes;        /* of all tensors, as stored */
    int64_t n_tensors, n_params; /* tensors in the files; elements of those that are used */
    int64_t skipped_bytes;       /* of tensors whose part of the model is not run here ... */
    const char *skipped; /* ... and which parts these are, for people; NULL: there are none */
    char quant[32];      /* the type that most bytes of the matrices have, for people: "Q4_1" */
    struct vt_tokenizer *tokenizer; /* NULL if the file has none */
    struct vt_template *chat_template;
    vt_pooled pooled;
    const struct vt_lora *lora; /* adapters (model/lora/lora.h); NULL: there are none */
    int32_t *eos;               /* [n_eos] ids that end a completion */
    int32_t n_eos, bos;         /* bos -1: none */
    bool add_bos;
    /* generation defaults from generation_config.json; NAN or -1 where absent */
    float gen_temperature, gen_top_p, gen_min_p, gen_repetition_penalty;
    int32_t gen_top_k;
    /* what holds the weights, and how it is released */
    void (*close)(struct vt_model *m);
    /* makes the weights that lie in no file as rows read them; NULL: all do */
    vt_status (*make_weights)(const struct vt_model *m, vt_err *err);
    /* ends what a make_weights that succeeded began; keep: they are read until the model ends;
     * NULL: nothing is given up before */
    void (*drop_weights)(const struct vt_model *m, bool keep);
    bool mapped;  /* every tensor lies in a mapped file: pages that are dropped can be read again */
    void *source; /* the open file(s), private to the loader */
};

/* Returns true if the model is a head that reads hidden states of another and drafts for it. */
static inline bool vt_model_is_head(const vt_model *m) { return m->mtp.behind > 0 || m->eagle.is; }

/* Returns true if the layer stores keys and values in the cache, or reads another's. */
static inline bool vt_layer_attends(const vt_layer *l)
{
    return l->mixer == VT_BLOCK_ATTENTION || l->mixer == VT_BLOCK_MLA;
}

/* Returns the element type that stands for those of the model's matrices: that of the first q, or
 * of what the first latent is made with. */
static inline vt_dtype vt_model_dtype(const vt_model *m)
{
    for (int32_t i = 0; m->layer && i < m->arch.n_layers; i++) {
        const vt_tensor *const *w = m->layer[i].weight;
        const vt_tensor *first = w[VT_ROLE_Q] ? w[VT_ROLE_Q] : w[VT_ROLE_MLA_KV_A];
        if (first)
            return first->dtype;
    }
    return VT_F32;
}

/* Returns true if a token sees those behind it: all of a sequence then has to be in one step, and
 * no later sequence can use its keys and values. */
static inline bool vt_model_bidirectional(const vt_model *m)
{
    for (int32_t i = 0; m->layer && i < m->arch.n_layers; i++)
        if (m->layer[i].head.after > 0)
            return true;
    return false;
}

#endif
