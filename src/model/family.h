/* A family of models: all that is not the same for every family, in one file of model/families.
 *
 * Facts that many families share are members here; the readers of GGUF metadata and of config.json
 * know what they mean. What only one family has is read by its own functions. */
#ifndef VT_MODEL_FAMILY_H
#define VT_MODEL_FAMILY_H

#include <jansson.h>

#include "base/err.h"
#include "files/gguf.h"
#include "model/hf_config.h"
#include "model/model.h"

/* Reading a GGUF file's metadata. Keys are "<general.architecture>.<key>". */
typedef struct gguf_reader {
    const gguf_file *file;
    const vt_family *family;
    vt_model *m;
    vt_err *err;
    char key[128]; /* the key being read, for messages */
} gguf_reader;

const char *gguf_reader_key(gguf_reader *r, const char *key);
vt_status gguf_read_i32(gguf_reader *r, const char *key, bool required, int32_t *out);
/* The same of a layer, where the key has a list with a number for each layer; a number counts for
 * all of them. */
vt_status gguf_read_of_layer(gguf_reader *r, const char *key, int32_t layer, int32_t *out);
/* Returns false if the key has a list with 0 for this layer (vt_family.gguf_zeros). */
bool gguf_layer_has(const gguf_reader *r, const char *key, int32_t layer);
vt_status gguf_read_f64(gguf_reader *r, const char *key, bool required, double *out);
/* A factor that is multiplied in; *out stays where the file does not give it. */
vt_status gguf_read_factor(gguf_reader *r, const char *key, double *out);
/* A cap c of numbers that become c tanh(number / c), which a negative c does not change. *out stays
 * where the file does not give it; 0: none. */
vt_status gguf_read_cap(gguf_reader *r, const char *key, float *out);
/* Sets which layers have the window: all but every period-th, or as
 * attention.sliding_window_pattern says, which is another period or a list. Where the model has two
 * ropes, layers with the window use the second. */
vt_status gguf_read_windows(gguf_reader *r, int32_t period);

/* Reading config.json. */
typedef struct hf_reader {
    const char *path;
    const json_t *root;  /* the object that describes the model: the whole file, or part of it */
    const json_t *outer; /* the whole file */
    const vt_family *family;
    vt_model *m;
    hf_extra *extra;
    vt_err *err;
    json_t *own_rope; /* the family's, for files without one; NULL: none */
} hf_reader;

vt_status hf_read_i32(hf_reader *c, const char *key, bool required, int32_t *out);
vt_status hf_read_f64(hf_reader *c, const char *key, bool required, double *out);
vt_status hf_read_bool(hf_reader *c, const char *key, bool *out);
/* The same as gguf_read_factor. */
vt_status hf_read_factor(hf_reader *c, const char *key, double *out);
/* The same as gguf_read_cap; null is 0. */
vt_status hf_read_cap(hf_reader *c, const char *key, float *out);
/* Returns the object of the rope that all layers have, under its new name or its old one; NULL:
 * there is none. */
const json_t *hf_rope_object(const hf_reader *c);
/* Refuses a key that is set and not zero: it stands for something that is not computed here. */
vt_status hf_refuse_f64(hf_reader *c, const char *key);
/* Refuses a flag that is true, likewise. */
vt_status hf_refuse_flag(hf_reader *c, const char *key);
/* Sets which layers attend and which have this mixer, which keeps a state and which the list
 * "layer_types" calls `name`; newer files may call it linear_attention. */
vt_status hf_read_mixers(hf_reader *c, const char *name, vt_block_kind mixer);
/* Sets which layers have a dense feed-forward in place of experts, by "decoder_sparse_step" and
 * "mlp_only_layers". */
vt_status hf_read_dense_layers(hf_reader *c);
/* Sets which layers have the window vt_arch.window, and its rope, by the list "layer_types". */
vt_status hf_read_layer_types(hf_reader *c, const json_t *types);

/* A weight whose need, names or shape are not those of the table of roles. NULL names and no
 * dimensions are the usual. */
typedef struct vt_family_role {
    vt_role role;
    vt_need need;
    const char *gguf, *hf;
    vt_dim dim[3];
} vt_family_role;

