/* Tests what --deterministic promises for an op: a row has the same bits whatever else is in the
 * call.
 *
 *   linear, head_linear
 *               all rows at once          against the first n of them, and against single rows;
 *                                         some rows' norm, made with them or before them
 *   attention   a whole prompt at once    against its chunks, and its positions decoded one or
 *                                         several at a time, alone and beside other sequences
 *
 * Each call runs on the row that a program would take for it. Data is random; bits are compared,
 * without tolerance. A message says how many elements differ and where the first one is.
 *
 * usage: gpu_order [--tiny] [--pdl] [--op linear|attention]      --tiny: sizes for the emulated GPU
 * TAP on stdout; exit 1 when a comparison fails, 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "ops/attention/attention.h"
#include "ops/calls/on_cuda.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/head_linear/head_linear.h"
#include "ops/linear/linear.h"
#include "ops/rmsnorm/rmsnorm.h"

enum { PAGE = 16, MOST_PIECES = 64 };

typedef struct rig {
    on_cuda_gpu gpu;
    int32_t number, failed;
    bool tiny;
} rig;

static void must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    printf("Bail out! %s\n", err->message);
    exit(1);
}

static void *must_have(void *p)
{
    if (!p) {
        printf("Bail out! out of host memory\n");
        exit(1);
    }
    return p;
}

/* Takes the row that a program would take, and runs it. */
static void run_choice(on_cuda *c)
{
    vt_err err = {0};
    const vt_impl *impl = on_cuda_choice(c);
    if (!impl)
        must(vt_fail(&err, VT_ERR_UNSUPPORTED, "%s: no deterministic row", c->op->name), &err);
    must(on_cuda_take(c, impl, &err), &err);
    must(on_cuda_run(c, &err), &err);
}

/* Compares rows of `cols` elements of `size` bytes. Returns whether they are equal; prints where
 * they are not. */
static bool same(const char *what, const void *got, const void *want, int64_t rows, int64_t cols,
                 size_t size)
{
    int64_t differ = 0, first = -1;
    for (int64_t i = 0; i < rows * cols; i++)
        if (memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                   size) != 0) {
            first = first < 0 ? i : first;
            differ++;
        }
    if (differ)
        printf("# %s: %lld of %lld elements differ, the first at row %lld, column %lld\n", what,
               (long long)differ, (long long)(rows * cols), (long long)(first / cols),
               (long long)(first % cols));
    return differ == 0;
}

static void report(rig *r, bool good, const char *what)
{
    printf("%s %d - %s\n", good ? "ok" : "not ok", ++r->number, what);
    fflush(stdout);
    r->failed += !good;
}

/* ---- products ---- */

static const char *const kLinear[] = {
    "tokens=1100,cols=1024,rows=4096",
    "tokens=1100,cols=2048,rows=1024,residual=1",
    "tokens=1100,cols=1024,rows=3072,rows2=3072,epilogue=swiglu",
    "tokens=1100,cols=3072,rows=1024,residual=1",
    "tokens=1100,cols=1024,rows=16000,logits=1",
    "tokens=1100,cols=4096,rows=6144,bias=1",
    "tokens=1100,cols=12288,rows=4096,residual=1",
    "tokens=1100,cols=4096,rows=4096,rows2=4096,epilogue=geglu",
    "tokens=1100,cols=896,rows=1152,bias=1,residual=1",
    "tokens=1100,cols=1544,rows=576,bias=1,logits=1",
    "tokens=1100,cols=576,rows=1536,rows2=1536,epilogue=swiglu",
    "tokens=40,cols=1024,rows=4096,norm=1",
    "tokens=40,cols=1024,rows=3072,rows2=3072,epilogue=swiglu,norm=1",
    "tokens=40,cols=2560,rows=6144,bias=1,norm=1",
    "tokens=40,cols=4096,rows=8192,rows2=8192,epilogue=geglu,norm=1",
    "tokens=300,type=q4_k|fp8|q8_0,cols=1024,rows=2048",
    NULL};
