/* Gemma 3: norms before and after each block and of q and k, windows in five layers of six with a
 * rope of their own, GELU, a scaled embedding. GGUF files hold 1 + w in their norms. */
#include <math.h>

#include "model/assemble.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "pre_feedforward_layernorm.weight"},
};

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    double softcap = 0;
    a->activation = VT_ACT_GELU_TANH;
    a->embed_scale = sqrtf((float)a->hidden);
    /* The 27B model scales by the hidden size's share of a head; its file does not say so. */
    if (a->n_layers == 62)
        a->attn_scale = 1 / sqrtf((float)a->hidden / (float)a->n_heads);
    a->rope[1] = a->rope[0];
    a->rope[1].base = 10000;
    a->rope[1].scaling = VT_ROPE_PLAIN;
    a->n_ropes = 2;
    TRY(gguf_read_f64(r, "rope.freq_base_swa", false, &a->rope[1].base));
    TRY(gguf_read_f64(r, "final_logit_softcapping", false, &softcap));
    if (softcap != 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %g; soft-capped logits are not supported", r->m->path, r->key,
                       softcap);
    return gguf_read_windows(r, 6);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    double scalar = 256;
    bool bidirectional = false;
    a->norm_plus_one = true;
    a->embed_scale = sqrtf((float)a->hidden);
    TRY(hf_read_f64(c, "query_pre_attn_scalar", false, &scalar));
    TRY(model_check_factor(c->path, "\"query_pre_attn_scalar\"", scalar, c->err));
    a->attn_scale = (float)(1 / sqrt(scalar));
    TRY(hf_refuse_f64(c, "attn_logit_softcapping"));
    TRY(hf_refuse_f64(c, "final_logit_softcapping"));
    TRY(hf_read_bool(c, "use_bidirectional_attention", &bidirectional));
    if (bidirectional)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_bidirectional_attention\" is not supported for %s", c->path,
                       c->family->hf);
    return VT_OK;
}

const vt_family vt_family_gemma3 = {.name = "gemma3",
                                    .gguf = "gemma3",
                                    .hf = "gemma3_text",
                                    .roles = roles,
                                    .n_roles = sizeof roles / sizeof *roles,
                                    .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
                                    .tied = true,
                                    .activation = "gelu_pytorch_tanh",
                                    .head_dim = 256,
                                    .rope_base = 1e6,
                                    .rope_local = true,
                                    .window_used = true,
                                    .window_period = 6,
                                    .from_gguf = from_gguf,
                                    .from_config = from_config};