/* Weights that files hold as one matrix, the rows of one after those of the other. Files with each
 * of them apart are read as well. A name that also is the usual one of a part is told by its
 * rows. */
typedef struct vt_family_stack {
    const char *gguf, *hf; /* NULL: no such files have it */
    vt_role first;         /* and the n - 1 roles after it */
    int32_t n;
    bool by_key_head; /* rows of a delta rule, key head by key head (model/key_heads.h) */
} vt_family_stack;

/* The shape of a published model, for dummy:NAME. */
typedef struct vt_family_shape {
    const char *name; /* NULL ends a list */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, max_context;
    double rope_base, llama3_factor; /* 0: plain rope */
    float eps;
    bool tied;
    int32_t n_experts, n_experts_used, expert_ffn;
    int32_t conv_taps;
    int32_t attends_every; /* layers 3, 6 ... attend if it is 3; the rest have a delta rule, or
                              convolve if there is none; 0: all attend */
    const char *kinds;     /* in place of that rule, a letter for each layer: a attends; others are
                              the family's own */
    int32_t words;         /* of an EAGLE-3 head: tokens of its model; `vocab` are its own */
    int32_t shared_ffn, rope_dims; /* rope_dims 0: the whole head */
    int32_t first_dense;           /* the first layers have no experts */
    bool route_sigmoid;
    float route_scale;
    bool out_gate;
    int32_t window, window_period; /* all but every window_period-th layer have the window */
    float act_limit;               /* above 0: VT_ACT_CLAMPED */
    vt_delta delta;
    vt_mamba mamba; /* heads 0: none */
    /* Gemma 4: heads of layers without a window, and their KV heads if values are made of their
     * keys; the last layers that read others' keys and values; numbers of an embedding that each
     * layer has; whether layers that share have feed-forwards twice as wide */
    int32_t full_dim, full_kv_heads, kv_shared, per_layer;
    bool wide_shared;
    vt_mla mla; /* kv_rank 0: none */
} vt_family_shape;

/* Where folders have an MTP head (model/mtp.h): nowhere that is known; beside the model, under
 * "mtp."; as its next layer. In GGUF files it is the next layer. */
typedef enum vt_mtp_form { VT_MTP_NONE, VT_MTP_BESIDE, VT_MTP_NEXT_LAYER } vt_mtp_form;

/* The form in which folders hold the experts of a layer, if all gates and ups are one tensor and
 * all downs another. Shapes are those of one expert's. */
typedef enum vt_transposed {
    VT_TRANSPOSED_NOT,     /* [2 ffn, hidden], gate's rows before up's, and [hidden, ffn] */
    VT_TRANSPOSED_IN_TURN, /* [hidden, 2 ffn], a column of gate and one of up in turn, and [ffn,
                              hidden], with biases; or blocks and scales of MXFP4 */
    VT_TRANSPOSED_HALVES,  /* [hidden, 2 ffn], gate's columns before up's, and [ffn, hidden]; or as
                              they are if not transposed, which shapes tell */
} vt_transposed;

