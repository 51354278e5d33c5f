/* What --deterministic promises of an op: a row has the same bits whatever else is in the call.
 *
 *   linear      all rows at once          against the first n of them, and against single ones
 *   attention   a whole prompt at once    against its chunks, and its positions decoded, alone and
 *                                         beside other sequences
 *
 * Random data; every comparison is of bits, with no tolerance. A difference says how many elements
 * differ and where the first is.
 *
 * usage: gpu_order [--tiny] [--pdl]      --tiny: sizes for the emulated GPU
 * TAP on stdout; exit 1 when a comparison fails, 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_quant.h"

enum { WORKSPACE = 192 << 20, PAGE = 16, MAX_BLOCKS = 24 };

typedef struct rig {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_lane op_lane;
    void *block[MAX_BLOCKS];
    int32_t n_blocks, number, failed;
    uint64_t random;
    bool tiny;
} rig;

static void must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    printf("Bail out! %s\n", err->message);
    exit(1);
}

static void check(rig *r, cu_result code, const char *what)
{
    vt_err err = {0};
    must(vt_cuda_check(r->cuda, code, what, &err), &err);
}

static cu_ptr address(const void *p) { return (cu_ptr)(uintptr_t)p; }

static void *device_block(rig *r, const void *from, size_t bytes)
{
    vt_err err = {0};
    void *p = NULL;
    if (r->lane.collect)
        return (void *)(uintptr_t)4096; /* never touched */
    if (r->n_blocks == MAX_BLOCKS)
        must(vt_fail(&err, VT_ERR_MEMORY, "more than %d blocks", MAX_BLOCKS), &err);
    must(vt_cuda_alloc(r->cuda, bytes + 256, &p, &err), &err);
    r->block[r->n_blocks++] = p;
    if (from)
        check(r, r->cuda->driver.copy_to_device(address(p), from, bytes, r->lane.stream), "upload");
    check(r, r->cuda->driver.stream_sync(r->lane.stream), "upload");
    return p;
}

/* Blocks from number `kept` on. */
static void release_blocks(rig *r, int32_t kept)
{
    while (r->n_blocks > kept)
        vt_cuda_free(r->cuda, r->block[--r->n_blocks]);
}

static uint32_t next32(rig *r) /* splitmix64 */
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

/* bf16 in (-1, 1), some of them small. */
static void *random_bf16(rig *r, size_t n)
{
    uint16_t *host = malloc(n * 2);
    for (size_t i = 0; host && !r->lane.collect && i < n; i++) {
        uint32_t bits = next32(r);
        float f = (float)(int32_t)bits * 0x1p-31f;
        host[i] = vt_f32_to_bf16(bits % 7 == 0 ? f * f * f : f);
    }
    void *there = device_block(r, host, n * 2);
    free(host);
    return there;
}

/* E4M3 below 2 in magnitude. */
static void *random_fp8(rig *r, size_t n)
{
    uint8_t *host = malloc(n);
    for (size_t i = 0; host && !r->lane.collect && i < n; i++)
        host[i] = (uint8_t)(next32(r) >> 24 & 0xbf);
    void *there = device_block(r, host, n);
    free(host);
    return there;
}

static void *random_f32(rig *r, size_t n)
{
    float *host = malloc(n * 4);
    for (size_t i = 0; host && !r->lane.collect && i < n; i++)
        host[i] = (float)(int32_t)next32(r) * 0x1p-31f;
    void *there = device_block(r, host, n * 4);
    free(host);
    return there;
}

static void *download(rig *r, const void *from, size_t bytes)
{
    void *host = calloc(bytes + 1, 1);
    if (r->lane.collect)
        return host;
    check(r, r->cuda->driver.copy_to_host(host, address(from), bytes, r->lane.stream), "download");
    check(r, r->cuda->driver.stream_sync(r->lane.stream), "running a kernel");
    return host;
}

static void run(rig *r, const vt_op *op, const void *args)
{
    vt_err err = {0};
    const vt_impl *impl = vt_op_select(op, VT_DEVICE_CUDA, VT_ISA_PORTABLE, args);
    if (!impl)
        must(vt_fail(&err, VT_ERR_UNSUPPORTED, "%s: not supported on CUDA", op->name), &err);
    must(impl->run(args, &r->op_lane), &r->lane.err);
}

/* Rows of `cols` elements of `size` bytes. Returns whether they are the same; tells where not. */
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
    if (r->lane.collect)
        return;
    printf("%s %d - %s\n", good ? "ok" : "not ok", ++r->number, what);
    fflush(stdout);
    r->failed += !good;
}

