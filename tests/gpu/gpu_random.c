/* Cases drawn at random, of shapes that nobody chose, in two ways:
 *
 *   from the card     one of its own cases with another size, and perhaps a flag turned over. Any
 *                     op has these: nothing here names its fields
 *   by a drawer       a function for the op, which combines more fields than that. What a kernel is
 *                     compiled for (columns, head sizes, vocabularies, types) comes from short
 *                     lists, so that few kernels are compiled; numbers of tokens, rows, sequences
 *                     and lengths are any
 *
 * An op with a drawer takes one case in four from its card, an op without one takes all. A card
 * does not say for which of its fields a kernel is compiled, nor which values meet a border of its
 * tiles; hence the drawers.
 *
 * Attention has batches of its own: decodes and chunks of prefill of any lengths in one batch, some
 * of which begin with the pages of another sequence. Scores spread wider than in the card's cases,
 * so that a token which is left out, or counted twice, moves its row beyond the tolerance. */
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
/* Mostly small numbers: uniform between 1 and a bound that is itself random. */
static int32_t few(draw *d, int32_t most) { return between(d, 1, between(d, 1, most)); }
#define ONE_OF(d, list) list[below(d, (int32_t)(sizeof(list) / sizeof *(list)))]

/* ---- attention ---- */

enum { MOST_SEQS = 12, LONGEST = 400, TEXT = 176 };

static int32_t whole_pages(const vt_batch *b, int32_t s)
{
    return (b->kv_len[s] - (b->q_start[s + 1] - b->q_start[s])) / b->page_size;
}

/* Some sequences take their first pages from another one. No such page holds a token of this
 * step. */
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

/* Makes args with the card's shape, except for the lengths, which come from the seed. */
static void *make_attention(const vt_case *c, uint64_t seed, vt_arena *arena,
                            vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    draw d = {seed};
    const vt_op *op = &attention_decode_op; /* both cards have the same fields */
    int32_t heads = (int32_t)vt_case_get(op, c, "heads"),
            kv_heads = (int32_t)vt_case_get(op, c, "kv_heads"),
            dim = (int32_t)vt_case_get(op, c, "head_dim"), n = (int32_t)vt_case_get(op, c, "seqs"),
            size = (int32_t)vt_case_get(op, c, "page"), decodes = below(&d, n + 1);
    vt_dtype type = (vt_dtype)vt_case_get(op, c, "kv_type");
    bool fp8 = type == VT_FP8_E4M3;
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
                                    (int64_t)(heads + 2 * kv_heads) * dim);
    qkv = case_fill(arena, qkv, 0, 3, &d.state);
    *a = (attention_args){.batch = b,
                          .q = case_slice(arena, qkv, 0, (int64_t)heads * dim),
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = dim,
                          .scale = 1 / sqrtf((float)dim),
                          .k_scale = fp8 ? 1 / 30.0f : 1,
                          .v_scale = fp8 ? 20 : 1,
                          .window = (int32_t)vt_case_get(op, c, "window")};
    vt_tensor *pool[2];
    for (int i = 0; i < 2; i++)
        pool[i] = case_tensor_4d(arena, type, case_batch_pages(b), kv_heads, size, dim);
    a->o = case_tensor_2d(arena, VT_F32, b->n_tokens, (int64_t)heads * dim);
    if (!a->q || !pool[0] || !pool[1] || !a->o)
        return NULL;
    a->k_pool = pool[0];
    a->v_pool = pool[1];
    fill_pools(a, pool, &d.state);
    outputs[0] = a->o;
    *n_outputs = 1;
    return a;
}

static void draw_attention(draw *d, gpu_call *g, char *text)
{
    static const char *const shape[] = {"heads=32,kv_heads=8,head_dim=128,kv_type=bf16,page=64",
                                        "heads=32,kv_heads=8,head_dim=128,kv_type=fp8,page=64",
                                        "heads=9,kv_heads=3,head_dim=64,kv_type=bf16,page=16",
                                        "heads=9,kv_heads=3,head_dim=64,kv_type=fp8,page=16",
                                        "heads=4,kv_heads=1,head_dim=256,kv_type=bf16,page=32",
                                        "heads=4,kv_heads=1,head_dim=256,kv_type=fp8,page=64",
                                        "heads=5,kv_heads=5,head_dim=96,kv_type=bf16,page=16",
                                        "heads=6,kv_heads=3,head_dim=112,kv_type=fp8,page=7",
                                        "heads=3,kv_heads=1,head_dim=13,kv_type=bf16,page=5",
                                        "heads=35,kv_heads=5,head_dim=13,kv_type=fp8,page=5",
                                        "heads=40,kv_heads=2,head_dim=64,kv_type=bf16,page=64",
                                        "heads=16,kv_heads=1,head_dim=64,kv_type=fp8,page=16"};
    static const int32_t window[] = {0, 0, 1, 17, 64, 130};
    const char *s = ONE_OF(d, shape);
    int32_t seqs = between(d, 1, MOST_SEQS);
    g->make = make_attention;
    snprintf(text, TEXT, "seqs=%d,%s,window=%d", seqs, s, ONE_OF(d, window));
}

