/* ModernBERT: an encoder with rope, norms before its blocks and a gated feed-forward, without
 * biases. Every third layer sees all of its text; the others see half a window to each side and
 * have a rope of their own. The first layer's attention reads the embedding, which is normalised
 * already, without a norm of its own.
 *
 * GELU is the form with erf, as transformers computes it, in GGUF files too: llama.cpp takes the
 * form with tanh there. */
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_EMBED, VT_NEED_ALWAYS, NULL, "embeddings.tok_embeddings.weight", {0}},
    {VT_ROLE_EMBED_NORM, VT_NEED_ALWAYS, NULL, "embeddings.norm.weight", {0}},
    {VT_ROLE_FINAL_NORM, VT_NEED_ALWAYS, NULL, "final_norm.weight", {0}},
    {VT_ROLE_HEAD, VT_NEED_BY_FAMILY, NULL, NULL, {0}},
    {VT_ROLE_ATTN_NORM, VT_NEED_ALWAYS, NULL, "attn_norm.weight", {0}},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "mlp_norm.weight", {0}},
    {VT_ROLE_O, VT_NEED_ALWAYS, NULL, "attn.Wo.weight", {0}},
    {VT_ROLE_DOWN, VT_NEED_ALWAYS, NULL, "mlp.Wo.weight", {0}},
};

static const vt_family_stack stacks[] = {
    {"attn_qkv.weight", "attn.Wqkv.weight", VT_ROLE_Q, 3},
    {"ffn_up.weight", "mlp.Wi.weight", VT_ROLE_GATE, 2},
};

/* Tensors of the head that masked words are guessed with. */
static const char *const ignored[] = {"head.dense.", "head.norm.", "decoder.", NULL};

enum { PERIOD = 3, WINDOW = 128 };

/* Gives all layers but every period-th the window, beginning with a layer without it. */
static void set_windows(vt_model *m, int32_t period)
{
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        vt_heads *h = &m->layer[i].head;
        h->window = i % period != 0 ? m->arch.window : 0;
        h->rope = h->window > 0;
    }
}

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    gguf_str act = {"gelu", 4};
    int32_t period = PERIOD;
    a->activation = VT_ACT_GELU_ERF;
    a->rope[1] = a->rope[0];
    a->rope[1].base = 10000;
    a->n_ropes = 2;
    TRY(gguf_read_f64(r, "rope.freq_base_swa", false, &a->rope[1].base));
    TRY(gguf_get_str(r->file, gguf_reader_key(r, "hidden_activation"), false, &act, r->err));
    if (act.len != 4 || memcmp(act.data, "gelu", 4) != 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %.*s; gelu is supported", r->m->path,
                       r->key, act.len > 40 ? 40 : (int)act.len, act.data);
    TRY(gguf_read_i32(r, "attention.sliding_window_pattern", false, &period));
    if (period < 1)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %d (1 or more expected)", r->m->path,
                       r->key, period);
    r->m->pooled.how = VT_POOLING_MEAN;
    set_windows(r->m, period);
    model_see_both_ways(r->m);
    return VT_OK;
}

static vt_status refuse_what_is_not_computed(hf_reader *c)
{
    static const char kind[] = "ForSequenceClassification";
    static const char *const biases[] = {"attention_bias", "mlp_bias", "norm_bias"};
    const char *name = json_string_value(
        json_array_get(vt_read_member(c->root, "architectures"), 0));
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        TRY(hf_refuse_flag(c, biases[i]));
    if (name && strstr(name, kind))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"architectures\" is %.60s; a classifier is not supported for %s",
                       c->path, name, c->family->hf);
    return VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t period = PERIOD;
    const json_t *types = vt_read_member(c->root, "layer_types");
    TRY(refuse_what_is_not_computed(c));
    if (!vt_read_member(c->root, "rope_parameters")) { /* older files */
        TRY(hf_read_f64(c, "global_rope_theta", false, &a->rope[0].base));
        TRY(hf_read_f64(c, "local_rope_theta", false, &a->rope[1].base));
    }
    a->window = WINDOW;
    TRY(hf_read_i32(c, "local_attention", false, &a->window));
    TRY(hf_read_i32(c, "global_attn_every_n_layers", false, &period));
    if (a->window < 1 || period < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"local_attention\" is %d and \"global_attn_every_n_layers\" %d (1 or "
                       "more expected)",
                       c->path, a->window, period);
    if (types)
        TRY(hf_read_layer_types(c, types));
    else
        set_windows(c->m, period);
    model_see_both_ways(c->m);
    c->m->pooled.how = VT_POOLING_MEAN;
    return VT_OK;
}

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    (void)s, (void)err;
    m->arch.activation = VT_ACT_GELU_ERF;
    m->arch.n_positions = m->arch.n_types = 0;
    m->arch.rope[1] = m->arch.rope[0];
    m->arch.rope[1].base = 10000;
    m->arch.n_ropes = 2;
    set_windows(m, PERIOD);
    model_see_both_ways(m);
    return VT_OK;
}

/* From the models' published config.json. */
#define MODERN                                                                              \
    .vocab = 50368, .max_context = 8192, .eps = 1e-5f, .rope_base = 160000, .head_dim = 64, \
    .window = WINDOW
static const vt_family_shape shapes[] = {
    {MODERN, .name = "modernbert-base", .n_layers = 22, .hidden = 768, .n_heads = 12,
     .n_kv_heads = 12, .ffn = 1152},
    {MODERN, .name = "modernbert-large", .n_layers = 28, .hidden = 1024, .n_heads = 16,
     .n_kv_heads = 16, .ffn = 2624},
    {.name = NULL},
};

const vt_family vt_family_modernbert = {.name = "modernbert",
                                        .gguf = "modern-bert",
                                        .hf = "modernbert",
                                        .roles = roles,
                                        .n_roles = sizeof roles / sizeof *roles,
                                        .stacks = stacks,
                                        .n_stacks = sizeof stacks / sizeof *stacks,
                                        .shapes = shapes,
                                        .layer_norm = true,
                                        .encoder = true,
                                        .first_unnormed = true,
                                        .hf_eps = "norm_eps",
                                        .hf_layer = "layers.",
                                        .hf_prefix = "model.",
                                        .hf_ignored = ignored,
                                        .kv_heads_optional = true,
                                        .activation = "gelu",
                                        .rope_base = 160000,
                                        .rope_local = true,
                                        .from_gguf = from_gguf,
                                        .from_config = from_config,
                                        .from_shape = from_shape};
