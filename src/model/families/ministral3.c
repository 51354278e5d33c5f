/* Ministral 3: Llama whose queries grow with their position, so that attention stays sharp in long
 * contexts. GGUF files of Mistral Small 3.1 and later have its name too, and no such growth. */
#include <math.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/family.h"

/* From the model's published config.json, without what stretches its context. */
static const vt_family_shape shapes[] = {
    {.name = "ministral-3-8b",
     .n_layers = 34,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 131072,
     .max_context = 16384,
     .rope_base = 1e6,
     .eps = 1e-5f},
    {.name = NULL},
};

static vt_status from_gguf(gguf_reader *r)
{
    vt_rope_params *p = &r->m->arch.rope[0];
    double temper = 0, all = 0;
    TRY(gguf_read_f64(r, "rope.scaling.yarn_log_multiplier", false, &all));
    if (p->scaling == VT_ROPE_YARN && all != 0)
        p->attn_factor = (0.1 * log(p->factor) + 1) / (0.1 * all * log(p->factor) + 1);
    TRY(gguf_read_f64(r, "attention.temperature_scale", false, &temper));
    if (temper != 0)
        TRY(model_check_factor(r->m->path, r->key, temper, r->err));
    model_temper(r->m, temper);
    return VT_OK;
}

/* The rope of files that give none, as transformers has it. */
static const char own_rope[] =
    "{\"rope_type\": \"yarn\", \"rope_theta\": 1000000, \"factor\": 16, \"beta_fast\": 32, "
    "\"beta_slow\": 1, \"mscale\": 1, \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1, "
    "\"original_max_position_embeddings\": 16384}";

static vt_status from_config(hf_reader *c)
{
    static const char key[] = "llama_4_scaling_beta";
    const json_t *rope = hf_rope_object(c);
    double temper = 0, eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    if (rope && !vt_read_member(rope, "rope_theta") && !vt_read_member(c->root, "rope_theta"))
        c->m->arch.rope[0].base = 1e4; /* the family's own base is that of files without ropes */
    TRY(vt_read_f64(c->path, rope, key, false, &temper, c->err));
    if (temper != 0)
        TRY(model_check_factor(c->path, key, temper, c->err));
    model_temper(c->m, temper);
    return VT_OK;
}

const vt_family vt_family_ministral3 = {.name = "ministral3",
                                        .gguf = "mistral3",
                                        .hf = "ministral3",
                                        .shapes = shapes,
                                        .rope_interleaved = true,
                                        .rope_base = 1e6,
                                        .hf_rope = own_rope,
                                        .head_dim = 128,
                                        .window_used = true,
                                        .window_all = true,
                                        .from_gguf = from_gguf,
                                        .from_config = from_config};