/* ---- the others ---- */

static void draw_linear(draw *d, gpu_call *g, char *text)
{
    static const struct {
        const char *name;
        int32_t cols[4];
    } type[] = {{"bf16", {24, 200, 1000, 43}},   {"fp8", {40, 136, 648, 43}},
                {"q8_0", {32, 96, 544, 1056}},   {"q4_0", {32, 160, 576, 1056}},
                {"q4_1", {64, 96, 544, 1056}},   {"q5_0", {32, 160, 576, 1056}},
                {"q5_1", {64, 96, 544, 1056}},   {"q4_k", {256, 512, 768, 2304}},
                {"q5_k", {256, 512, 768, 2304}}, {"q6_k", {256, 512, 768, 2304}}};
    static const char *const scales[] = {"none", "blocks", "one"};
    (void)g;
    int32_t i = below(d, (int32_t)(sizeof type / sizeof *type)), rows = few(d, 700);
    bool pair = below(d, 4) == 0, parts = !pair && below(d, 3) == 0;
    int32_t tokens = below(d, 2) ? between(d, 1, 65) : few(d, 200),
            cols = type[i].cols[below(d, 4)],
            rows2 = pair    ? rows
                    : parts ? few(d, 100)
                            : 0,
            rows3 = parts ? few(d, 100) : 0;
    const char *epilogue = !pair ? "none" : below(d, 2) ? "swiglu" : "geglu";
    bool bias = below(d, 2), residual = !pair && below(d, 2);
    const char *scale = i == 1 ? scales[below(d, 3)] : "none";
    bool logits = below(d, 4) == 0 && !residual && !pair;
    snprintf(text, TEXT,
             "tokens=%d,type=%s,cols=%d,rows=%d,rows2=%d,rows3=%d,epilogue=%s,bias=%d,residual=%d,"
             "scales=%s,logits=%d",
             tokens, type[i].name, cols, rows, rows2, rows3, epilogue, bias, residual, scale,
             logits);
}

static void draw_kv_store(draw *d, gpu_call *g, char *text)
{
    static const int32_t dim[] = {64, 128, 256, 96, 24, 13}, page[] = {16, 64, 5},
                         scale[] = {0, 3, 250, 37000, 1000000};
    (void)g;
    int32_t tokens = few(d, 90), decodes = below(d, 6), heads = between(d, 1, 4),
            size = ONE_OF(d, dim);
    bool fp8 = below(d, 2) == 0;
    int32_t pages = ONE_OF(d, page), k = ONE_OF(d, scale), v = ONE_OF(d, scale);
    snprintf(
        text, TEXT,
        "tokens=%d,decodes=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d,k_scale=%d,v_scale=%d",
        tokens, decodes, heads, size, fp8 ? "fp8" : "bf16", pages, fp8 ? k : 0, fp8 ? v : 0);
}

static void draw_rope_store(draw *d, gpu_call *g, char *text)
{
    static const int32_t shape[][2] = {{64, 64}, {128, 128}, {256, 128}, {96, 40}, {14, 8}};
    static const int32_t page[] = {16, 64, 5};
    (void)g;
    int32_t i = below(d, 5), tokens = few(d, 60), decodes = below(d, 6), heads = between(d, 1, 9),
            kv_heads = between(d, 1, 3), pages = ONE_OF(d, page);
    bool fp8 = below(d, 2) == 0, interleaved = below(d, 3) == 0, norm = below(d, 2);
    snprintf(text, TEXT,
             "tokens=%d,decodes=%d,heads=%d,kv_heads=%d,head_dim=%d,dims=%d,kv_type=%s,page=%d,"
             "interleaved=%d,norm=%d,scaled=%d",
             tokens, decodes, heads, kv_heads, shape[i][0], shape[i][1], fp8 ? "fp8" : "bf16",
             pages, interleaved, norm, fp8 && below(d, 2));
}

