/* Gemma 4: Gemma 3's norms and windows with plain weights; heads of another size in layers without
 * a window, whose rope turns the first pairs alone; values that are normalised, and made of keys in
 * the larger models; a factor of each layer; capped logits. The small ones have an embedding for
 * each layer, and last layers that read the keys and values of the layer before of their kind. One
 * has experts beside its feed-forward. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_PER_LAYER, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_PER_LAYER_IN, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_PER_LAYER_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "pre_feedforward_layernorm.weight"},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "router.proj.weight"},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, "ffn_up.weight", "mlp.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, "ffn_down.weight", "mlp.down_proj.weight"},
    {VT_ROLE_SHARED_POST_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_EXPERT_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_EXPERT_POST_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_ROUTER_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_ROUTER_OWN, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_PER_LAYER_GATE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_PER_LAYER_OUT, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_PER_LAYER_POST_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_LAYER_SCALE, VT_NEED_ALWAYS, NULL, NULL},
};

static const vt_family_stack stacks[] = {{"ffn_gate_up_exps.weight", NULL, VT_ROLE_EXPERT_GATE, 2}};

/* ---- what follows from the numbers ---- */

static void set_up(vt_model *m)
{
    vt_arch *a = &m->arch;
    a->activation = VT_ACT_GELU_TANH;
    a->embed_scale = sqrtf((float)a->hidden);
    a->attn_scale = 1;
    a->v_norm = true;
    a->n_ropes = 2;
    if (a->n_experts == 0)
        return;
    a->norm_topk = true;
    a->shared_ffn = a->ffn;
    for (int32_t i = 0; i < a->n_layers; i++)
        m->layer[i].ffn = VT_BLOCK_EXPERTS;
}

/* Makes the last n layers read the keys and values of the last layer before them of their kind. */
static vt_status share(vt_model *m, const char *key, int32_t n, vt_err *err)
{
    int32_t first = m->arch.n_layers - n;
    for (int32_t i = first < 0 ? 0 : first; i < m->arch.n_layers; i++) {
        int32_t of = first - 1;
        while (of >= 0 && (m->layer[of].head.window > 0) != (m->layer[i].head.window > 0))
            of--;
        if (of < 0)
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: %s is %d, and no layer before those has keys and values that layer "
                           "%d could read",
                           m->path, key, n, i);
        m->layer[i].kv_of = (int16_t)of;
    }
    return VT_OK;
}

/* The rope of layers without a window has the size of their heads, of which it turns a part. */
static void set_rope(vt_model *m, int32_t dims, double part)
{
    vt_rope_params *r = &m->arch.rope[0];
    r->dims = dims;
    r->still = dims / 2 - (int32_t)(part * dims / 2);
}

/* ---- GGUF ---- */

static vt_status read_layer(gguf_reader *r, int32_t i, int32_t windowed_dim)
{
    char name[64];
    vt_layer *l = &r->m->layer[i];
    TRY(gguf_read_of_layer(r, "attention.head_count_kv", i, &l->head.kv_heads));
    TRY(gguf_read_of_layer(r, "feed_forward_length", i, &l->ffn_size));
    if (l->head.window > 0) {
        l->head.dim = windowed_dim;
        return VT_OK;
    }
    snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
    l->head.v_of_k = !gguf_tensor(r->file, name); /* files do not say it otherwise */
    return VT_OK;
}

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t shared = 0, dim = a->head_dim;
    if (a->rope[0].still == 0)
        return vt_fail(r->err, VT_ERR_MODEL,
                       "%s: tensor rope_freqs.weight, which says what part of a head is rotated, "
                       "is missing",
                       r->m->path);
    TRY(gguf_read_i32(r, "expert_count", false, &a->n_experts));
    if (a->n_experts > 0) {
        TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
        TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    }
    set_up(r->m);
    TRY(gguf_read_i32(r, "embedding_length_per_layer_input", false, &a->per_layer));
    TRY(gguf_read_i32(r, "attention.key_length_swa", false, &dim));
    a->rope[1] = (vt_rope_params){.base = 10000, .dims = dim};
    TRY(gguf_read_f64(r, "rope.freq_base_swa", false, &a->rope[1].base));
    TRY(gguf_read_cap(r, "final_logit_softcapping", &a->logits_within));
    TRY(gguf_read_windows(r, 6));
    for (int32_t i = 0; i < a->n_layers; i++)
        TRY(read_layer(r, i, dim));
    TRY(gguf_read_i32(r, "attention.shared_kv_layers", false, &shared));
    return share(r->m, gguf_reader_key(r, "attention.shared_kv_layers"), shared, r->err);
}

/* ---- config.json ---- */

