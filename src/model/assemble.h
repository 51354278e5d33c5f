/* The common end of loading: an architecture and a bag of named tensors become a vt_model's
 * layers. */
#ifndef VT_MODEL_ASSEMBLE_H
#define VT_MODEL_ASSEMBLE_H

#include "base/err.h"
#include "model/model.h"

/* Where tensors come from. Names are GGUF's ("blk.0.attn_q.weight") or Hugging Face's
 * ("model.layers.0.self_attn.q_proj.weight"). */
typedef struct weight_source {
    bool hf_names;
    bool headless; /* a head that is not tied may be missing: the model embeds only */
    const void *file;
    int64_t n_tensors;
    int64_t (*find)(const void *file, const char *name); /* index or -1 */
    const vt_tensor *(*at)(const void *file, int64_t i);
    bool (*skip)(const void *file, int64_t i); /* known to be used otherwise; NULL: none are */
    /* makes its data where a device would unpack them later (4-bit codes); NULL: all is there */
    vt_status (*make)(const void *file, int64_t i, vt_err *err);
    /* of a part beside the text model (a vision encoder), which is not run; NULL: none are */
    bool (*beside)(const void *file, int64_t i);
} weight_source;

/* Returns how many channels q, k and v of a delta rule have together. */
static inline int64_t delta_channels(const vt_delta *d)
{
    return 2 * (int64_t)d->k_heads * d->k_dim + (int64_t)d->v_heads * d->v_dim;
}

/* The same of a state space: all that its heads have; what is convolved, x, B and C; what its
 * projection makes. */
static inline int64_t mamba_inner(const vt_mamba *s) { return (int64_t)s->heads * s->head_dim; }

static inline int64_t mamba_channels(const vt_mamba *s)
{
    return mamba_inner(s) + 2 * (int64_t)s->groups * s->state_dim;
}

static inline int64_t mamba_rows(const vt_mamba *s)
{
    return mamba_inner(s) + mamba_channels(s) + s->heads;
}

/* An empty model with its arena, path and name (the path's last part without .gguf) set, knobs at
 * their neutral values. */
vt_status model_new(const char *path, vt_model **out, vt_err *err);

/* Factors that models give in their files lie between these, by magnitude: published ones are
 * between 0.01 and 1000. What is far beyond makes every logit infinite or zero, and is refused at
 * load, where its key is known. */
#define MODEL_SCALE_MIN 1e-6
#define MODEL_SCALE_MAX 1e6
vt_status model_check_factor(const char *path, const char *key, double value, vt_err *err);

/* Makes m->layer from m->arch and m->family: all layers alike, without weights. Families then
 * change what differs. */
vt_status model_make_layers(vt_model *m, vt_err *err);
/* Makes every layer's window one of both sides: a token sees half of it before itself and half
 * behind; where there is no window, all of its sequence. */
void model_see_both_ways(vt_model *m);
/* Gives q of every layer a rope of its own, which is k's with a temper (vt_rope_params); 0: not. */
void model_temper(vt_model *m, double temper);

/* Returns the bytes of state that a sequence has in a layer with this mixer. */
int64_t model_state_bytes(const vt_arch *a, vt_block_kind mixer);
/* Gives the layer a mixer that keeps a state, whose sizes are in m->arch. */
void model_keep_state(vt_model *m, int32_t layer, vt_block_kind mixer);

/* Ranges and divisibility of every number in m->arch and, once they are made, of the layers. */
vt_status arch_check(const vt_model *m, vt_err *err);

/* Checks that t can be the scale of the FP8 matrix w, or of a stack of them (rank 3): one float a
 * matrix, or one for each block of 128 x 128, all of them finite. `name` is the scale's. */
vt_status model_check_scale(const vt_model *m, const vt_tensor *w, const char *name,
                            const vt_tensor *t, vt_err *err);

/* The tensors a model of m->arch needs, by Hugging Face's names, all of one type, without data;
 * from m->arena. */
vt_status model_declare(vt_model *m, vt_dtype dtype, vt_tensor **out, int64_t *n, vt_err *err);

/* Finds and checks every tensor that m->arch asks for: fills embed, final_norm, head, layer,
 * weight_bytes, quant and arch.vocab. A missing or misshapen tensor is an error, and so is one
 * that has no place in the model: it would mean a part of the model that is not computed here. */
vt_status model_assemble(vt_model *m, const weight_source *src, vt_err *err);

/* Sets m->eos to the distinct ids of the tokenizer's list and ids[0..n); m->bos and m->add_bos
 * from the tokenizer. Ids outside the vocabulary are an error. */
vt_status model_set_special(vt_model *m, const int32_t *ids, int32_t n, vt_err *err);

/* Releases what every loader shares: tokenizer, template, arena, the struct itself. */
void model_release(vt_model *m);

#endif