struct vt_family {
    const char *name;            /* vt_arch.family */
    const char *gguf;            /* general.architecture; NULL: no files have it for such models */
    const char *hf;              /* model_type; NULL: likewise */
    const char *hf_class;        /* its class under "architectures", where model_type is that of
                                    another family; NULL: none is */
    const char *hf_outer;        /* model_type of files that hold its config.json as "text_config",
                                    beside other parts; NULL: none do */
    const vt_family_role *roles; /* [n_roles] */
    int32_t n_roles;
    const vt_family_stack *stacks; /* [n_stacks] */
    int32_t n_stacks;
    const vt_family_shape *shapes; /* NULL: none */
    uint8_t norms;                 /* of every layer; 0: VT_NORM_BEFORE */
    bool experts;                  /* in every layer, unless it says otherwise */
    bool experts_by_file;          /* some models have experts, as their files say */
    vt_transposed experts_transposed;
    /* folders: what each expert's matrices are called, gate, up and down; NULL: as usual */
    const char *hf_experts, *hf_projection[3];
    const char *hf_fused[2];   /* likewise all experts' gate and up together, and their down */
    const char *hf_mlp;        /* folders: may stand in place of "mlp" in a dense layer's names */
    bool mlp;                  /* the feed-forward has no gate */
    bool layer_norm;           /* vt_arch.layer_norm */
    bool latent;               /* attention is to latents (model/latent.h) */
    bool no_rope;              /* q and k are not rotated */
    bool norm_rotated;         /* vt_heads.norm_rotated of every layer */
    bool encoder;              /* every token sees all of its sequence; there is no head */
    bool first_unnormed;       /* the first layer has no norm before its attention */
    const char *hf_eps;        /* config.json: of norms; NULL: layer_norm_eps or rms_norm_eps */
    const char *hf_ffn;        /* config.json: another name of intermediate_size, or NULL */
    const char *hf_layer_list; /* config.json: a list with an entry for each layer, which stands
                                  for num_hidden_layers where that is missing; or NULL */
    /* GGUF: lists of KV heads, and of sizes of feed-forwards, have a number for each layer, 0 where
     * it has none */
    bool gguf_zeros;
    const char *hf_layer;          /* in place of "model.layers." */
    const char *hf_prefix;         /* may stand in front of all names of a folder; NULL: nothing */
    const char *const *hf_ignored; /* parts of names that are not needed, to a NULL; NULL: none */
    /* GGUF: q and k are permuted, so that rope turns neighbouring pairs */
    bool rope_interleaved;
    bool hf_rope_interleaved; /* config.json: likewise */
    /* config.json: what holds where it does not say otherwise */
    bool tied, kv_heads_optional;
    const char *activation;                   /* hidden_act; NULL: silu */
    int32_t head_dim;                         /* 0: hidden / heads */
    int32_t n_heads, n_kv_heads, max_context; /* 0: it has to say them, KV heads unless
                                                 kv_heads_optional */
    double rope_base;                         /* 0: 10,000 */
    const char *hf_rope;                      /* the object of the rope; NULL: nothing is scaled */
    double rope_partial;   /* the part of a head that is rotated; 0: all of it, and no other part
                               can be asked for but in rope_parameters */
    bool rope_local;       /* layers with a window have a rope of their own */
    bool rope_alpha;       /* rope type dynamic: the base grows by "alpha", whatever the length */
    bool window_used;      /* use_sliding_window */
    bool window_all;       /* sliding_window holds for every layer */
    int32_t window;        /* sliding_window */
    int32_t window_period; /* for all but every so many-th, unless sliding_window_pattern gives
                               another number; 0: from max_window_layers on */
    /* Returns true if a tensor belongs to a part of the model that is not run here. NULL: to none.
     * `skipped` says which parts these are. */
    bool (*skips)(const vt_model *m, const char *tensor);
    const char *skipped;
    vt_mtp_form mtp; /* of the MTP heads that files may have */
    /* Read what no other family has, after everything else. NULL: nothing. */
    vt_status (*from_gguf)(gguf_reader *r);
    vt_status (*from_config)(hf_reader *c);
    /* The same of a dummy's shape. */
    vt_status (*from_shape)(vt_model *m, const vt_family_shape *s, vt_err *err);
};

/* Every family, NULL-terminated. */
extern const vt_family *const vt_families[];
/* Returns the family of this name (vt_arch.family); NULL if there is none. */
const vt_family *vt_family_find(const char *name);
/* Returns what the family says of a role; NULL: nothing. */
const vt_family_role *vt_family_role_of(const vt_family *f, vt_role role);
/* Returns what folders call the table of embeddings. */
const char *vt_family_embed(const vt_family *f);
/* Returns the name under which transformers' class saves a tensor of a dense layer: `name`, or
 * another one, which it writes to `out`. */
const char *vt_family_saved_name(const vt_family *f, const char *name, char *out, size_t size);
/* Returns what stands in front of a layer's number in the names of a Hugging Face folder. */
static inline const char *vt_family_layers(const vt_family *f)
{
    return f && f->hf_layer ? f->hf_layer : "model.layers.";
}
/* Writes "llama, qwen2 and so on": the families' names in GGUF files, or in config.json. */
void vt_family_names(bool gguf, char *out, size_t size);

#endif