static const char *const kTinyLinear[] = {
    "tokens=100,cols=264,rows=96,bias=1,residual=1",
    "tokens=100,cols=1096,rows=96,logits=1",
    "tokens=100,cols=512,rows=72,rows2=72,epilogue=swiglu",
    "tokens=40,cols=64,rows=96,bias=1,norm=1",
    "tokens=40,cols=1088,rows=40,rows2=40,epilogue=swiglu,norm=1",
    "tokens=70,type=q4_k,cols=256,rows=96",
    NULL};
static const char *const kHeads[] = {"tokens=1100,heads=20,in=192,out=512,rest=64",
                                     "tokens=1100,heads=20,in=512,out=256", NULL};
static const char *const kTinyHeads[] = {"tokens=140,heads=2,in=72,out=136,rest=8", NULL};

/* Makes x of what it is the norm of, as a step with many tokens does. */
static void make_norm(rig *r, const linear_args *a)
{
    static on_cuda c;
    vt_tensor y = *a->x;
    rmsnorm_args n = {
        .x = a->before, .weight = a->norm, .y = &y, .eps = a->eps, .plus_one = a->plus_one};
    void *got;
    vt_err err = {0};
    must(on_cuda_make(&c, &r->gpu, &rmsnorm_op, &n, NULL, &err), &err);
    run_choice(&c);
    must(on_cuda_fetch(&c, &y, &got, &err), &err);
    for (int64_t t = 0; t < y.dim[0]; t++)
        for (int64_t k = 0; k < y.dim[1]; k++)
            ((float *)y.data)[t * y.row_stride + k] = vt_bf16_to_f32(
                ((const uint16_t *)got)[t * y.dim[1] + k]);
    free(got);
    on_cuda_release(&c);
}

/* Compares rows [at, at + n), computed alone, with the same rows computed among all. */
static bool linear_part(on_cuda *c, const vt_tensor *y, const char *want, int64_t at, int64_t n)
{
    char what[64];
    void *got;
    vt_err err = {0};
    on_cuda_window(c, at, n);
    run_choice(c);
    must(on_cuda_fetch(c, y, &got, &err), &err);
    const vt_tensor *d = &on_cuda_find(c, y)->device;
    size_t size = (size_t)vt_dtype_get(d->dtype)->bytes, row = (size_t)d->row_stride * size;
    snprintf(what, sizeof what, "rows %lld .. %lld", (long long)at, (long long)(at + n - 1));
    bool good = same(what, (char *)got + (size_t)at * row, want + (size_t)at * row, n, d->dim[1],
                     size);
    free(got);
    return good;
}

static void linear_rows(rig *r, const vt_op *op, const vt_case *text)
{
    static const int32_t some[] = {1,  2,  8,   9,   16,  17,  31,  33,  64,
                                   65, 96, 128, 129, 200, 256, 257, 400, 700};
    static const int32_t few[] = {1, 7, 9, 16, 17, 40, 65};
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs, count = r->tiny ? 7 : 18;
    vt_err err = {0};
    static on_cuda c;
    vt_arena_init(&arena, 0);
    void *args = must_have(op->make_args(text, 7, &arena, output, &n_outputs));
    must(on_cuda_round(op, args, &err), &err);
    if (op == &linear_op && ((const linear_args *)args)->before)
        make_norm(r, args);
    must(on_cuda_make(&c, &r->gpu, op, args, NULL, &err), &err);
    int64_t n = output[0]->dim[0];
    void *want;
    run_choice(&c);
    must(on_cuda_fetch(&c, output[0], &want, &err), &err);
    bool good = true;
    for (int32_t i = 0; i < count; i++)
        if ((r->tiny ? few[i] : some[i]) < n)
            good = linear_part(&c, output[0], want, 0, r->tiny ? few[i] : some[i]) && good;
    good = linear_part(&c, output[0], want, n - 1, 1) && good;
    good = linear_part(&c, output[0], want, n / 2, 20) && good;
    char name[192];
    snprintf(name, sizeof name, "%s %.160s", op->name, text->name);
    report(r, good, name);
    free(want);
    on_cuda_release(&c);
    vt_arena_release(&arena);
}

static void linear_cases(rig *r, const vt_op *op, const char *shape)
{
    static vt_case text[4];
    int32_t n;
    vt_err err = {0};
    must(vt_cases_from_text(op, shape, text, 4, &n, &err), &err);
    for (int32_t i = 0; i < n; i++)
        linear_rows(r, op, &text[i]);
}