/* ---- linear ---- */

typedef struct linear_case {
    vt_dtype type;
    int32_t rows, cols;
    linear_epilogue epilogue;
    bool bias, residual, f32;
    float scale;
} linear_case;

static const linear_case kLinear[] = {
    {VT_BF16, 4096, 1024, LINEAR_NONE, false, false, false, 1},
    {VT_BF16, 1024, 2048, LINEAR_NONE, false, true, false, 1},
    {VT_BF16, 6144, 1024, LINEAR_SWIGLU, false, false, false, 1},
    {VT_BF16, 1024, 3072, LINEAR_NONE, false, true, false, 1},
    {VT_BF16, 16000, 1024, LINEAR_NONE, false, false, true, 1},
    {VT_BF16, 6144, 4096, LINEAR_NONE, true, false, false, 0.37f},
    {VT_BF16, 4096, 12288, LINEAR_NONE, false, true, false, 1},
    {VT_BF16, 8192, 4096, LINEAR_GEGLU, false, false, false, 1},
    {VT_BF16, 1152, 896, LINEAR_NONE, true, true, false, 1.7f},
    {VT_BF16, 576, 1544, LINEAR_NONE, true, false, true, 0.11f},
    {VT_BF16, 3072, 576, LINEAR_SWIGLU, false, false, false, 0.7f},
};
static const linear_case kTinyLinear[] = {
    {VT_BF16, 96, 264, LINEAR_NONE, true, true, false, 0.37f},
    {VT_BF16, 96, 1096, LINEAR_NONE, false, false, true, 1},
    {VT_BF16, 144, 512, LINEAR_SWIGLU, false, false, false, 1},
};

static vt_tensor rows_of(const vt_tensor *t, int64_t at, int64_t n)
{
    vt_tensor s = *t;
    s.data = (char *)s.data + at * t->row_stride * vt_dtype_get(t->dtype)->bytes;
    s.dim[0] = n;
    return s;
}

/* Rows [at, at + n) alone, against what they were among all. */
static bool linear_part(rig *r, const linear_args *all, const char *want, int64_t at, int64_t n)
{
    char what[64];
    const vt_tensor *y0 = all->y;
    size_t size = (size_t)vt_dtype_get(y0->dtype)->bytes, row = (size_t)y0->row_stride * size;
    vt_tensor x = rows_of(all->x, at, n), y = rows_of(y0, at, n),
              residual = all->residual ? rows_of(all->residual, at, n) : x;
    linear_args part = *all;
    part.x = &x;
    part.y = &y;
    part.residual = all->residual ? &residual : NULL;
    if (!r->lane.collect)
        check(r,
              r->cuda->driver.fill8(address(y0->data), 0xff, (size_t)y0->dim[0] * row,
                                    r->lane.stream),
              "poison");
    run(r, &linear_op, &part);
    void *got = download(r, y.data, (size_t)n * row);
    snprintf(what, sizeof what, "rows %lld .. %lld", (long long)at, (long long)(at + n - 1));
    bool good = same(what, got, want + (size_t)at * row, n, y0->dim[1], size);
    free(got);
    return good;
}

static void linear_rows(rig *r, const linear_case *c)
{
    static const int32_t some[] = {1,  2,  8,   9,   16,  17,  31,  33,  64,
                                   65, 96, 128, 129, 200, 256, 257, 400, 700};
    static const int32_t few[] = {1, 7, 9, 16, 17, 40, 65};
    int32_t n = r->tiny ? 100 : 1100, count = r->tiny ? 7 : 18;
    bool pair = c->epilogue != LINEAR_NONE, good = true;
    int64_t out = pair ? c->rows / 2 : c->rows;
    vt_tensor x = vt_tensor_2d(random_bf16(r, (size_t)n * (size_t)c->cols), VT_BF16, n, c->cols);
    vt_tensor part = vt_tensor_2d(random_bf16(r, (size_t)c->rows * (size_t)c->cols), VT_BF16,
                                  c->rows, c->cols);
    vt_tensor y = vt_tensor_2d(device_block(r, NULL, (size_t)(n * out) * 4),
                               c->f32 ? VT_F32 : VT_BF16, n, out);
    vt_tensor residual = vt_tensor_2d(random_bf16(r, (size_t)(n * out)), VT_BF16, n, out);
    vt_tensor bias = {.data = random_f32(r, (size_t)c->rows),
                      .dtype = VT_F32,
                      .rank = 1,
                      .row_stride = c->rows,
                      .dim = {c->rows}};
    vt_weight w = {.part = {&part},
                   .n_parts = 1,
                   .paired = pair,
                   .rows = c->rows,
                   .cols = c->cols,
                   .dtype = VT_BF16};
    linear_args a = {.x = &x,
                     .w = &w,
                     .bias = c->bias ? &bias : NULL,
                     .residual = c->residual ? &residual : NULL,
                     .y = &y,
                     .epilogue = c->epilogue,
                     .scale = c->scale};
    run(r, &linear_op, &a);
    char *want = download(r, y.data, (size_t)(n * out) * (c->f32 ? 4 : 2));
    for (int32_t i = 0; i < count; i++)
        good = linear_part(r, &a, want, 0, r->tiny ? few[i] : some[i]) && good;
    good = linear_part(r, &a, want, n - 1, 1) && good;
    good = linear_part(r, &a, want, n / 2, 20) && good;
    char name[96];
    snprintf(name, sizeof name, "linear %d x %d%s%s%s%s", c->rows, c->cols, pair ? " pair" : "",
             c->bias ? " bias" : "", c->residual ? " residual" : "", c->f32 ? " f32" : "");
    report(r, good, name);
    free(want);
    release_blocks(r, 0);
}

