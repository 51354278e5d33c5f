/* EXAONE 4: norms after each block in place of before it, norms of the heads of q and k. Where
 * layers have windows, one of four has none, and does not rotate q and k. */
#include "model/family.h"

enum { PERIOD = 4 };

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "exaone-4.0-1.2b",
     .n_layers = 30,
     .hidden = 2048,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 64,
     .ffn = 4096,
     .vocab = 102400,
     .max_context = 65536,
     .rope_base = 1e6,
     .eps = 1e-5f,
     .tied = true},
    {.name = NULL},
};

/* Layers with the window use the file's rope, those without it one whose angles are 0: norms of
 * heads are computed where heads are rotated. */
static void still_where_no_window(vt_model *m)
{
    vt_arch *a = &m->arch;
    if (a->window == 0)
        return;
    a->n_ropes = 2;
    a->rope[1] = a->rope[0];
    a->rope[0].scaling = VT_ROPE_PLAIN;
    a->rope[0].still = a->rope[0].dims / 2;
    for (int32_t i = 0; i < a->n_layers; i++)
        m->layer[i].head.rope = m->layer[i].head.window > 0;
}

static vt_status from_gguf(gguf_reader *r)
{
    if (r->m->arch.window > 0)
        TRY(gguf_read_windows(r, PERIOD));
    still_where_no_window(r->m);
    return VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    still_where_no_window(c->m);
    return VT_OK;
}

const vt_family vt_family_exaone4 = {.name = "exaone4",
                                     .gguf = "exaone4",
                                     .hf = "exaone4",
                                     .roles = roles,
                                     .n_roles = sizeof roles / sizeof *roles,
                                     .shapes = shapes,
                                     .norms = VT_NORM_AFTER,
                                     .window_used = true,
                                     .window = 4096,
                                     .window_period = PERIOD,
                                     .from_gguf = from_gguf,
                                     .from_config = from_config};
