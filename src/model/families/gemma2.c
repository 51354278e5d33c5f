/* Gemma 2: norms before and after each block, a window in every second layer, GELU, a scaled
 * embedding, and caps: of the scores of attention and of the logits. GGUF files hold 1 + w in their
 * norms. */
#include <math.h>

#include "model/assemble.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "pre_feedforward_layernorm.weight"},
};

/* The caps that files leave out are those of every published model. */
static void set_up(vt_arch *a)
{
    a->activation = VT_ACT_GELU_TANH;
    a->embed_scale = sqrtf((float)a->hidden);
    a->scores_within = 50;
    a->logits_within = 30;
}

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    set_up(a);
    /* The 27B model scales by the hidden size's share of a head; its file does not say so. */
    if (a->n_layers == 46)
        a->attn_scale = 1 / sqrtf((float)a->hidden / (float)a->n_heads);
    TRY(gguf_read_cap(r, "attn_logit_softcapping", &a->scores_within));
    TRY(gguf_read_cap(r, "final_logit_softcapping", &a->logits_within));
    return gguf_read_windows(r, 2);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    double scalar = 256;
    set_up(a);
    a->norm_plus_one = true;
    TRY(hf_read_f64(c, "query_pre_attn_scalar", false, &scalar));
    TRY(model_check_factor(c->path, "\"query_pre_attn_scalar\"", scalar, c->err));
    a->attn_scale = (float)(1 / sqrt(scalar));
    TRY(hf_read_cap(c, "attn_logit_softcapping", &a->scores_within));
    return hf_read_cap(c, "final_logit_softcapping", &a->logits_within);
}

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    (void)s, (void)err;
    set_up(&m->arch);
    return VT_OK;
}

/* From the models' published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "gemma-2-2b",
     .n_layers = 26,
     .hidden = 2304,
     .n_heads = 8,
     .n_kv_heads = 4,
     .head_dim = 256,
     .ffn = 9216,
     .vocab = 256000,
     .max_context = 8192,
     .rope_base = 1e4,
     .eps = 1e-6f,
     .tied = true,
     .window = 4096,
     .window_period = 2},
    {.name = "gemma-2-9b",
     .n_layers = 42,
     .hidden = 3584,
     .n_heads = 16,
     .n_kv_heads = 8,
     .head_dim = 256,
     .ffn = 14336,
     .vocab = 256000,
     .max_context = 8192,
     .rope_base = 1e4,
     .eps = 1e-6f,
     .tied = true,
     .window = 4096,
     .window_period = 2},
    {.name = NULL},
};

const vt_family vt_family_gemma2 = {.name = "gemma2",
                                    .gguf = "gemma2",
                                    .hf = "gemma2",
                                    .roles = roles,
                                    .n_roles = sizeof roles / sizeof *roles,
                                    .shapes = shapes,
                                    .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
                                    .tied = true,
                                    .activation = "gelu_pytorch_tanh",
                                    .head_dim = 256,
                                    .window_used = true,
                                    .window = 4096,
                                    .window_period = 2,
                                    .from_gguf = from_gguf,
                                    .from_config = from_config,
                                    .from_shape = from_shape};