/* ---- attention ---- */

typedef struct attention_case {
    int32_t heads, kv_heads, head_dim, window, tokens;
    vt_dtype kv;
    int32_t v_dim; /* of latents, whose values are the end of their keys; 0: other heads */
} attention_case;

static const attention_case kAttention[] = {
    {16, 8, 128, 0, 1200, VT_BF16},     {32, 8, 128, 0, 2100, VT_BF16},
    {9, 3, 64, 0, 1100, VT_BF16},       {40, 8, 128, 0, 700, VT_BF16},
    {8, 4, 256, 0, 1300, VT_BF16},      {8, 4, 256, 200, 900, VT_BF16},
    {16, 8, 128, 600, 1500, VT_BF16},   {24, 8, 96, 0, 1100, VT_BF16},
    {32, 8, 128, 0, 1200, VT_FP8_E4M3}, {16, 1, 576, 0, 900, VT_BF16, 512},
    {20, 1, 320, 0, 700, VT_BF16, 256}, {16, 2, 512, 0, 800, VT_BF16},
};
static const attention_case kTinyAttention[] = {
    {4, 2, 64, 0, 1100, VT_BF16},       {2, 1, 128, 600, 1300, VT_BF16},
    {3, 1, 32, 0, 1030, VT_BF16},       {4, 2, 32, 0, 1030, VT_FP8_E4M3},
    {2, 1, 64, 300, 1100, VT_FP8_E4M3}, {3, 1, 192, 0, 300, VT_BF16, 128},
    {2, 1, 384, 0, 220, VT_BF16},
};

/* One sequence's KV, and the queries of all its positions. */
typedef struct prompt {
    const attention_case *c;
    vt_arena arena;
    vt_tensor *q, *k, *v;
    char *want; /* o of the whole prompt at once, BF16 */
} prompt;

/* Pieces of the prompt: sequence s computes positions [begin[s], end[s]); the first n_decode are
 * decodes. */
typedef struct pieces {
    int32_t n, n_decode, begin[MOST_PIECES], end[MOST_PIECES];
} pieces;

/* Makes a batch of the pieces. All sequences have the prompt's pages, in falling order. */
static vt_batch *batch_of(const prompt *p, const pieces *s, vt_arena *arena)
{
    int32_t each = (p->c->tokens + PAGE - 1) / PAGE, tokens = 0;
    for (int32_t i = 0; i < s->n; i++)
        tokens += s->end[i] - s->begin[i];
    size_t ints = (size_t)(4 * tokens + 3 * (s->n + 1) + s->n * each);
    vt_batch *b = must_have(vt_arena_alloc(arena, 1, sizeof *b));
    int32_t *a = must_have(vt_arena_alloc(arena, ints, sizeof *a)), *position = a + tokens,
            *seq_of = position + tokens, *q_start = seq_of + 2 * tokens,
            *kv_len = q_start + s->n + 1, *page_start = kv_len + s->n + 1,
            *ids = page_start + s->n + 1;
    for (int32_t i = 0, t = 0; i < s->n; i++) {
        q_start[i] = t;
        kv_len[i] = s->end[i];
        page_start[i] = i * each;
        for (int32_t k = s->begin[i]; k < s->end[i]; k++, t++) {
            seq_of[t] = i;
            position[t] = k;
        }
        for (int32_t k = 0; k < each; k++)
            ids[i * each + k] = each - 1 - k;
    }
    q_start[s->n] = tokens;
    page_start[s->n] = s->n * each;
    *b = (vt_batch){.n_tokens = tokens,
                    .n_seqs = s->n,
                    .n_decode = s->n_decode,
                    .n_pages = s->n * each,
                    .page_size = PAGE,
                    .token = a,
                    .position = position,
                    .seq_of = seq_of,
                    .slot = seq_of + tokens,
                    .q_start = q_start,
                    .kv_len = kv_len,
                    .page_start = page_start,
                    .page_ids = ids};
    return b;
}

