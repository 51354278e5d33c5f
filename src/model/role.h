/* The roles that a model's weights play: one table; nothing else lists weights. Most roles are of
 * tensors as files have them. Stacked ones (q, k and v; gate and up) are made from those when
 * weights are placed (exec/layout.h). */
#ifndef VT_MODEL_ROLE_H
#define VT_MODEL_ROLE_H

#include <stdbool.h>
#include <stdint.h>

/* How a weight is used, which decides its form on a device. */
typedef enum vt_weight_kind {
    VT_KIND_MATRIX,  /* the weight of a linear op */
    VT_KIND_EXPERTS, /* one matrix for each expert, or head: parts are [experts, rows, cols] */
    VT_KIND_EMBED,   /* a table whose rows are looked up */
    VT_KIND_ROUTER,  /* a matrix that stays in a float type: a router's, a convolution's, of
                        positions */
    VT_KIND_VECTOR,  /* norms and biases */
    VT_KIND_ROPE,    /* computed, not in the file */
    VT_KIND_LORA_A,  /* the adapters' parts for a matrix: A, and B (model/lora/lora.h) */
    VT_KIND_LORA_B
} vt_weight_kind;

/* The kinds of blocks that layers are made of. exec/blocks has a row for each. */
typedef enum vt_block_kind {
    VT_BLOCK_NONE,
    VT_BLOCK_ATTENTION,
    VT_BLOCK_FFN,     /* dense and gated */
    VT_BLOCK_MLP,     /* dense, without a gate */
    VT_BLOCK_EXPERTS, /* a router and gated experts */
    VT_BLOCK_CONV,    /* a gated short convolution: a mixer with sequence state */
    VT_BLOCK_MLA,     /* attention to latents of keys and values */
    VT_BLOCK_DELTA,   /* linear attention by the gated delta rule: likewise */
    VT_BLOCK_KDA,     /* the same with a decay for each channel (Kimi delta attention): likewise */
    VT_BLOCK_MAMBA,   /* a selective state space (Mamba-2): likewise */
    VT_BLOCKS
} vt_block_kind;

/* Where a layer has norms: before its blocks, after them, or both; or of the sum of a block's
 * result and what it was added to (BERT's "post-norm"). */
enum { VT_NORM_BEFORE = 1, VT_NORM_AFTER = 2, VT_NORM_JOINED = 4 };

/* A dimension of a tensor, in terms of the model's numbers. */
typedef enum vt_dim {
    VT_DIM_NONE,
    VT_DIM_HIDDEN,
    VT_DIM_Q,
    VT_DIM_KV,
    VT_DIM_FFN,
    VT_DIM_HEAD,
    VT_DIM_HEADS, /* their number */
    VT_DIM_VOCAB,
    VT_DIM_EXPERTS,
    VT_DIM_EXPERT_FFN,
    VT_DIM_POSITIONS,
    VT_DIM_TYPES,
    VT_DIM_LABELS,  /* of a classifier */
    VT_DIM_CONV_IN, /* three times the hidden size */
    VT_DIM_TAPS,    /* of a short convolution */
    VT_DIM_Q_GATED, /* q and a gate of as many numbers */
    VT_DIM_SHARED_FFN,
    /* of latent attention: all heads' q, q's latent, the latent of k and v, a row of the cache, a
     * head's dimensions without rope, a head's v, all heads' v */
    VT_DIM_MLA_Q,
    VT_DIM_MLA_Q_RANK,
    VT_DIM_MLA_RANK,
    VT_DIM_MLA_ROW,
    VT_DIM_MLA_NOPE,
    VT_DIM_MLA_V,
    VT_DIM_MLA_O,
    /* of a delta rule: q, k and v together; v; its heads; one of them; what decays and gates are
     * made of */
    VT_DIM_DELTA_QKV,
    VT_DIM_DELTA_V,
    VT_DIM_DELTA_HEADS,
    VT_DIM_DELTA_HEAD,
    VT_DIM_DELTA_RANK,
    /* of a state space: what its projection makes, what is convolved, its heads, all they have */
    VT_DIM_MAMBA_ROWS,
    VT_DIM_MAMBA_CHANNELS,
    VT_DIM_MAMBA_HEADS,
    VT_DIM_MAMBA_INNER,
    VT_DIM_ONE,
    VT_DIM_PER_LAYER, /* of a layer's own embedding; of those of all layers */
    VT_DIM_PER_LAYERS,
    VT_DIM_MTP_IN, /* of an MTP head: twice the hidden size */
    VT_DIM_WORDS,  /* tokens that an embedding has a row for: the vocabulary, or of an EAGLE-3 head
                      that of its model */
    VT_DIM_AUX_IN  /* of an EAGLE-3 head: as many hidden states of its model as it reads */
} vt_dim;