/* ---- attention ---- */

typedef struct attention_case {
    int32_t heads, kv_heads, head_dim, window, tokens;
    vt_dtype kv;
} attention_case;

static const attention_case kAttention[] = {
    {16, 8, 128, 0, 1200, VT_BF16},     {32, 8, 128, 0, 2100, VT_BF16},
    {9, 3, 64, 0, 1100, VT_BF16},       {40, 8, 128, 0, 700, VT_BF16},
    {8, 4, 256, 0, 1300, VT_BF16},      {8, 4, 256, 200, 900, VT_BF16},
    {16, 8, 128, 600, 1500, VT_BF16},   {24, 8, 96, 0, 1100, VT_BF16},
    {32, 8, 128, 0, 1200, VT_FP8_E4M3},
};
static const attention_case kTinyAttention[] = {
    {4, 2, 64, 0, 1100, VT_BF16},       {2, 1, 128, 600, 1300, VT_BF16},
    {3, 1, 32, 0, 1030, VT_BF16},       {4, 2, 32, 0, 1030, VT_FP8_E4M3},
    {2, 1, 64, 300, 1100, VT_FP8_E4M3},
};

/* One sequence's KV, and the queries and results of all its positions. */
typedef struct prompt {
    vt_tensor q, k, v, o;
    int32_t *pages;
    char *want; /* o of the whole prompt at once */
} prompt;

/* Pieces of the prompt: sequence s computes positions [begin[s], end[s]); the first n_decode are
 * decodes. */
typedef struct pieces {
    int32_t n, n_decode, begin[64], end[64];
} pieces;

