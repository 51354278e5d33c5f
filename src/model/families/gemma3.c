/* Gemma 3 and EmbeddingGemma. Gemma 3: norms before and after each block and of q and k, windows in
 * five layers of six with a rope of their own, GELU, a scaled embedding. GGUF files hold 1 + w in
 * their norms.
 *
 * EmbeddingGemma is the same network with tokens that see those behind them too: all of them, or
 * half a window to each side. Its folders say so by use_bidirectional_attention; its GGUF files are
 * an architecture of their own, which may hold the two dense layers that follow pooling. */
#include <math.h>

#include "model/assemble.h"
#include "model/dense.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "pre_feedforward_layernorm.weight"},
};

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    double softcap = 0;
    a->activation = VT_ACT_GELU_TANH;
    a->embed_scale = sqrtf((float)a->hidden);
    /* The 27B model scales by the hidden size's share of a head; its file does not say so. */
    if (a->n_layers == 62)
        a->attn_scale = 1 / sqrtf((float)a->hidden / (float)a->n_heads);
    a->rope[1] = a->rope[0];
    a->rope[1].base = 10000;
    a->rope[1].scaling = VT_ROPE_PLAIN;
    a->n_ropes = 2;
    TRY(gguf_read_f64(r, "rope.freq_base_swa", false, &a->rope[1].base));
    TRY(gguf_read_f64(r, "final_logit_softcapping", false, &softcap));
    if (softcap != 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %g; soft-capped logits are not supported", r->m->path, r->key,
                       softcap);
    return gguf_read_windows(r, 6);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    double scalar = 256;
    bool bidirectional = false;
    a->norm_plus_one = true;
    a->embed_scale = sqrtf((float)a->hidden);
    TRY(hf_read_f64(c, "query_pre_attn_scalar", false, &scalar));
    TRY(model_check_factor(c->path, "\"query_pre_attn_scalar\"", scalar, c->err));
    a->attn_scale = (float)(1 / sqrt(scalar));
    TRY(hf_refuse_f64(c, "attn_logit_softcapping"));
    TRY(hf_refuse_f64(c, "final_logit_softcapping"));
    TRY(hf_read_bool(c, "use_bidirectional_attention", &bidirectional));
    if (bidirectional) {
        model_see_both_ways(c->m);
        c->m->pooled.how = VT_POOLING_MEAN;
    }
    return VT_OK;
}

/* Both dense layers, or neither. */
static vt_status embedding_from_gguf(gguf_reader *r)
{
    const vt_tensor *first = gguf_tensor(r->file, "dense_2.weight"),
                    *second = gguf_tensor(r->file, "dense_3.weight");
    TRY(from_gguf(r));
    model_see_both_ways(r->m);
    r->m->pooled.how = VT_POOLING_MEAN;
    if (!first != !second)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: tensor %s is missing", r->m->path,
                       first ? "dense_3.weight" : "dense_2.weight");
    if (!first)
        return VT_OK;
    TRY(vt_dense_add(r->m, r->m->path, first, NULL, false, r->err));
    return vt_dense_add(r->m, r->m->path, second, NULL, false, r->err);
}

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    vt_arch *a = &m->arch;
    (void)s, (void)err;
    a->activation = VT_ACT_GELU_TANH;
    a->embed_scale = sqrtf((float)a->hidden);
    a->rope[1] = a->rope[0];
    a->rope[1].base = 1e4;
    a->n_ropes = 2;
    for (int32_t i = 0; i < a->n_layers; i++)
        m->layer[i].head.rope = m->layer[i].head.window > 0;
    return VT_OK;
}

static vt_status embedding_from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    TRY(from_shape(m, s, err));
    model_see_both_ways(m);
    m->pooled.how = VT_POOLING_MEAN;
    return VT_OK;
}

/* From the models' published config.json, the text models alone, without what stretches the
 * context. */
static const vt_family_shape shapes[] = {
    {.name = "gemma-3-1b",
     .n_layers = 26,
     .hidden = 1152,
     .n_heads = 4,
     .n_kv_heads = 1,
     .head_dim = 256,
     .ffn = 6912,
     .vocab = 262144,
     .max_context = 32768,
     .rope_base = 1e6,
     .eps = 1e-6f,
     .tied = true,
     .window = 512,
     .window_period = 6},
    {.name = "gemma-3-4b",
     .n_layers = 34,
     .hidden = 2560,
     .n_heads = 8,
     .n_kv_heads = 4,
     .head_dim = 256,
     .ffn = 10240,
     .vocab = 262208,
     .max_context = 32768,
     .rope_base = 1e6,
     .eps = 1e-6f,
     .tied = true,
     .window = 1024,
     .window_period = 6},
    {.name = NULL},
};

/* From the model's published config.json; its dense layers are not part of a dummy. */
static const vt_family_shape embedding_shapes[] = {
    {.name = "embeddinggemma-300m",
     .n_layers = 24,
     .hidden = 768,
     .n_heads = 3,
     .n_kv_heads = 1,
     .head_dim = 256,
     .ffn = 1152,
     .vocab = 262144,
     .max_context = 2048,
     .rope_base = 1e6,
     .eps = 1e-6f,
     .tied = true,
     .window = 512,
     .window_period = 6},
    {.name = NULL},
};

static const char *const dense[] = {"dense_2.weight", "dense_3.weight", NULL};

const vt_family vt_family_gemma3 = {.name = "gemma3",
                                    .gguf = "gemma3",
                                    .hf = "gemma3_text",
                                    .roles = roles,
                                    .n_roles = sizeof roles / sizeof *roles,
                                    .shapes = shapes,
                                    .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
                                    .tied = true,
                                    .activation = "gelu_pytorch_tanh",
                                    .head_dim = 256,
                                    .n_heads = 8,
                                    .n_kv_heads = 4,
                                    .max_context = 131072,
                                    .rope_base = 1e6,
                                    .rope_local = true,
                                    .window_used = true,
                                    .window = 4096,
                                    .window_period = 6,
                                    .from_gguf = from_gguf,
                                    .from_config = from_config,
                                    .from_shape = from_shape};

const vt_family vt_family_gemma_embedding = {.name = "gemma_embedding",
                                             .gguf = "gemma-embedding",
                                             .roles = roles,
                                             .n_roles = sizeof roles / sizeof *roles,
                                             .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
                                             .hf_ignored = dense,
                                             .shapes = embedding_shapes,
                                             .from_gguf = embedding_from_gguf,
                                             .from_shape = embedding_from_shape};
