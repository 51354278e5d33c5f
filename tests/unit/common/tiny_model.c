#include "tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/assemble.h"
#include "model/family.h"
#include "base/quant.h"
#include "text/tokenizer/tokenizer.h"

typedef struct tiny_source {
    vt_tensor *tensor;
    int64_t n;
} tiny_source;

static int64_t find(const void *file, const char *name)
{
    const tiny_source *s = file;
    for (int64_t i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return i;
    return -1;
}

static const vt_tensor *at(const void *file, int64_t i)
{
    return &((const tiny_source *)file)->tensor[i];
}

static void base(vt_arch *a)
{
    a->n_layers = 2;
    a->hidden = 128;
    a->n_heads = 4;
    a->n_kv_heads = 2;
    a->head_dim = 64;
    a->ffn = 192;
    a->vocab = 320;
    a->max_context = 512;
    a->norm_eps = 1e-6f;
    a->tied_head = true;
    a->rope[0] = (vt_rope_params){.base = 10000};
}

/* Two shapes of K and V in turn, and layers that read the K and V of an earlier one:
 *
 *   layer          0         1         2           3         4
 *   heads          4 of 64   8 of 32   8 of 64     4 of 32   8 of 32
 *   KV heads       2 of 64   4 of 32   layer 0's   4 of 32   layer 1's
 *   window, rope   20, 0     -, 1      12, 1       -, none   33, 0 */
static void mix_heads(vt_model *m, int32_t n)
{
    static const vt_heads head[] = {{4, 2, 64, 20, 0},
                                    {8, 4, 32, 0, 1},
                                    {8, 2, 64, 12, 1},
                                    {4, 4, 32, 0, -1},
                                    {8, 4, 32, 33, 0}};
    static const int16_t kv_of[] = {0, 1, 0, 3, 1};
    for (int32_t i = 0; i < n; i++) {
        m->layer[i].head = head[i];
        m->layer[i].kv_of = kv_of[i];
    }
}

/* The same and two layers behind them: a convolution, which has state in place of K and V, and one
 * that attends (2 KV heads of 64). */
static void mix_state(vt_model *m)
{
    vt_layer *l = &m->layer[m->arch.n_layers - 2];
    mix_heads(m, m->arch.n_layers - 2);
    l->mixer = VT_BLOCK_CONV;
    l->state_bytes = (int32_t)model_state_bytes(&m->arch, VT_BLOCK_CONV);
}

/* State spaces and an attention layer: 8 heads in one group, or in two. */
static void set_mamba(vt_arch *a, bool groups)
{
    a->n_layers = 3;
    a->mamba = (vt_mamba){
        .heads = 8, .groups = groups ? 2 : 1, .head_dim = 64, .state_dim = 128, .log_decay = true};
    a->conv_taps = 4;
}

static void set_arch(vt_model *m, const char *name)
{
    vt_arch *a = &m->arch;
    base(a);
    snprintf(a->family, sizeof a->family, "%s", name);
    if (strcmp(name, "qwen3") == 0) {
        m->family = vt_family_find("qwen3");
    } else if (strcmp(name, "qwen3moe") == 0) { /* experts for four CTAs, two per token */
        m->family = vt_family_find("qwen3_moe");
        a->n_layers = 1;
        a->n_heads = 2;
        a->n_kv_heads = 1;
        a->head_dim = 32;
        a->n_experts = 8;
        a->n_experts_used = 2;
        a->expert_ffn = 64;
        a->norm_topk = true;
    } else if (strcmp(name, "gemma3") == 0) { /* windows shorter than the prompts */
        m->family = vt_family_find("gemma3");
        a->norm_plus_one = true;
        a->activation = VT_ACT_GELU_TANH;
        a->embed_scale = sqrtf((float)a->hidden);
        a->n_heads = 2;
        a->n_kv_heads = 1;
        a->head_dim = 128;
        a->window = 20;
        a->rope[0].base = 1e6;
        a->rope[1] = (vt_rope_params){.base = 10000, .dims = a->head_dim};
        a->n_ropes = 2;
    } else if (strcmp(name, "gpt-oss") == 0) { /* every expert is used, so that none nearly ties */
        m->family = vt_family_find("gpt_oss");
        a->n_experts = 3;
        a->n_experts_used = 3;
        a->expert_ffn = 96;
        a->norm_topk = true;
        a->activation = VT_ACT_CLAMPED;
        a->act_limit = 0.9f;
        a->window = 20;
        a->tied_head = false;
    } else if (strncmp(name, "mixed", 5) == 0) {
        bool state = strcmp(name, "mixed_state") == 0;
        m->family = vt_family_find(state ? "hybrid" : "llama");
        a->n_layers = state ? 7 : 5;
        a->conv_taps = state ? 3 : 0;
        a->n_ropes = 2;
        a->rope[0].dims = 32; /* of a head of 64: half of it */
        a->rope[1] = (vt_rope_params){.base = 500, .dims = 32};
    } else if (strncmp(name, "mamba-fp8", 9) == 0) {
        m->family = vt_family_find("granite_hybrid");
        set_mamba(a, strcmp(name, "mamba-fp8-groups") == 0);
    } else {
        assert_string_equal(name, "llama");
        m->family = vt_family_find("llama");
        a->tied_head = false;
        a->head_dim = 16;
    }
    if (a->rope[0].dims == 0)
        a->rope[0].dims = a->head_dim;
    a->attn_scale = 1 / sqrtf((float)a->head_dim);
}

/* Like a mixed file: gate and up of the experts have one quantised type, down another. */
static void quantise_experts(tiny_source *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->tensor[i].rank == 3)
            s->tensor[i].dtype = strstr(s->tensor[i].name, "down") ? VT_Q8_0 : VT_Q4_1;
}

