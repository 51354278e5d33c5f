/* LFM2 and LFM2.5, dense: gated short convolutions in most layers, attention with norms of q and k
 * in the others. */
#include "model/families/lfm2.h"

#include "files/json.h"
#include "model/assemble.h"

vt_status lfm2_from_gguf(gguf_reader *r)
{
    TRY(gguf_read_i32(r, "shortconv.l_cache", true, &r->m->arch.conv_taps));
    for (int32_t i = 0; i < r->m->arch.n_layers; i++)
        if (!gguf_layer_has(r, "attention.head_count_kv", i))
            model_keep_state(r->m, i, VT_BLOCK_CONV);
    return VT_OK;
}

/* Older files list the layers that attend. */
static vt_status read_attending(hf_reader *c)
{
    const json_t *list = json_object_get(c->root, "full_attn_idxs");
    int32_t n = c->m->arch.n_layers;
    if (!list)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: \"layer_types\" and \"full_attn_idxs\" are missing; one of them was "
                       "expected",
                       c->path);
    TRY(vt_check_list(c->path, "full_attn_idxs", list, c->err));
    for (int32_t i = 0; i < n; i++)
        model_keep_state(c->m, i, VT_BLOCK_CONV);
    for (size_t k = 0; k < json_array_size(list); k++) {
        int32_t i;
        TRY(vt_read_nth(c->path, "full_attn_idxs", list, k, 0, n - 1, &i, c->err));
        c->m->layer[i].mixer = VT_BLOCK_ATTENTION;
        c->m->layer[i].state_bytes = 0;
    }
    return VT_OK;
}

vt_status lfm2_from_config(hf_reader *c)
{
    TRY(hf_refuse_flag(c, "conv_bias"));
    c->m->arch.conv_taps = 3;
    TRY(hf_read_i32(c, "conv_L_cache", false, &c->m->arch.conv_taps));
    TRY(hf_read_bool(c, "tie_embedding", &c->m->arch.tied_head));
    return json_object_get(c->root, "layer_types") ? hf_read_mixers(c, "conv", VT_BLOCK_CONV)
                                                   : read_attending(c);
}

/* The file's size of feed-forwards is one that a gate would make larger by half: the true one is
 * two thirds of it, times a factor, rounded up. */
static vt_status adjust_ffn(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    bool adjust = true;
    double factor = 1;
    int32_t multiple = 256;
    TRY(hf_read_bool(c, "block_auto_adjust_ff_dim", &adjust));
    if (!adjust)
        return VT_OK;
    TRY(hf_read_factor(c, "block_ffn_dim_multiplier", &factor));
    TRY(hf_read_i32(c, "block_multiple_of", false, &multiple));
    double ffn = factor * (double)(int32_t)(2 * (double)a->ffn / 3);
    if (multiple < 1 || multiple > 1 << 20 || !(ffn >= 1 && ffn <= 1 << 20))
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"block_multiple_of\" is %d, of feed-forwards of %g (both 1 to %d)",
                       c->path, multiple, ffn, 1 << 20);
    a->ffn = (int32_t)vt_ceil_div((int64_t)ffn, multiple) * multiple;
    return VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    TRY(lfm2_from_config(c));
    return adjust_ffn(c);
}

static const vt_family_role roles[] = {LFM2_ROLES};

/* From the models' published config.json. */
static const vt_family_shape shapes[] = {
    {LFM2, .name = "lfm2-350m", .n_layers = 16, .hidden = 1024, .n_heads = 16, .ffn = 4608,
     .kinds = "ccaccaccacacacac"},
    {LFM2, .name = "lfm2-1.2b", .n_layers = 16, .hidden = 2048, .n_heads = 32, .ffn = 8192,
     .kinds = "ccaccaccacacacac"},
    {.name = NULL},
};

const vt_family vt_family_lfm2 = {.name = "lfm2",
                                  .gguf = "lfm2",
                                  .hf = "lfm2",
                                  .roles = roles,
                                  .n_roles = sizeof roles / sizeof *roles,
                                  .shapes = shapes,
                                  .tied = true,
                                  .rope_base = 1e6,
                                  .hf_eps = "norm_eps",
                                  .hf_ffn = "block_ff_dim",
                                  .gguf_zeros = true,
                                  .from_gguf = lfm2_from_gguf,
                                  .from_config = from_config};