static void draw_sample(draw *d, gpu_call *g, char *text)
{
    static const int32_t vocab[] = {1, 2, 31, 997, 8192, 8193, 20004},
                         spread[] = {0, 1, 10, 30, 500}, every[] = {0, 0, 0, 2, 7, 700};
    static const char *const mask[] = {"none", "one", "half", "borders", "all", "nothing", "each"};
    (void)g;
    int32_t rows = between(d, 1, 40), v = ONE_OF(d, vocab);
    const char *kind = below(d, 2) ? "any" : "each";
    int32_t s = ONE_OF(d, spread), e = ONE_OF(d, every);
    snprintf(text, TEXT, "rows=%d,vocab=%d,kind=%s,spread=%d,every=%d,mask=%s", rows, v, kind, s, e,
             ONE_OF(d, mask));
}

static void draw_rope(draw *d, gpu_call *g, char *text)
{
    static const int32_t shape[][2] = {{64, 64}, {128, 128}, {256, 128}, {96, 40}, {13, 8}};
    (void)g;
    int32_t i = below(d, 5), tokens = few(d, 90), heads = between(d, 1, 9),
            kv_heads = between(d, 1, 3);
    bool interleaved = below(d, 3) == 0, norm = below(d, 2), plus_one = below(d, 2) && norm;
    snprintf(
        text, TEXT,
        "tokens=%d,heads=%d,kv_heads=%d,head_dim=%d,dims=%d,interleaved=%d,norm=%d,plus_one=%d",
        tokens, heads, kv_heads, shape[i][0], shape[i][1], interleaved, norm, plus_one);
}

static void draw_rmsnorm(draw *d, gpu_call *g, char *text)
{
    static const int32_t hidden[] = {1, 24, 64, 128, 576, 1024, 1027, 5120};
    (void)g;
    int32_t tokens = few(d, 600), h = ONE_OF(d, hidden), rows = below(d, 4) ? 0 : few(d, 20);
    bool plus_one = below(d, 2), in_place = below(d, 3) == 0 && rows == 0;
    rows = rows < tokens ? rows : tokens;
    snprintf(text, TEXT, "tokens=%d,hidden=%d,rows=%d,plus_one=%d,in_place=%d", tokens, h, rows,
             plus_one, in_place);
}

static void draw_embed(draw *d, gpu_call *g, char *text)
{
    static const char *const type[] = {"bf16", "fp8",  "q8_0", "q4_0", "q4_1",
                                       "q5_0", "q5_1", "q4_k", "q6_k"};
    (void)g;
    int32_t tokens = few(d, 200), vocab = few(d, 300), hidden = 256 * between(d, 1, 2);
    const char *t = ONE_OF(d, type);
    bool scaled = below(d, 2), pooled = below(d, 3) == 0;
    snprintf(text, TEXT, "tokens=%d,type=%s,vocab=%d,hidden=%d,scaled=%d,pooled=%d", tokens, t,
             vocab, hidden, scaled, pooled);
}

static void draw_silu_mul(draw *d, gpu_call *g, char *text)
{
    (void)g;
    int32_t tokens = few(d, 90), n = few(d, 3000);
    const char *activation = below(d, 2) ? "gelu" : "silu";
    snprintf(text, TEXT, "tokens=%d,n=%d,activation=%s,spread=%d", tokens, n, activation,
             below(d, 3) ? 2 : 100);
}

static void draw_page_copy(draw *d, gpu_call *g, char *text)
{
    static const int32_t dim[] = {64, 128, 24, 13}, page[] = {16, 64, 5};
    (void)g;
    int32_t size = ONE_OF(d, page), tokens = between(d, 1, size), copies = few(d, 9),
            layers = between(d, 1, 4), heads = between(d, 1, 4), n = ONE_OF(d, dim);
    snprintf(text, TEXT, "copies=%d,tokens=%d,layers=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d",
             copies, tokens, layers, heads, n, below(d, 2) ? "bf16" : "fp8", size);
}