/* FP8 with a scale per block: matrices of experts (rank 3), in sizes that no fast kernel supports,
 * or the inputs of state spaces. */
static void make_fp8(vt_model *m, tiny_source *s, int32_t rank)
{
    for (int64_t i = 0, n = s->n; i < n; i++) {
        vt_tensor *t = &s->tensor[i];
        char name[160];
        if (t->rank != rank || (rank == 2 && !strstr(t->name, "mamba.in_proj")))
            continue;
        t->dtype = VT_FP8_E4M3;
        snprintf(name, sizeof name, "%s_scale_inv", t->name);
        vt_tensor scale = {.dtype = VT_F32,
                           .rank = rank,
                           .row_stride = (t->dim[rank - 1] + 127) / 128,
                           .dim = {rank == 3 ? t->dim[0] : (t->dim[0] + 127) / 128,
                                   (t->dim[1] + 127) / 128,
                                   rank == 3 ? (t->dim[2] + 127) / 128 : 1},
                           .name = vt_arena_strdup(&m->arena, name, strlen(name))};
        assert_non_null(scale.name);
        s->tensor[s->n++] = scale; /* uses the room of optional tensors */
    }
}

/* Fills with uniform random numbers. Matrices keep the size of the vectors that they multiply;
 * norms and scales are near 1 (norms near 0 in Gemma's form). */
static void fill(vt_model *m, vt_tensor *t, uint64_t *rng)
{
    int64_t cols = t->dim[t->rank - 1], rows = vt_tensor_elems(t) / cols;
    char *to = vt_arena_alloc(&m->arena, (size_t)vt_tensor_bytes(t), 1);
    float *row = malloc((size_t)cols * sizeof *row);
    assert_non_null(to);
    assert_non_null(row);
    bool norm = t->rank == 1 || strstr(t->name, "_scale");
    float centre = norm && !m->arch.norm_plus_one ? 1 : 0;
    float width = norm ? t->rank == 1 ? 0.2f : 0.5f : 1.7f / sqrtf((float)cols);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            *rng = *rng * 6364136223846793005u + 1442695040888963407u;
            row[i] = centre + width * (float)(int32_t)(*rng >> 32) * 0x1p-31f;
        }
        vt_quant_row(t->dtype, row, to + r * vt_dtype_row_bytes(t->dtype, cols), cols);
    }
    free(row);
    t->data = to;
}

static void close_tiny(vt_model *m) { model_release(m); }

vt_model *tiny_model(const char *name)
{
    vt_model *m;
    vt_err err = {0};
    tiny_source s;
    uint64_t rng = 10; /* with this seed no token of the tests has experts that nearly tie */
    if (model_new(name, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    m->close = close_tiny;
    bool quantised = strcmp(name, "qwen3moe-quantised") == 0;
    bool fp8 = strcmp(name, "qwen3moe-fp8") == 0;
    bool mxfp4 = strcmp(name, "gpt-oss-mxfp4") == 0;
    set_arch(m, quantised || fp8 ? "qwen3moe" : mxfp4 ? "gpt-oss" : name);
    if (fp8)
        m->arch.expert_ffn = 135;
    if (model_make_layers(m, &err) != VT_OK)
        fail_msg("%s", err.message);
    if (strcmp(name, "mixed") == 0)
        mix_heads(m, m->arch.n_layers);
    if (strcmp(name, "mixed_state") == 0)
        mix_state(m);
    for (int32_t i = 0; m->arch.mamba.heads > 0 && i < m->arch.n_layers; i += 2)
        model_keep_state(m, i, VT_BLOCK_MAMBA);
    if (m->arch.activation == VT_ACT_CLAMPED)
        m->layer[1].head.window = 0;
    if (strcmp(name, "gemma3") == 0) {
        m->layer[0].head.rope = 1;
        m->layer[1].head.window = 0;
    }
    if (model_declare(m, VT_BF16, &s.tensor, &s.n, &err) != VT_OK)
        fail_msg("%s", err.message);
    if (quantised)
        quantise_experts(&s);
    if (fp8)
        make_fp8(m, &s, 3);
    if (m->arch.mamba.heads > 0)
        make_fp8(m, &s, 2);
    for (int64_t i = 0; mxfp4 && i < s.n; i++)
        s.tensor[i].dtype = s.tensor[i].rank == 3 ? VT_MXFP4 : s.tensor[i].dtype;
    for (int64_t i = 0; i < s.n; i++)
        fill(m, &s.tensor[i], &rng);
    weight_source src = {.hf_names = true, .file = &s, .n_tensors = s.n, .find = find, .at = at};
    if (model_assemble(m, &src, &err) != VT_OK ||
        vt_tokenizer_synthetic(m->arch.vocab, &m->tokenizer, &err) != VT_OK ||
        model_set_special(m, NULL, 0, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}