/* Reads what newer files say of single layers: {"5": {"head_dim": 512}}. */
static vt_status read_layer_config(hf_reader *c, int32_t layer, const json_t *all)
{
    char key[16];
    const char *name;
    json_t *value;
    snprintf(key, sizeof key, "%d", layer);
    json_t *own = (json_t *)vt_read_member(all, key);
    if (all)
        TRY(vt_check_object(c->path, "per_layer_config", all, c->err));
    if (own)
        TRY(vt_check_object(c->path, key, own, c->err));
    json_object_foreach(own, name, value) if (
        strcmp(name, "head_dim") != 0 &&
        strcmp(name, "num_key_value_heads") !=
            0) return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                              "%s: \"per_layer_config\" has \"%.40s\" for layer %d (head_dim and "
                              "num_key_value_heads are supported)",
                              c->path, name, layer);
    vt_heads *h = &c->m->layer[layer].head;
    TRY(vt_read_i32(c->path, own, "head_dim", false, &h->dim, c->err));
    return vt_read_i32(c->path, own, "num_key_value_heads", false, &h->kv_heads, c->err);
}

static vt_status read_layers(hf_reader *c, bool v_of_k)
{
    vt_arch *a = &c->m->arch;
    const json_t *all = vt_read_member(c->root, "per_layer_config");
    int32_t full_dim = all ? a->head_dim : 512, full_kv = a->n_kv_heads, last = 0;
    TRY(hf_read_i32(c, "global_head_dim", false, &full_dim));
    if (v_of_k)
        TRY(hf_read_i32(c, "num_global_key_value_heads", false, &full_kv));
    for (int32_t i = 0; i < a->n_layers; i++) {
        vt_heads *h = &c->m->layer[i].head;
        if (h->window == 0) {
            h->dim = full_dim;
            h->kv_heads = full_kv;
            h->v_of_k = v_of_k;
        }
        TRY(read_layer_config(c, i, all));
        int32_t want = h->window > 0 ? a->head_dim : last > 0 ? last : h->dim;
        if (h->dim != want)
            return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                           "%s: layer %d has a \"head_dim\" of %d and others of its kind have %d; "
                           "they must be equal",
                           c->path, i, h->dim, want);
        last = h->window > 0 ? last : h->dim;
    }
    a->head_dim = last > 0 ? last : a->head_dim;
    return VT_OK;
}

/* The rope of layers without a window. */
static vt_status read_rope(hf_reader *c)
{
    const json_t *all = vt_read_member(c->root, "rope_parameters"),
                 *full = vt_read_member(all, "full_attention");
    const char *type = "proportional";
    double part = all ? 1 : 0.25, factor = 1;
    TRY(vt_read_str(c->path, full, "rope_type", full != NULL, &type, c->err));
    TRY(vt_read_f64(c->path, full, "partial_rotary_factor", false, &part, c->err));
    TRY(vt_read_f64(c->path, full, "factor", false, &factor, c->err));
    if (strcmp(type, "proportional") != 0 || factor != 1 || (all && !full))
        return vt_fail(
            c->err, VT_ERR_UNSUPPORTED,
            "%s: \"rope_parameters\" of full_attention: type %.40s with factor %g is not "
            "supported for %s (proportional with 1 is)",
            c->path, full ? type : "null", factor, c->family->hf);
    set_rope(c->m, c->m->arch.head_dim, part);
    return VT_OK;
}

static vt_status read_experts(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    bool experts = false;
    TRY(hf_read_bool(c, "enable_moe_block", &experts));
    if (!experts)
        return VT_OK;
    TRY(hf_read_i32(c, "num_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "top_k_experts", true, &a->n_experts_used));
    return hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn);
}

/* Numbers of an embedding for each layer. */
static vt_status read_per_layer(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t rows = 262144, vocab = 262144;
    a->per_layer = 256;
    TRY(hf_read_i32(c, "hidden_size_per_layer_input", false, &a->per_layer));
    TRY(hf_read_i32(c, "vocab_size_per_layer_input", false, &rows));
    TRY(hf_read_i32(c, "vocab_size", false, &vocab));
    if (a->per_layer != 0 && rows != vocab)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"vocab_size_per_layer_input\" is %d and \"vocab_size\" %d; they must "
                       "be equal",
                       c->path, rows, vocab);
    return VT_OK;
}

static vt_status refuse(hf_reader *c)
{
    const char *way = "vision"; /* concerns images alone */
    TRY(vt_read_str(c->path, c->root, "use_bidirectional_attention", false, &way, c->err));
    if (strcmp(way, "vision") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_bidirectional_attention\" %.40s is not supported for %s", c->path,
                       way, c->family->hf);
    if (!vt_read_member(c->root, "layer_types") || c->m->arch.window == 0)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"layer_types\" and \"sliding_window\" are needed for %s", c->path,
                       c->family->hf);
    return VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t shared = 0;
    bool v_of_k = false, wide = false;
    TRY(refuse(c));
    TRY(read_experts(c));
    set_up(c->m);
    TRY(read_per_layer(c));
    TRY(hf_read_cap(c, "final_logit_softcapping", &a->logits_within));
    TRY(hf_read_bool(c, "attention_k_eq_v", &v_of_k));
    TRY(hf_read_bool(c, "use_double_wide_mlp", &wide));
    TRY(read_layers(c, v_of_k));
    TRY(read_rope(c));
    TRY(hf_read_i32(c, "num_kv_shared_layers", false, &shared));
    TRY(share(c->m, "\"num_kv_shared_layers\"", shared, c->err));
    if (wide && shared > 0 && a->n_experts > 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_double_wide_mlp\" is true beside \"enable_moe_block\"; that is "
                       "not supported for %s",
                       c->path, c->family->hf);
    for (int32_t i = 0; i < a->n_layers; i++)
        if (wide && c->m->layer[i].kv_of != i && a->ffn < INT32_MAX / 2)
            c->m->layer[i].ffn_size = 2 * a->ffn;
    return VT_OK;
}

