/* OLMo 2: no norms before blocks but after them, and norms of q and k over all heads together. */
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_Q}},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_KV}},
};

/* OLMo 3 has the same name in GGUF files, and windows in three layers of four; these rotate by the
 * same base and are not stretched. */
static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    if (a->window == 0)
        return VT_OK;
    a->n_ropes = 2;
    a->rope[1] = (vt_rope_params){.base = a->rope[0].base, .dims = a->rope[0].dims};
    TRY(gguf_read_f64(r, "rope.freq_base_swa", false, &a->rope[1].base));
    return gguf_read_windows(r, 4);
}

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    return VT_OK;
}

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "olmo-2-7b",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 32,
     .head_dim = 128,
     .ffn = 11008,
     .vocab = 100352,
     .max_context = 4096,
     .rope_base = 5e5,
     .eps = 1e-6f},
    {.name = NULL},
};

const vt_family vt_family_olmo2 = {.name = "olmo2",
                                   .gguf = "olmo2",
                                   .hf = "olmo2",
                                   .shapes = shapes,
                                   .roles = roles,
                                   .n_roles = sizeof roles / sizeof *roles,
                                   .norms = VT_NORM_AFTER,
                                   .kv_heads_optional = true,
                                   .from_gguf = from_gguf,
                                   .from_config = from_config};