/* Runs one of the two ops on the pieces' queries, and copies the rows that it computes to `to`. */
static void run_op(rig *r, const vt_op *op, const attention_args *args, int32_t first, int32_t last,
                   char *to)
{
    static on_cuda c;
    void *got;
    vt_err err = {0};
    size_t row = (size_t)args->o->dim[1] * 2;
    if (first == last)
        return;
    must(on_cuda_make(&c, &r->gpu, op, args, NULL, &err), &err);
    run_choice(&c);
    must(on_cuda_fetch(&c, args->o, &got, &err), &err);
    memcpy(to + (size_t)first * row, (char *)got + (size_t)first * row,
           (size_t)(last - first) * row);
    free(got);
    on_cuda_release(&c);
}

static int64_t out_width(const attention_case *c)
{
    return (int64_t)c->heads * (c->v_dim ? c->v_dim : c->head_dim);
}

/* Computes o of the pieces, in the order of a step. The caller frees it. */
static char *run_pieces(rig *r, const prompt *p, const pieces *s)
{
    const attention_case *c = p->c;
    vt_arena arena;
    vt_arena_init(&arena, 0);
    vt_batch *b = batch_of(p, s, &arena);
    int64_t width = (int64_t)c->heads * c->head_dim, out = out_width(c);
    vt_tensor *q = must_have(case_tensor_2d(&arena, VT_BF16, b->n_tokens, width));
    for (int32_t t = 0; t < b->n_tokens; t++)
        memcpy((char *)q->data + (size_t)(t * width) * 2,
               (char *)p->q->data + (size_t)(b->position[t] * width) * 2, (size_t)width * 2);
    attention_args args = {.batch = b,
                           .q = q,
                           .k_pool = p->k,
                           .v_pool = p->v,
                           .o = must_have(case_tensor_2d(&arena, VT_BF16, b->n_tokens, out)),
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .scale = 9 /
                                    sqrtf((float)c->head_dim), /* large scores: weights far apart */
                           .k_scale = 1,
                           .v_scale = 1,
                           .v_dim = c->v_dim,
                           .window = c->window};
    char *o = must_have(calloc((size_t)(b->n_tokens * out), 2));
    int32_t decodes = b->q_start[b->n_decode];
    run_op(r, &attention_decode_op, &args, 0, decodes, o);
    run_op(r, &attention_prefill_op, &args, decodes, b->n_tokens, o);
    vt_arena_release(&arena);
    return o;
}

static bool same_pieces(rig *r, const prompt *p, const pieces *s, const char *name)
{
    int64_t width = out_width(p->c), at = 0;
    bool good = true;
    char *o = run_pieces(r, p, s);
    for (int32_t i = 0; i < s->n; i++) {
        char what[96];
        int32_t n = s->end[i] - s->begin[i];
        snprintf(what, sizeof what, "%s, positions %d .. %d", name, s->begin[i], s->end[i] - 1);
        good = same(what, o + (size_t)(at * width) * 2, p->want + (size_t)(s->begin[i] * width) * 2,
                    n, width, 2) &&
               good;
        at += n;
    }
    free(o);
    return good;
}

static bool chunks(rig *r, const prompt *p)
{
    bool good = true;
    for (int32_t size = 37; size < p->c->tokens; size *= 4) { /* all chunks of the prompt at once */
        pieces s = {0};
        for (int32_t at = 0; at < p->c->tokens && s.n < MOST_PIECES; at += size, s.n++) {
            s.begin[s.n] = at;
            s.end[s.n] = at + size < p->c->tokens ? at + size : p->c->tokens;
        }
        good = same_pieces(r, p, &s, "chunks") && good;
    }
    return good;
}

static bool decodes(rig *r, const prompt *p)
{
    pieces s = {.n = MOST_PIECES, .n_decode = 60};
    for (int32_t i = 0; i < s.n; i++) {
        s.begin[i] = i < 8 ? p->c->tokens - 1 - i : i * (p->c->tokens / MOST_PIECES);
        s.end[i] = s.begin[i] + (i < s.n_decode ? 1 : 1 + i % 4 * 5);
    }
    bool good = same_pieces(r, p, &s, "64 decodes");
    for (int32_t i = 0; i < 60; i += 13) {
        pieces one = {.n = 1, .n_decode = 1, .begin = {s.begin[i]}, .end = {s.end[i]}};
        good = same_pieces(r, p, &one, "a decode") && good;
    }
    return good;
}