/* ---- dummies ---- */

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    vt_arch *a = &m->arch;
    set_up(m);
    a->per_layer = s->per_layer;
    a->logits_within = 30;
    a->rope[1] = (vt_rope_params){.base = 10000, .dims = s->head_dim};
    for (int32_t i = 0; i < a->n_layers; i++) {
        vt_heads *h = &m->layer[i].head;
        h->rope = h->window > 0;
        if (h->window > 0)
            continue;
        h->dim = s->full_dim;
        h->v_of_k = s->full_kv_heads > 0;
        h->kv_heads = h->v_of_k ? s->full_kv_heads : h->kv_heads;
    }
    a->head_dim = s->full_dim;
    set_rope(m, s->full_dim, 0.25);
    TRY(share(m, "the number of layers that share", s->kv_shared, err));
    for (int32_t i = 0; i < a->n_layers; i++)
        if (s->wide_shared && m->layer[i].kv_of != i)
            m->layer[i].ffn_size = 2 * a->ffn;
    return VT_OK;
}

#define GEMMA4                                                                                  \
    .head_dim = 256, .full_dim = 512, .vocab = 262144, .max_context = 131072, .rope_base = 1e6, \
    .eps = 1e-6f, .tied = true

/* Numbers of layers, heads and sizes as published; feed-forwards of E4B are not certain. */
static const vt_family_shape shapes[] = {
    {GEMMA4, .name = "gemma4-e2b", .n_layers = 35, .hidden = 1536, .n_heads = 8, .n_kv_heads = 1,
     .ffn = 6144, .window = 512, .window_period = 5, .per_layer = 256, .kv_shared = 20,
     .wide_shared = true},
    {GEMMA4, .name = "gemma4-26b-a4b", .n_layers = 30, .hidden = 2816, .n_heads = 16,
     .n_kv_heads = 8, .full_kv_heads = 2, .ffn = 2112, .window = 1024, .window_period = 6,
     .n_experts = 128, .n_experts_used = 8, .expert_ffn = 704},
    {GEMMA4, .name = "gemma4-31b", .n_layers = 60, .hidden = 5376, .n_heads = 32, .n_kv_heads = 16,
     .full_kv_heads = 4, .ffn = 21504, .window = 1024, .window_period = 6},
    /* made up, for tests */
    {.name = "gemma4-tiny",
     .n_layers = 6,
     .hidden = 64,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 16,
     .full_dim = 32,
     .ffn = 96,
     .vocab = 512,
     .max_context = 2048,
     .rope_base = 1e6,
     .eps = 1e-6f,
     .tied = true,
     .window = 24,
     .window_period = 2,
     .per_layer = 16,
     .kv_shared = 2,
     .wide_shared = true},
    {.name = NULL},
};

/* ---- the family ---- */

/* Files hold projections of keys and values of layers that do not use them. */
static bool skips(const vt_model *m, const char *tensor)
{
    static const char *const part[] = {"self_attn.k_", "self_attn.v_", "attn_k", "attn_v"};
    const char *at = strstr(tensor, "layers.");
    at = at ? at + 7 : strncmp(tensor, "blk.", 4) == 0 ? tensor + 4 : NULL;
    if (!at)
        return false;
    char *end;
    long layer = strtol(at, &end, 10);
    if (*end != '.' || layer < 0 || layer >= m->arch.n_layers || m->layer[layer].kv_of == layer)
        return false;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (strncmp(end + 1, part[i], strlen(part[i])) == 0)
            return true;
    return false;
}

const vt_family vt_family_gemma4 = {
    .name = "gemma4",
    .gguf = "gemma4",
    .hf = "gemma4_text",
    .hf_outer = "gemma4",
    .roles = roles,
    .n_roles = sizeof roles / sizeof *roles,
    .stacks = stacks,
    .n_stacks = sizeof stacks / sizeof *stacks,
    .shapes = shapes,
    .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
    .experts_by_file = true,
    .hf_experts = "experts",
    .hf_projection = {"gate_proj", "up_proj", "down_proj"},
    .tied = true,
    .activation = "gelu_pytorch_tanh",
    .head_dim = 256,
    .rope_base = 1e6,
    .rope_local = true,
    .window_used = true,
    .window = 512,
    .window_period = 6,
    .skips = skips,
    .skipped = "keys and values of layers that read those of another",
    .from_gguf = from_gguf,
    .from_config = from_config,
    .from_shape = from_shape};
