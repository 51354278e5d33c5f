/* Cases drawn at random, of shapes that nobody chose. What a kernel is compiled for (columns, head
 * sizes, vocabularies, types) comes from short lists, so that few kernels are compiled; numbers of
 * tokens, rows, sequences and lengths are any.
 *
 * Attention has batches of its own: decodes and chunks of prefill of any lengths side by side,
 * some of which begin with another's pages. Scores are wider spread than in the card's cases, so
 * that a token which is left out, or counted twice, moves its row beyond the tolerance. */
#include "gpu_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/access.h"
#include "ops/attention/attention.h"
#include "ops/cases.h"
#include "ops/kv_store/kv_store.h"
#include "ops/moe/moe.h"

typedef struct draw {
    uint64_t state;
} draw;

static int32_t below(draw *d, int32_t n) { return (int32_t)(case_random(&d->state) % (uint64_t)n); }
static int32_t between(draw *d, int32_t low, int32_t high)
{
    return low + below(d, high - low + 1);
}
/* Mostly few: uniform between 1 and a bound that is itself drawn. */
static int32_t few(draw *d, int32_t most) { return between(d, 1, between(d, 1, most)); }
#define ONE_OF(d, list) list[below(d, (int32_t)(sizeof(list) / sizeof *(list)))]

/* ---- attention ---- */

enum { MOST_SEQS = 12, LONGEST = 400 };

static int32_t whole_pages(const vt_batch *b, int32_t s)
{
    return (b->kv_len[s] - (b->q_start[s + 1] - b->q_start[s])) / b->page_size;
}

/* Some sequences take their first pages, none of which holds a token of this step, from another. */
static void share_pages(draw *d, vt_batch *b)
{
    int32_t *ids = (int32_t *)(uintptr_t)b->page_ids;
    for (int32_t s = 1; s < b->n_seqs; s++) {
        int32_t from = below(d, s), most = whole_pages(b, s), there = whole_pages(b, from);
        most = most < there ? most : there;
        if (most > 0 && below(d, 3))
            memcpy(ids + b->page_start[s], ids + b->page_start[from],
                   (size_t)between(d, 1, most) * sizeof *ids);
    }
}

/* Values where a sequence has stored something, NaNs elsewhere. */
static void fill_pools(const attention_args *a, vt_tensor *const pool[2], uint64_t *state)
{
    const vt_batch *b = a->batch;
    for (int p = 0; p < 2; p++)
        memset(pool[p]->data, 0xff, (size_t)vt_tensor_bytes(pool[p]));
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int64_t pos = 0; pos < b->kv_len[s]; pos++)
            for (int64_t h = 0; h < a->kv_heads; h++) {
                int64_t page = b->page_ids[b->page_start[s] + pos / b->page_size],
                        row = (page * a->kv_heads + h) * b->page_size + pos % b->page_size;
                for (int64_t i = 0; i < a->head_dim; i++) {
                    tensor_set(pool[0], row, i, case_normal(state) / a->k_scale);
                    tensor_set(pool[1], row, i, case_normal(state) / a->v_scale);
                }
            }
}

/* p: as the card's, but for lengths: sequences, -, -, 1000 heads + kv_heads, head_dim, pool type,
 * page, window */
static void *make_attention(const vt_case *c, uint64_t seed, vt_arena *arena,
                            vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    draw d = {seed};
    int32_t heads = (int32_t)(c->p[3] / 1000), kv_heads = (int32_t)(c->p[3] % 1000),
            n = (int32_t)c->p[0], size = (int32_t)c->p[6], decodes = below(&d, n + 1);
    bool fp8 = c->p[5] == VT_FP8_E4M3;
    case_seq seq[MOST_SEQS];
    for (int32_t s = 0; s < n; s++) {
        int32_t before = below(&d, 4) ? few(&d, LONGEST) : 0, q = s < decodes ? 1 : few(&d, 150);
        seq[s] = (case_seq){q, before + q};
    }
    attention_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = case_batch(arena, size, n, seq, true, 100, &d.state);
    if (!a || !b)
        return NULL;
    share_pages(&d, b);
    vt_tensor *qkv = case_tensor_2d(arena, VT_F32, b->n_tokens,
                                    (int64_t)(heads + 2 * kv_heads) * c->p[4]);
    qkv = case_fill(arena, qkv, 0, 3, &d.state);
    *a = (attention_args){.batch = b,
                          .q = case_slice(arena, qkv, 0, heads * c->p[4]),
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = (int32_t)c->p[4],
                          .scale = 1 / sqrtf((float)c->p[4]),
                          .k_scale = fp8 ? 1 / 30.0f : 1,
                          .v_scale = fp8 ? 20 : 1,
                          .window = (int32_t)c->p[7]};
    vt_tensor *pool[2];
    for (int i = 0; i < 2; i++)
        pool[i] = case_tensor_4d(arena, (vt_dtype)c->p[5], case_batch_pages(b), kv_heads, size,
                                 c->p[4]);
    a->o = case_tensor_2d(arena, VT_F32, b->n_tokens, heads * c->p[4]);
    if (!a->q || !pool[0] || !pool[1] || !a->o)
        return NULL;
    a->k_pool = pool[0];
    a->v_pool = pool[1];
    fill_pools(a, pool, &d.state);
    outputs[0] = a->o;
    *n_outputs = 1;
    return a;
}

