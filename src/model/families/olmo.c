/* OLMo 2: no norms before blocks but after them, and norms of q and k over all heads together.
 *
 * OLMo 3: the same with windows in three layers of four, whose rope is not stretched. GGUF files
 * have one name for both. */
#include "files/json.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_Q}},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_KV}},
};

/* The windows are OLMo 3's; layers with one rotate by the same base and are not stretched. */
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

/* From the models' published config.json. */
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

static const vt_family_shape shapes3[] = {
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
static vt_status from_config3(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    TRY(from_config(c));
    if (!vt_read_member(vt_read_member(c->root, "rope_parameters"), "sliding_attention"))
        a->rope[1].base = a->rope[0].base;
    return VT_OK;
}

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

const vt_family vt_family_olmo3 = {.name = "olmo3",
                                   .hf = "olmo3",
                                   .roles = roles,
                                   .n_roles = sizeof roles / sizeof *roles,
                                   .shapes = shapes3,
                                   .norms = VT_NORM_AFTER,
                                   .kv_heads_optional = true,
                                   .rope_base = 5e5,
                                   .rope_local = true,
                                   .window_used = true,
                                   .window = 4096,
                                   .window_period = 4,
                                   .from_config = from_config3};
