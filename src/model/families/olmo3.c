/* OLMo 3: OLMo 2 with windows in three layers of four, whose rope is not stretched. GGUF files call
 * it olmo2, where its windows are read. */
#include "files/json.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_Q}},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_KV}},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "olmo-3-7b",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 32,
     .head_dim = 128,
     .ffn = 11008,
     .vocab = 100278,
     .max_context = 65536,
     .rope_base = 5e5,
     .eps = 1e-6f},
    {.name = NULL},
};

/* Files from before rope_parameters give one base, for both ropes. */
static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    a->norm_eps = (float)eps;
    if (!vt_read_member(vt_read_member(c->root, "rope_parameters"), "sliding_attention"))
        a->rope[1].base = a->rope[0].base;
    return VT_OK;
}

const vt_family vt_family_olmo3 = {.name = "olmo3",
                                   .hf = "olmo3",
                                   .roles = roles,
                                   .n_roles = sizeof roles / sizeof *roles,
                                   .shapes = shapes,
                                   .norms = VT_NORM_AFTER,
                                   .kv_heads_optional = true,
                                   .rope_base = 5e5,
                                   .rope_local = true,
                                   .window_used = true,
                                   .window = 4096,
                                   .window_period = 4,
                                   .from_config = from_config};