static void draw_attention(draw *d, gpu_case *g)
{
    static const struct {
        int32_t heads, dim;
        vt_dtype type;
        int32_t page;
    } shape[] = {
        {32008, 128, VT_BF16, 64},   {32008, 128, VT_FP8_E4M3, 64}, {9003, 64, VT_BF16, 16},
        {9003, 64, VT_FP8_E4M3, 16}, {4001, 256, VT_BF16, 32},      {4001, 256, VT_FP8_E4M3, 64},
        {5005, 96, VT_BF16, 16},     {6003, 112, VT_FP8_E4M3, 7},   {3001, 13, VT_BF16, 5},
        {35005, 13, VT_FP8_E4M3, 5}, {40002, 64, VT_BF16, 64},      {16001, 64, VT_FP8_E4M3, 16}};
    static const int32_t window[] = {0, 0, 1, 17, 64, 130};
    int32_t i = below(d, (int32_t)(sizeof shape / sizeof *shape));
    g->make = make_attention;
    g->c.p[0] = between(d, 1, MOST_SEQS);
    g->c.p[3] = shape[i].heads;
    g->c.p[4] = shape[i].dim;
    g->c.p[5] = shape[i].type;
    g->c.p[6] = shape[i].page;
    g->c.p[7] = ONE_OF(d, window);
}

/* ---- the others: the card's parameters ---- */

static void draw_linear(draw *d, gpu_case *g)
{
    static const struct {
        vt_dtype type;
        int32_t cols[4];
    } type[] = {{VT_BF16, {24, 200, 1000, 43}},   {VT_FP8_E4M3, {40, 136, 648, 43}},
                {VT_Q8_0, {32, 96, 544, 1056}},   {VT_Q4_0, {32, 160, 576, 1056}},
                {VT_Q4_1, {64, 96, 544, 1056}},   {VT_Q5_0, {32, 160, 576, 1056}},
                {VT_Q5_1, {64, 96, 544, 1056}},   {VT_Q4_K, {256, 512, 768, 2304}},
                {VT_Q5_K, {256, 512, 768, 2304}}, {VT_Q6_K, {256, 512, 768, 2304}}};
    int32_t i = below(d, (int32_t)(sizeof type / sizeof *type)), rows = few(d, 700);
    bool pair = below(d, 4) == 0, parts = !pair && below(d, 3) == 0;
    int64_t *p = g->c.p;
    p[0] = below(d, 2) ? between(d, 1, 65) : few(d, 200);
    p[1] = type[i].type;
    p[2] = type[i].cols[below(d, 4)];
    p[3] = rows;
    p[4] = pair ? rows : parts ? few(d, 100) : 0;
    p[5] = parts ? few(d, 100) : 0;
    p[6] = pair ? (below(d, 2) ? LINEAR_SWIGLU : LINEAR_GEGLU) : LINEAR_NONE;
    p[7] = (below(d, 2) ? 1 : 0) | (!pair && below(d, 2) ? 2 : 0) | (pair ? 8 : 0) |
           (p[1] == VT_FP8_E4M3 ? 16 * below(d, 3) : 0);
    g->f32_out = below(d, 4) == 0 && !(p[7] & 2);
}

static void draw_kv_store(draw *d, gpu_case *g)
{
    static const int32_t dim[] = {64, 128, 256, 96, 24, 13}, page[] = {16, 64, 5},
                         scale[] = {0, 3, 250, 37000, 1000000};
    const int32_t p[] = {few(d, 90),
                         below(d, 6),
                         between(d, 1, 4),
                         ONE_OF(d, dim),
                         below(d, 2) ? VT_BF16 : VT_FP8_E4M3,
                         ONE_OF(d, page),
                         ONE_OF(d, scale),
                         ONE_OF(d, scale)};
    for (int i = 0; i < 8; i++)
        g->c.p[i] = i > 5 && p[4] == VT_BF16 ? 0 : p[i];
}

static void draw_sample(draw *d, gpu_case *g)
{
    static const int32_t vocab[] = {1, 2, 31, 997, 8192, 8193, 20004},
                         spread[] = {0, 1, 10, 30, 500}, every[] = {0, 0, 0, 2, 7, 700};
    const int32_t p[] = {between(d, 1, 40), ONE_OF(d, vocab), 9 + below(d, 2),
                         ONE_OF(d, spread), ONE_OF(d, every), below(d, 7)};
    for (int i = 0; i < 6; i++)
        g->c.p[i] = p[i];
}