typedef enum vt_need {
    VT_NEED_ALWAYS,   /* by every layer with the role's block and norm */
    VT_NEED_NOT,      /* taken if the file has it */
    VT_NEED_BY_FAMILY /* by families that say so; no place in others */
} vt_need;

typedef enum vt_role {
    /* as files have them */
    VT_ROLE_EMBED,
    VT_ROLE_POSITIONS,
    VT_ROLE_TYPES,
    VT_ROLE_EMBED_NORM,
    VT_ROLE_EMBED_NORM_BIAS,
    VT_ROLE_PER_LAYER, /* of embeddings for each layer: outside the layers */
    VT_ROLE_PER_LAYER_IN,
    VT_ROLE_PER_LAYER_NORM,
    VT_ROLE_MTP_EMBED_NORM, /* of an MTP head (model/mtp.h): outside the layers */
    VT_ROLE_MTP_HIDDEN_NORM,
    VT_ROLE_MTP_IN,
    VT_ROLE_AUX_IN, /* of an EAGLE-3 head (model/eagle.h): likewise */
    VT_ROLE_ATTN_NORM,
    VT_ROLE_Q,
    VT_ROLE_K,
    VT_ROLE_V,
    VT_ROLE_O,
    VT_ROLE_Q_BIAS,
    VT_ROLE_K_BIAS,
    VT_ROLE_V_BIAS,
    VT_ROLE_O_BIAS,
    VT_ROLE_Q_NORM,
    VT_ROLE_K_NORM,
    VT_ROLE_SINKS,
    VT_ROLE_MLA_Q, /* without a latent of q; with one: the next three */
    VT_ROLE_MLA_Q_A,
    VT_ROLE_MLA_Q_A_NORM,
    VT_ROLE_MLA_Q_B,
    VT_ROLE_MLA_KV_A,
    VT_ROLE_MLA_KV_A_NORM,
    VT_ROLE_MLA_K_B, /* each head's, which makes its q fit latents; and its v of a latent */
    VT_ROLE_MLA_V_B,
    VT_ROLE_MLA_O,
    VT_ROLE_CONV_IN,
    VT_ROLE_CONV_TAPS,
    VT_ROLE_CONV_OUT,
    VT_ROLE_DELTA_QKV,
    VT_ROLE_DELTA_Z,
    VT_ROLE_DELTA_B,
    VT_ROLE_DELTA_A,
    VT_ROLE_DELTA_CONV,
    VT_ROLE_DELTA_DECAY,
    VT_ROLE_DELTA_DT,
    VT_ROLE_DELTA_NORM,
    VT_ROLE_DELTA_OUT,
    VT_ROLE_KDA_Q, /* to b: of the first product */
    VT_ROLE_KDA_K,
    VT_ROLE_KDA_V,
    VT_ROLE_KDA_F_A,
    VT_ROLE_KDA_G_A,
    VT_ROLE_KDA_B,
    VT_ROLE_KDA_F_B,
    VT_ROLE_KDA_G_B,
    VT_ROLE_KDA_CONV_Q,
    VT_ROLE_KDA_CONV_K,
    VT_ROLE_KDA_CONV_V,
    VT_ROLE_KDA_DECAY,
    VT_ROLE_KDA_DT,
    VT_ROLE_KDA_NORM,
    VT_ROLE_KDA_OUT,
    VT_ROLE_MAMBA_IN,
    VT_ROLE_MAMBA_CONV,
    VT_ROLE_MAMBA_CONV_BIAS,
    VT_ROLE_MAMBA_DECAY,
    VT_ROLE_MAMBA_SKIP,
    VT_ROLE_MAMBA_DT,
    VT_ROLE_MAMBA_NORM,
    VT_ROLE_MAMBA_OUT,
    VT_ROLE_POST_ATTN_NORM,
    VT_ROLE_POST_ATTN_NORM_BIAS,
    VT_ROLE_FFN_NORM,
    VT_ROLE_GATE,
    VT_ROLE_UP,
    VT_ROLE_DOWN,
    VT_ROLE_GATE_BIAS,
    VT_ROLE_UP_BIAS,
    VT_ROLE_DOWN_BIAS,
    VT_ROLE_POST_FFN_NORM,
    VT_ROLE_POST_FFN_NORM_BIAS,
    VT_ROLE_ROUTER,
    VT_ROLE_EXPERT_GATE,
    VT_ROLE_EXPERT_UP,
    VT_ROLE_EXPERT_DOWN,
    VT_ROLE_ROUTER_BIAS,
    VT_ROLE_ROUTER_CHOICE,
    VT_ROLE_EXPERT_GATE_BIAS,
    VT_ROLE_EXPERT_UP_BIAS,
    VT_ROLE_EXPERT_DOWN_BIAS,
    VT_ROLE_SHARED_SHARE,
    VT_ROLE_SHARED_GATE,
    VT_ROLE_SHARED_UP,
    VT_ROLE_SHARED_DOWN,
    VT_ROLE_SHARED_POST_NORM, /* of experts whose parts have norms of their own */
    VT_ROLE_EXPERT_NORM,
    VT_ROLE_EXPERT_POST_NORM,
    VT_ROLE_ROUTER_NORM,
    VT_ROLE_ROUTER_OWN,
    VT_ROLE_PER_LAYER_GATE, /* in layers */
    VT_ROLE_PER_LAYER_OUT,
    VT_ROLE_PER_LAYER_POST_NORM,
    VT_ROLE_LAYER_SCALE,
    VT_ROLE_FINAL_NORM,
    VT_ROLE_HEAD,
    VT_ROLE_RANK_DENSE, /* of a model that scores pairs of texts (model/rank.h) */
    VT_ROLE_RANK_DENSE_BIAS,
    VT_ROLE_RANK_OUT,
    VT_ROLE_RANK_OUT_BIAS,
    /* stacked: a layer has either the stack or its parts */
    VT_ROLE_QKV,
    VT_ROLE_QKV_BIAS,
    VT_ROLE_GATE_UP,        /* paired */
    VT_ROLE_EXPERT_GATE_UP, /* paired */
    VT_ROLE_EXPERT_BIAS,    /* of all gates, then of all ups */
    VT_ROLE_SHARED_GATE_UP, /* paired */
    VT_ROLE_DELTA_IN,       /* q, k, v and z */
    VT_ROLE_DELTA_BA,       /* b and a */
    VT_ROLE_KDA_IN,         /* q, k, v, f_a, g_a and b */
    VT_ROLE_KDA_CONV,       /* of q, k and v */
    VT_ROLE_AUX, /* and the next ones: a part of the columns of VT_ROLE_AUX_IN for each layer */
    VT_ROLE_AUX_LAST = VT_ROLE_AUX + 2,
    /* computed */
    VT_ROLE_ROPE, /* and its next: the model's ropes, by index */
    VT_ROLE_ROPE_LOCAL,
    VT_ROLES
} vt_role;

typedef struct vt_role_row {
    const char *name; /* of its label: "attn_norm" */
    vt_weight_kind kind;
    const char *gguf,
        *hf;       /* of a layer: after "blk.N." and "model.layers.N."; NULL: not in files */
    vt_dim dim[3]; /* VT_DIM_NONE ends the list */
    vt_block_kind block, other; /* the layers with one of these blocks have it; NONE: all */
    uint8_t norm;               /* ... with norms there */
    vt_need need;
    bool kv; /* makes keys and values: layers that read another's do without */
} vt_role_row;

extern const vt_role_row vt_roles[VT_ROLES];

#endif
