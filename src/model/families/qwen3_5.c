/* Qwen3.5, and 3.6 to 3.8 under the same name: linear attention by the gated delta rule in three
 * layers of four, attention with a gate of its output in the fourth, rope on a quarter of a head.
 *
 * GGUF files hold 1 + w in their norms but for the delta rule's, the decay in place of its
 * logarithm, and value heads in an order in which head j has key head j mod k_heads. Their last
 * layers may predict further tokens; those are not run, and neither is the vision encoder of
 * Hugging Face's folders. */
#include "model/families/qwen3_5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"

/* ---- which layers ---- */

static void set_layer(vt_model *m, int32_t layer, bool attends)
{
    if (!attends)
        model_keep_state(m, layer, VT_BLOCK_DELTA);
}

static vt_status set_interval(vt_model *m, const char *key, int32_t interval, vt_err *err)
{
    if (interval < 1)
        return vt_fail(err, VT_ERR_MODEL, "%s: %s is %d (1 or more expected)", m->path, key,
                       interval);
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        set_layer(m, i, (i + 1) % interval == 0);
    return VT_OK;
}

/* ---- GGUF ---- */

static vt_status read_layers(gguf_reader *r)
{
    int32_t interval = 4, n = r->m->arch.n_layers;
    const gguf_value *v = gguf_find(r->file, gguf_reader_key(r, "attention.recurrent_layers"));
    if (!v) {
        TRY(gguf_read_i32(r, "full_attention_interval", false, &interval));
        return set_interval(r->m, r->key, interval, r->err);
    }
    if (!v->is_array || v->type != GGUF_BOOL || v->n < (uint64_t)n)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is not an array of %d bools", r->m->path,
                       r->key, n);
    for (int32_t i = 0; i < n; i++)
        set_layer(r->m, i, v->bytes[i] == 0);
    return VT_OK;
}

/* The last layers of a file may predict further tokens. */
static vt_status drop_predictors(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t n = 0;
    TRY(gguf_read_i32(r, "nextn_predict_layers", false, &n));
    if (n >= a->n_layers)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %d, and the file has %d layers", r->m->path,
                       r->key, n, a->n_layers);
    a->n_layers -= n;
    return VT_OK;
}

vt_status qwen3_5_from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    vt_delta *d = &a->delta;
    int32_t inner = 0;
    a->out_gate = true;
    d->tiled = true;
    TRY(drop_predictors(r));
    TRY(gguf_read_i32(r, "ssm.conv_kernel", true, &a->conv_taps));
    TRY(gguf_read_i32(r, "ssm.state_size", true, &d->k_dim));
    TRY(gguf_read_i32(r, "ssm.group_count", true, &d->k_heads));
    TRY(gguf_read_i32(r, "ssm.time_step_rank", true, &d->v_heads));
    TRY(gguf_read_i32(r, "ssm.inner_size", true, &inner));
    if (d->v_heads < 1 || inner % d->v_heads != 0)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s %d is not a multiple of %d value heads",
                       r->m->path, r->key, inner, d->v_heads);
    d->v_dim = inner / d->v_heads;
    return read_layers(r);
}

/* ---- config.json ---- */

static vt_status read_layer_types(hf_reader *c)
{
    int32_t interval = 4;
    if (vt_read_member(c->root, "layer_types"))
        return hf_read_mixers(c, "linear_attention", VT_BLOCK_DELTA);
    TRY(hf_read_i32(c, "full_attention_interval", false, &interval));
    return set_interval(c->m, "\"full_attention_interval\"", interval, c->err);
}

vt_status qwen3_5_from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    vt_delta *d = &a->delta;
    a->norm_plus_one = true;
    a->out_gate = true;
    d->log_decay = true;
    TRY(hf_read_i32(c, "linear_conv_kernel_dim", true, &a->conv_taps));
    TRY(hf_read_i32(c, "linear_key_head_dim", true, &d->k_dim));
    TRY(hf_read_i32(c, "linear_value_head_dim", true, &d->v_dim));
    TRY(hf_read_i32(c, "linear_num_key_heads", true, &d->k_heads));
    TRY(hf_read_i32(c, "linear_num_value_heads", true, &d->v_heads));
    return read_layer_types(c);
}

bool qwen3_5_skips(const vt_model *m, const char *tensor)
{
    static const char *const begins[] = {"mtp.", "model.visual.", "visual."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(tensor, begins[i], strlen(begins[i])) == 0)
            return true;
    char *end;
    if (strncmp(tensor, "blk.", 4) != 0)
        return false;
    long layer = strtol(tensor + 4, &end, 10);
    return *end == '.' && layer >= m->arch.n_layers;
}

/* ---- the family ---- */

static const vt_family_role roles[] = {QWEN3_5_ROLES};

static const vt_family_shape shapes[] = {
    {QWEN3_5, .name = "qwen3.5-0.8b", .n_layers = 24, .hidden = 1024, .n_heads = 8, .n_kv_heads = 2,
     .ffn = 3584, .tied = true, .delta = {16, 16, 128, 128, .log_decay = true}},
    {QWEN3_5, .name = "qwen3.5-4b", .n_layers = 32, .hidden = 2560, .n_heads = 16, .n_kv_heads = 4,
     .ffn = 9216, .tied = true, .delta = {16, 32, 128, 128, .log_decay = true}},
    {QWEN3_5, .name = "qwen3.5-9b", .n_layers = 32, .hidden = 4096, .n_heads = 16, .n_kv_heads = 4,
     .ffn = 12288, .delta = {16, 32, 128, 128, .log_decay = true}},
    {QWEN3_5, .name = "qwen3.5-27b", .n_layers = 64, .hidden = 5120, .n_heads = 24, .n_kv_heads = 4,
     .ffn = 17408, .delta = {16, 48, 128, 128, .log_decay = true}},
    /* made up, for tests */
    {.name = "qwen3.5-tiny",
     .n_layers = 4,
     .hidden = 64,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 32,
     .ffn = 96,
     .vocab = 512,
     .max_context = 2048,
     .rope_base = 1e7,
     .eps = 1e-6f,
     .rope_dims = 8,
     .conv_taps = 4,
     .attends_every = 4,
     .out_gate = true,
     .tied = true,
     .delta = {2, 4, 16, 24, .log_decay = true}},
    {.name = NULL},
};

const vt_family vt_family_qwen3_5 = {.name = "qwen3_5",
                                     .gguf = "qwen35",
                                     .hf = "qwen3_5_text",
                                     .hf_outer = "qwen3_5",
                                     .roles = roles,
                                     .n_roles = sizeof roles / sizeof *roles,
                                     .shapes = shapes,
                                     .head_dim = 256,
                                     .rope_base = 1e7,
                                     .rope_partial = 0.25,
                                     .skips = qwen3_5_skips,
                                     .skipped = QWEN3_5_SKIPPED,
                                     .mtp = VT_MTP_BESIDE,
                                     .from_gguf = qwen3_5_from_gguf,
                                     .from_config = qwen3_5_from_config};