static void draw_rope(draw *d, gpu_case *g)
{
    static const int32_t shape[][2] = {{64, 64}, {128, 128}, {256, 128}, {96, 40}, {13, 8}};
    int32_t i = below(d, 5);
    const int32_t p[] = {few(d, 90),
                         between(d, 1, 9),
                         between(d, 1, 3),
                         shape[i][0],
                         shape[i][1],
                         below(d, 3) == 0,
                         below(d, 2) ? VT_F32 + 1 : 0,
                         below(d, 2)};
    for (int k = 0; k < 8; k++)
        g->c.p[k] = k == 7 && !p[6] ? 0 : p[k];
}

static void draw_rmsnorm(draw *d, gpu_case *g)
{
    static const int32_t hidden[] = {1, 24, 64, 128, 576, 1024, 1027, 5120};
    const int32_t p[] = {few(d, 600), ONE_OF(d, hidden), below(d, 4) ? 0 : few(d, 20),
                         VT_F32,      below(d, 2),       below(d, 3) == 0};
    for (int i = 0; i < 6; i++)
        g->c.p[i] = p[i];
    if (p[2] > 0)
        g->c.p[5] = 0;
    if (p[2] > p[0])
        g->c.p[2] = p[0];
}

static void draw_embed(draw *d, gpu_case *g)
{
    static const vt_dtype type[] = {VT_BF16, VT_FP8_E4M3, VT_Q8_0, VT_Q4_0, VT_Q4_1,
                                    VT_Q5_0, VT_Q5_1,     VT_Q4_K, VT_Q6_K};
    const int32_t p[] = {few(d, 200), ONE_OF(d, type), few(d, 300), 256 * between(d, 1, 2),
                         below(d, 2)};
    for (int i = 0; i < 5; i++)
        g->c.p[i] = p[i];
}

static void draw_silu_mul(draw *d, gpu_case *g)
{
    const int32_t p[] = {few(d, 90), few(d, 3000), below(d, 2), below(d, 3) ? 2 : 100};
    for (int i = 0; i < 4; i++)
        g->c.p[i] = p[i];
}

/* The router is left out: near ties would choose another expert. */
static void draw_moe_linear(draw *d, gpu_case *g)
{
    static const struct {
        vt_dtype type;
        int32_t hidden, ffn;
    } shape[] = {{VT_BF16, 64, 96},       {VT_BF16, 42, 27},      {VT_Q8_0, 160, 96},
                 {VT_Q4_0, 96, 160},      {VT_Q4_1, 160, 96},     {VT_Q4_K, 256, 512},
                 {VT_Q6_K, 512, 256},     {VT_FP8_E4M3, 136, 40}, {VT_FP8_E4M3, 264, 136},
                 {VT_FP8_E4M3, 141, 135}, {VT_FP8_E4M3, 40, 35}};
    static const int32_t scales[] = {0, MOE_CASE_SCALE, MOE_CASE_BLOCKS};
    int32_t i = below(d, (int32_t)(sizeof shape / sizeof *shape)), experts = between(d, 1, 6);
    int32_t flags = below(d, 2) | (shape[i].type == VT_FP8_E4M3 ? scales[below(d, 3)] : 0);
    const int32_t p[] = {
        few(d, 60),    shape[i].hidden, shape[i].ffn, experts, between(d, 1, experts),
        shape[i].type, flags,           below(d, 2)};
    for (int k = 0; k < 8; k++)
        g->c.p[k] = p[k];
}

/* ---- a case ---- */

static const struct {
    const char *op;
    void (*draw)(draw *d, gpu_case *g);
} drawers[] = {{"attention_decode", draw_attention},
               {"attention_prefill", draw_attention},
               {"linear", draw_linear},
               {"kv_store", draw_kv_store},
               {"sample", draw_sample},
               {"rope", draw_rope},
               {"rmsnorm", draw_rmsnorm},
               {"add_rmsnorm", draw_rmsnorm},
               {"embed", draw_embed},
               {"silu_mul", draw_silu_mul},
               {"moe_linear", draw_moe_linear}};

bool gpu_random_case(const char *op, uint64_t seed, int32_t number, gpu_case *out)
{
    static char name[160];
    for (size_t i = 0; i < sizeof drawers / sizeof *drawers; i++) {
        if (strcmp(drawers[i].op, op) != 0)
            continue;
        draw d = {seed * 0x9e3779b97f4a7c15u + (uint64_t)number * 0xbf58476d1ce4e5b9u + i};
        *out = (gpu_case){.op = drawers[i].op};
        out->seed = case_random(&d.state);
        drawers[i].draw(&d, out);
        const int64_t *p = out->c.p;
        snprintf(name, sizeof name, "random %d: %lld %lld %lld %lld %lld %lld %lld %lld", number,
                 (long long)p[0], (long long)p[1], (long long)p[2], (long long)p[3],
                 (long long)p[4], (long long)p[5], (long long)p[6], (long long)p[7]);
        out->c.name = name;
        return true;
    }
    return false;
}