/* The pieces' queries one after the other, as a step has them; o likewise. */
static void run_pieces(rig *r, const attention_case *c, const prompt *p, const pieces *s,
                       vt_tensor *o)
{
    int32_t kept = r->n_blocks, each = (c->tokens + PAGE - 1) / PAGE, tokens = 0;
    for (int32_t i = 0; i < s->n; i++)
        tokens += s->end[i] - s->begin[i];
    size_t ints = (size_t)(4 * tokens + 3 * (s->n + 1) + s->n * each);
    int32_t *a = calloc(ints, sizeof *a), *position = a + tokens, *seq_of = position + tokens,
            *q_start = seq_of + 2 * tokens, *kv_len = q_start + s->n + 1,
            *page_start = kv_len + s->n + 1, *ids = page_start + s->n + 1;
    int64_t width = (int64_t)c->heads * c->head_dim;
    vt_tensor q = vt_tensor_2d(device_block(r, NULL, (size_t)(tokens * width) * 2), VT_BF16, tokens,
                               width);
    *o = vt_tensor_2d(device_block(r, NULL, (size_t)(tokens * width) * 2), VT_BF16, tokens, width);
    for (int32_t i = 0, t = 0; i < s->n; i++) {
        int32_t n = s->end[i] - s->begin[i];
        if (!r->lane.collect)
            check(
                r,
                r->cuda->driver.copy_device(address(q.data) + (cu_ptr)(t * width * 2),
                                            address(p->q.data) + (cu_ptr)(s->begin[i] * width * 2),
                                            (size_t)(n * width) * 2, r->lane.stream),
                "queries");
        q_start[i] = t;
        page_start[i] = i * each;
        kv_len[i] = s->end[i];
        for (int32_t k = 0; k < n; k++, t++) {
            seq_of[t] = i;
            position[t] = s->begin[i] + k;
        }
        memcpy(ids + i * each, p->pages, (size_t)each * sizeof *ids);
    }
    q_start[s->n] = tokens;
    page_start[s->n] = s->n * each;
    vt_batch host = {.n_tokens = tokens,
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
    const int32_t *d = device_block(r, a, ints * sizeof *a);
    vt_batch device = host;
    device.token = d;
    device.position = d + (position - a);
    device.seq_of = d + (seq_of - a);
    device.slot = d + (host.slot - a);
    device.q_start = d + (q_start - a);
    device.kv_len = d + (kv_len - a);
    device.page_start = d + (page_start - a);
    device.page_ids = d + (ids - a);
    attention_plan_config config = {
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .few = attention_decode_shape_of(r->cuda, c->head_dim, ATTENTION_FEW),
        .sm_count = r->cuda->sm_count,
        .prefill_rows = attention_prefill_rows(r->cuda, c->head_dim, PAGE),
        .deterministic = true};
    r->lane.prefill_rows = config.prefill_rows;
    int32_t decodes = attention_decode_capacity(&config, s->n_decode, c->tokens),
            prefills = attention_prefill_capacity(&config, s->n, tokens), used[2];
    size_t n = attention_decode_plan_ints(decodes, s->n_decode) +
               (size_t)prefills * PREFILL_ITEM_INTS;
    int32_t *plan = calloc(n, sizeof *plan);
    attention_cuda_plan(&config, &host, plan, decodes,
                        plan + attention_decode_plan_ints(decodes, s->n_decode), prefills, &used[0],
                        &used[1]);
    r->lane.attention_plan = device_block(r, plan, n * sizeof *plan);
    r->lane.prefill_plan = r->lane.attention_plan +
                           attention_decode_plan_ints(decodes, s->n_decode);
    r->lane.decode_items = s->n_decode ? decodes : 0;
    r->lane.prefill_items = s->n > s->n_decode ? prefills : 0;
    attention_args args = {.batch = &device,
                           .q = &q,
                           .k_pool = &p->k,
                           .v_pool = &p->v,
                           .o = o,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .scale = 9 /
                                    sqrtf((float)c->head_dim), /* large scores: weights far apart */
                           .k_scale = 1,
                           .v_scale = 1,
                           .window = c->window};
    if (s->n_decode)
        run(r, &attention_decode_op, &args);
    if (s->n > s->n_decode)
        run(r, &attention_prefill_op, &args);
    char *got = download(r, o->data, (size_t)(tokens * width) * 2);
    o->data = got; /* on the host from here on */
    free(plan);
    free(a);
    release_blocks(r, kept);
}

static bool same_pieces(rig *r, const attention_case *c, const prompt *p, const pieces *s,
                        const char *name)
{
    vt_tensor o;
    size_t row = (size_t)c->heads * (size_t)c->head_dim * 2;
    bool good = true;
    run_pieces(r, c, p, s, &o);
    const char *got = o.data;
    for (int32_t i = 0; i < s->n; i++) {
        char what[96];
        int32_t n = s->end[i] - s->begin[i];
        snprintf(what, sizeof what, "%s, positions %d .. %d", name, s->begin[i], s->end[i] - 1);
        good = same(what, got, p->want + (size_t)s->begin[i] * row, n, (int64_t)row / 2, 2) && good;
        got += (size_t)n * row;
    }
    free(o.data);
    return good;
}

static bool chunks(rig *r, const attention_case *c, const prompt *p)
{
    bool good = true;
    for (int32_t size = 37; size < c->tokens; size *= 4) { /* all chunks of the prompt at once */
        pieces s = {0};
        for (int32_t at = 0; at < c->tokens && s.n < 64; at += size, s.n++) {
            s.begin[s.n] = at;
            s.end[s.n] = at + size < c->tokens ? at + size : c->tokens;
        }
        good = same_pieces(r, c, p, &s, "chunks") && good;
    }
    return good;
}

static bool decodes(rig *r, const attention_case *c, const prompt *p)
{
    pieces s = {.n = 64, .n_decode = 60};
    for (int32_t i = 0; i < s.n; i++) {
        s.begin[i] = i < 8 ? c->tokens - 1 - i : i * (c->tokens / 64);
        s.end[i] = s.begin[i] + (i < s.n_decode ? 1 : 1 + i % 4 * 5);
    }
    bool good = same_pieces(r, c, p, &s, "64 decodes");
    for (int32_t i = 0; i < 60; i += 13) {
        pieces one = {.n = 1, .n_decode = 1, .begin = {s.begin[i]}, .end = {s.end[i]}};
        good = same_pieces(r, c, p, &one, "a decode") && good;
    }
    return good;
}

static void attention_rows(rig *r, const attention_case *c)
{
    int32_t pages = (c->tokens + PAGE - 1) / PAGE;
    size_t pool = (size_t)pages * (size_t)c->kv_heads * PAGE * (size_t)c->head_dim;
    int64_t width = (int64_t)c->heads * c->head_dim;
    prompt p = {.pages = calloc((size_t)pages, sizeof *p.pages)};
    p.k = (vt_tensor){.data = c->kv == VT_BF16 ? random_bf16(r, pool) : random_fp8(r, pool),
                      .dtype = c->kv,
                      .rank = 4,
                      .row_stride = c->head_dim,
                      .dim = {pages, c->kv_heads, PAGE, c->head_dim}};
    p.v = p.k;
    p.v.data = c->kv == VT_BF16 ? random_bf16(r, pool) : random_fp8(r, pool);
    p.q = vt_tensor_2d(random_bf16(r, (size_t)(c->tokens * width)), VT_BF16, c->tokens, width);
    for (int32_t i = 0; i < pages; i++)
        p.pages[i] = pages - 1 - i;
    pieces all = {.n = 1, .end = {c->tokens}};
    run_pieces(r, c, &p, &all, &p.o);
    p.want = p.o.data;
    bool good = chunks(r, c, &p);
    good = decodes(r, c, &p) && good;
    char name[96];
    snprintf(name, sizeof name, "attention %d/%d heads of %d%s, window %d, %d tokens", c->heads,
             c->kv_heads, c->head_dim, c->kv == VT_BF16 ? "" : " FP8", c->window, c->tokens);
    report(r, good, name);
    free(p.want);
    free(p.pages);
    release_blocks(r, 0);
}

/* ---- main ---- */

static void open_lane(rig *r, bool pdl)
{
    vt_err err = {0};
    void *tickets;
    r->lane = (vt_cuda_lane){
        .cuda = r->cuda, .workspace_bytes = WORKSPACE, .pdl = pdl, .deterministic = true};
    check(r, r->cuda->driver.stream_create(&r->lane.stream, CU_STREAM_NON_BLOCKING, 0), "stream");
    must(vt_cuda_alloc(r->cuda, WORKSPACE, &r->lane.workspace, &err), &err);
    must(vt_cuda_alloc(r->cuda, CUDA_TICKETS * 4, &tickets, &err), &err);
    r->lane.tickets = tickets;
    check(r, r->cuda->driver.fill8(address(tickets), 0, CUDA_TICKETS * 4, r->lane.stream),
          "tickets");
    r->op_lane = (vt_lane){.device = VT_DEVICE_CUDA, .cuda = &r->lane};
}

static void run_all(rig *r)
{
    const linear_case *l = r->tiny ? kTinyLinear : kLinear;
    const attention_case *a = r->tiny ? kTinyAttention : kAttention;
    size_t n_linear = r->tiny ? sizeof kTinyLinear / sizeof *l : sizeof kLinear / sizeof *l;
    size_t n_attention = r->tiny ? sizeof kTinyAttention / sizeof *a
                                 : sizeof kAttention / sizeof *a;
    for (size_t i = 0; i < n_linear; i++)
        linear_rows(r, &l[i]);
    for (size_t i = 0; i < n_attention; i++)
        attention_rows(r, &a[i]);
}

int main(int argc, char **argv)
{
    static rig r;
    vt_err err = {0};
    bool pdl = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            r.tiny = true;
        } else if (strcmp(argv[i], "--pdl") == 0) {
            pdl = true;
        } else {
            fprintf(stderr, "gpu_order: '%s' found, expected --tiny or --pdl\n", argv[i]);
            return 2;
        }
    }
    if (vt_cuda_open(0, &r.cuda, &err) != VT_OK) {
        printf("1..0 # skip %s\n", err.message);
        return 77;
    }
    open_lane(&r, pdl);
    printf("# %s, %s, level %d\n", r.cuda->name, r.cuda->arch, r.cuda->level);
    r.lane.collect = true; /* all kernels are compiled at once */
    run_all(&r);
    r.lane.collect = false;
    must(vt_cuda_compile(r.cuda, NULL, NULL, &err), &err);
    run_all(&r);
    printf("1..%d\n# passed %d, failed %d\n", r.number, r.number - r.failed, r.failed);
    return r.failed != 0 || r.number == 0;
}