static void draw_moe_linear(draw *d, gpu_call *g, char *text)
{
    static const struct {
        const char *type;
        int32_t hidden, ffn;
    } shape[] = {{"bf16", 64, 96},  {"bf16", 42, 27},   {"q8_0", 160, 96},  {"q4_0", 96, 160},
                 {"q4_1", 160, 96}, {"q4_k", 256, 512}, {"q6_k", 512, 256}, {"fp8", 136, 40},
                 {"fp8", 264, 136}, {"fp8", 141, 135},  {"fp8", 40, 35}};
    static const char *const scales[] = {"none", "one", "blocks"};
    (void)g;
    int32_t i = below(d, (int32_t)(sizeof shape / sizeof *shape)), experts = between(d, 1, 6),
            tokens = few(d, 60), used = between(d, 1, experts);
    bool fp8 = strcmp(shape[i].type, "fp8") == 0, accumulate = below(d, 2), gelu = below(d, 2);
    int32_t padding = below(d, 2) ? below(d, tokens + 1) : 0;
    snprintf(text, TEXT,
             "tokens=%d,hidden=%d,ffn=%d,experts=%d,k=%d,type=%s,scales=%s,activation=%s,"
             "accumulate=%d,padding=%d",
             tokens, shape[i].hidden, shape[i].ffn, experts, used, shape[i].type,
             fp8 ? scales[below(d, 3)] : "none", gelu ? "gelu" : "silu", accumulate, padding);
}

/* ---- from the card ---- */

/* Near ties would choose another expert: the router's cases have fixed values. */
static bool is_left_out(const vt_op *op) { return strcmp(op->name, "moe_route") == 0; }

static bool is_flag(const vt_field *f) { return f->most == 1 && !f->words; }

/* A small case of the card with another value of its first field, which is the number of tokens,
 * rows, sequences or copies of every op, and one time in two with a flag turned over. Where the
 * card refuses what comes out, it is the card's case as it is. */
static bool draw_from_card(draw *d, const vt_op *op, gpu_call *g)
{
    enum { TRIES = 8 };
    vt_case card, *from = &card;
    vt_op_case(op, below(d, vt_op_n_cases(op)), from);
    for (int i = 0; from->bench && vt_op_case(op, i, from); i++)
        continue;
    vt_case *c = &g->c;
    for (int i = 0; i < TRIES; i++) {
        const vt_field *size = &op->fields[0];
        int32_t flag = below(d, 2) ? below(d, op->n_fields) : 0;
        *c = *from;
        c->p[0] = few(d, size->most && size->most < 40 ? (int32_t)size->most : 40);
        if (is_flag(&op->fields[flag]))
            c->p[flag] = !c->p[flag];
        if (!op->refuses || !op->refuses(c))
            break;
        *c = *from;
    }
    return !from->bench;
}

/* ---- a case ---- */

static const struct {
    const char *op;
    void (*draw)(draw *d, gpu_call *g, char *text); /* writes TEXT bytes at most */
} drawers[] = {{"attention_decode", draw_attention},
               {"attention_prefill", draw_attention},
               {"linear", draw_linear},
               {"kv_store", draw_kv_store},
               {"rope_store", draw_rope_store},
               {"page_copy", draw_page_copy},
               {"sample", draw_sample},
               {"rope", draw_rope},
               {"rmsnorm", draw_rmsnorm},
               {"add_rmsnorm", draw_rmsnorm},
               {"embed", draw_embed},
               {"silu_mul", draw_silu_mul},
               {"moe_linear", draw_moe_linear}};

vt_status gpu_random_call(const vt_op *op, uint64_t seed, int32_t number, gpu_call *out,
                          bool *found, vt_err *err)
{
    char text[TEXT];
    size_t i = 0, n = sizeof drawers / sizeof *drawers;
    while (i < n && strcmp(drawers[i].op, op->name) != 0)
        i++;
    draw d = {seed * 0x9e3779b97f4a7c15u + (uint64_t)number * 0xbf58476d1ce4e5b9u + i};
    *found = false;
    if (is_left_out(op) || op->n_operands == 0)
        return VT_OK;
    out->seed = case_random(&d.state);
    out->make = op->make_args;
    out->large = false;
    if (i == n || case_random(&d.state) % 4 == 0) {
        *found = draw_from_card(&d, op, out);
        snprintf(out->name, sizeof out->name, "random %d: %s, with %s=%lld", number, out->c.name,
                 op->fields[0].name, (long long)out->c.p[0]);
        return VT_OK;
    }
    *found = true;
    drawers[i].draw(&d, out, text);
    snprintf(out->name, sizeof out->name, "random %d: %s", number, text);
    return vt_case_from_text(op, text, &out->c, err);
}
