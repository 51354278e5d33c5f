/* Phi-3 and Phi-4: Llama with q, k and v in one matrix, gate and up in another, and longrope in the
 * models of long contexts. */
#include "model/family.h"

static const vt_family_stack stacks[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", VT_ROLE_Q, 3},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", VT_ROLE_GATE, 2},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "phi-4",
     .n_layers = 40,
     .hidden = 5120,
     .n_heads = 40,
     .n_kv_heads = 10,
     .head_dim = 128,
     .ffn = 17920,
     .vocab = 100352,
     .max_context = 16384,
     .rope_base = 250000,
     .eps = 1e-5f},
    {.name = NULL},
};

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    return VT_OK;
}

const vt_family vt_family_phi3 = {.name = "phi3",
                                  .gguf = "phi3",
                                  .hf = "phi3",
                                  .stacks = stacks,
                                  .n_stacks = sizeof stacks / sizeof *stacks,
                                  .shapes = shapes,
                                  .kv_heads_optional = true,
                                  .rope_partial = 1,
                                  .window_used = true,
                                  .window_all = true,
                                  .from_config = from_config};
