/* Hunyuan, dense: Llama with norms of the heads of q and k behind their rotation, and a rope whose
 * base a factor stretches for long contexts. Its GGUF files have that factor in the base. */
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, "self_attn.query_layernorm.weight"},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, "self_attn.key_layernorm.weight"},
};

/* From the model's published config.json; the base is 10,000 times 1000^(128 / 126). */
static const vt_family_shape shapes[] = {
    {.name = "hunyuan-7b",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 128167,
     .max_context = 262144,
     .rope_base = 11158840,
     .eps = 1e-5f,
     .tied = true},
    {.name = NULL},
};

/* Refuses what the models' own code can leave out, or have besides. */
static vt_status from_config(hf_reader *c)
{
    bool norms = true;
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    TRY(hf_read_bool(c, "use_qk_norm", &norms));
    if (!norms)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_qk_norm\" is false; true is supported for %s", c->path,
                       c->family->hf);
    return hf_refuse_flag(c, "use_cla");
}

const vt_family vt_family_hunyuan = {.name = "hunyuan",
                                     .gguf = "hunyuan-dense",
                                     .hf = "hunyuan_v1_dense",
                                     .roles = roles,
                                     .n_roles = sizeof roles / sizeof *roles,
                                     .shapes = shapes,
                                     .norm_rotated = true,
                                     .rope_alpha = true,
                                     .from_config = from_config};