/* Decodes of several tokens, and few tokens behind all others, whose KV is cut. */
static bool few_tokens(rig *r, const prompt *p)
{
    pieces s = {.n = 12, .n_decode = 12};
    for (int32_t i = 0; i < s.n; i++) {
        s.end[i] = i < 4 ? p->c->tokens - i : 8 + i * (p->c->tokens / 12);
        s.begin[i] = s.end[i] - 1 - i % VT_DECODE_MOST;
    }
    bool good = same_pieces(r, p, &s, "decodes of several tokens");
    for (int32_t n = 3; n < 50; n += 19) {
        pieces one = {.n = 1, .n_decode = n <= VT_DECODE_MOST};
        one.begin[0] = p->c->tokens - n;
        one.end[0] = p->c->tokens;
        good = same_pieces(r, p, &one, "the last tokens") && good;
    }
    return good;
}

static void attention_rows(rig *r, const attention_case *c)
{
    prompt p = {.c = c};
    uint64_t seed = 11;
    int64_t pages = (c->tokens + PAGE - 1) / PAGE, width = (int64_t)c->heads * c->head_dim;
    vt_arena *a = &p.arena;
    vt_arena_init(a, 0);
    vt_tensor *pool[2];
    for (int i = 0; i < 2; i++)
        pool[i] = must_have(case_fill(
            a, case_tensor_4d(a, c->kv, pages, c->kv_heads, PAGE, c->head_dim), 0, 0.5f, &seed));
    p.k = pool[0];
    p.v = c->v_dim ? pool[0] : pool[1];
    p.q = must_have(case_fill(a, case_tensor_2d(a, VT_BF16, c->tokens, width), 0, 0.5f, &seed));
    pieces all = {.n = 1, .end = {c->tokens}};
    p.want = run_pieces(r, &p, &all);
    bool good = chunks(r, &p);
    good = decodes(r, &p) && good;
    good = few_tokens(r, &p) && good;
    char name[96];
    snprintf(name, sizeof name, "attention %d/%d heads of %d%s, window %d, %d tokens", c->heads,
             c->kv_heads, c->head_dim, c->kv == VT_BF16 ? "" : " FP8", c->window, c->tokens);
    report(r, good, name);
    free(p.want);
    vt_arena_release(a);
}

/* ---- main ---- */

static void run_all(rig *r, const char *op)
{
    const attention_case *a = r->tiny ? kTinyAttention : kAttention;
    size_t n = r->tiny ? sizeof kTinyAttention / sizeof *a : sizeof kAttention / sizeof *a;
    bool linear = !op || strcmp(op, "linear") == 0, attention = !op || strcmp(op, "attention") == 0;
    for (const char *const *l = r->tiny ? kTinyLinear : kLinear; *l && linear; l++)
        linear_cases(r, &linear_op, *l);
    for (const char *const *l = r->tiny ? kTinyHeads : kHeads; *l && linear; l++)
        linear_cases(r, &head_linear_op, *l);
    for (size_t i = 0; i < n && attention; i++)
        attention_rows(r, &a[i]);
}

int main(int argc, char **argv)
{
    static rig r;
    vt_err err = {0};
    const char *op = NULL;
    on_cuda_options options = {.deterministic = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            r.tiny = true;
        } else if (strcmp(argv[i], "--pdl") == 0) {
            options.pdl = true;
        } else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc) {
            op = argv[++i];
        } else {
            fprintf(stderr, "gpu_order: '%s' found, expected --tiny, --pdl or --op\n", argv[i]);
            return 2;
        }
    }
    if (on_cuda_open(0, &options, &r.gpu, &err) != VT_OK) {
        printf("1..0 # skip %s\n", err.message);
        return 77;
    }
    const vt_cuda *c = r.gpu.cuda;
    printf("# %s, %s, level %d\n", c->name, c->arch, c->level);
    run_all(&r, op);
    printf("1..%d\n# passed %d, failed %d\n", r.number, r.number - r.failed, r.failed);
    on_cuda_close(&r.gpu);
    return r.failed != 0 || r.number == 0;
}
