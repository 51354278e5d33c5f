/* Granite 3 and 4, dense: Llama with four factors, of the embedding, of attention's scores, of what
 * a block adds to the residual stream, and of the logits. Its files divide by the last one. */
#include "model/families/granite.h"

/* The factors, as read; logits are divided by the last. */
typedef struct factors {
    double embed, residual, attention, logits;
} factors;

static void set_factors(vt_arch *a, const factors *f)
{
    a->embed_scale = (float)f->embed;
    a->residual_scale = (float)f->residual;
    a->attn_scale = (float)f->attention;
    a->logit_scale = (float)(1 / f->logits);
}

vt_status granite_from_gguf(gguf_reader *r)
{
    factors f = {1, 1, (double)r->m->arch.attn_scale, 1};
    TRY(gguf_read_factor(r, "embedding_scale", &f.embed));
    TRY(gguf_read_factor(r, "residual_scale", &f.residual));
    TRY(gguf_read_factor(r, "attention.scale", &f.attention));
    TRY(gguf_read_factor(r, "logit_scale", &f.logits));
    set_factors(&r->m->arch, &f);
    return VT_OK;
}

vt_status granite_from_config(hf_reader *c)
{
    factors f = {1, 1, 1, 1};
    TRY(hf_read_factor(c, "embedding_multiplier", &f.embed));
    TRY(hf_read_factor(c, "residual_multiplier", &f.residual));
    TRY(hf_read_factor(c, "attention_multiplier", &f.attention));
    TRY(hf_read_factor(c, "logits_scaling", &f.logits));
    set_factors(&c->m->arch, &f);
    return VT_OK;
}

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    bool small = s->hidden < 4096;
    factors f = {12, 0.22, small ? 0.015625 : 0.0078125, small ? 8 : 16};
    (void)err;
    set_factors(&m->arch, &f);
    return VT_OK;
}

/* From the models' published config.json. */
#define GRANITE3                                                                           \
    .n_layers = 40, .n_heads = 32, .n_kv_heads = 8, .vocab = 49159, .max_context = 131072, \
    .rope_base = 1e7, .eps = 1e-5f, .tied = true
static const vt_family_shape shapes[] = {
    {GRANITE3, .name = "granite-3.3-2b", .hidden = 2048, .head_dim = 64, .ffn = 8192},
    {GRANITE3, .name = "granite-3.3-8b", .hidden = 4096, .head_dim = 128, .ffn = 12800},
    {.name = NULL},
};

const vt_family vt_family_granite = {.name = "granite",
                                     .gguf = "granite",
                                     .hf = "granite",
                                     .shapes = shapes,
                                     .rope_interleaved = true,
                                     .kv_heads_optional = true,
                                     .from_gguf = granite_from_gguf,
                                     .from_config = granite_from_config,
                                     .from_shape = from_shape};
