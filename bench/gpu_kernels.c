/* The CUDA kernels alone, on the shapes of docs/performance.md: one JSON line a row, each with what
 * it read and computed by the op's own card. bench/gpu runs it and makes the table.
 *
 * Methods, named in every line:
 *   cold   the median of single launches between events, a 256 MiB fill before each. The fill runs
 *          longer than the launches take to arrive, so the host's share is hidden; an empty pair of
 *          events reads what the row `floor` says. The lines it leaves dirty in L2 are part of it.
 *   graph  the period of a call inside a CUDA graph of 48 equal calls: what a decode step pays.
 *          Inputs are warm, but a linear's weights are another copy in each call, so that they come
 *          from memory as in a real step.
 *   pdl    the same with programmatic dependent launch
 *   host   wall time of host code, median
 *
 *   gpu_kernels [--only SECTION,...] [--tiny] [--list] [--compile]
 *
 * --list prints the rows and --compile compiles their kernels (for sm_90a), both without a GPU;
 * --tiny takes shapes that an emulated GPU can run, whose figures mean nothing. The section `jit`
 * compiles every kernel of the chosen sections anew, cache or not, and reports the times. Exit
 * status: 0, 1 when a row failed, 2 wrong usage, 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/cublaslt.h"
#include "gpu_rig.h"
#include "ops/attention/attention_cuda.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_quant.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope_cuda.h"
#include "ops/sample/sample_cuda.h"
#include "ops/silu_mul/silu_mul.h"

enum { PAGE = 64, DIM = 128, KV_HEADS = 8 };

/* ---- the floor and the copy roof ---- */

static vt_status launch_nothing(bench *b, const work *w, int32_t call)
{
    (void)b, (void)w, (void)call;
    return VT_OK;
}

typedef struct host_block {
    void *from; /* pinned */
    size_t bytes;
} host_block;

static vt_status launch_copy(bench *b, const work *w, int32_t call)
{
    (void)call;
    if (b->lane.collect)
        return VT_OK;
    return vt_cuda_check(b->cuda,
                         b->cuda->driver.copy_device(rig_address(b->out), rig_address(b->in),
                                                     *(const size_t *)w->more, b->lane.stream),
                         "copy", &b->lane.err);
}

static vt_status launch_upload(bench *b, const work *w, int32_t call)
{
    (void)call;
    const host_block *u = w->more;
    if (b->lane.collect)
        return VT_OK;
    return vt_cuda_check(
        b->cuda,
        b->cuda->driver.copy_to_device(rig_address(b->out), u->from, u->bytes, b->lane.stream),
        "upload", &b->lane.err);
}

static void section_roof(bench *b)
{
    size_t bytes = b->tiny ? 1 << 20 : (size_t)512 << 20;
    work floor = {
        .name = "floor: an empty pair of events", .methods = COLD, .launch = launch_nothing};
    work copy = {.name = "copy 512 MiB",
                 .methods = COLD,
                 .launch = launch_copy,
                 .more = &bytes,
                 .cost = {.read = {.activations = (int64_t)bytes},
                          .write = {.activations = (int64_t)bytes}}};
    host_block host = {.bytes = b->tiny ? 1 << 20 : (size_t)256 << 20};
    work from_host = {.name = "copy 256 MiB from pinned memory",
                      .methods = COLD,
                      .launch = launch_upload,
                      .more = &host,
                      .cost = {.read = {.weights = (int64_t)host.bytes}}};
    vt_err err = {0};
    measure(b, &floor);
    measure(b, &copy);
    if (b->mode == MODE_RUN) {
        rig_must(vt_cuda_pinned(b->cuda, host.bytes, &host.from, &err), &err);
        for (size_t i = 0; i < host.bytes / 4; i++)
            ((uint32_t *)host.from)[i] = (uint32_t)i * 2654435761u;
    }
    measure(b, &from_host);
    if (host.from)
        vt_cuda_pinned_free(b->cuda, host.from);
}

/* ---- attention ---- */

typedef struct batch_arrays {
    vt_batch host, device;
    int32_t *ints; /* owns the host arrays */
} batch_arrays;

/* n sequences of q_len new tokens and kv_len in all; pages in random order. */
static batch_arrays make_batch(bench *b, int32_t n, int32_t q_len, int32_t kv_len)
{
    int32_t tokens = n * q_len, each = (kv_len + PAGE - 1) / PAGE, pages = n * each;
    int32_t *p = calloc((size_t)(4 * tokens + 3 * (n + 1) + pages), sizeof *p);
    uint64_t state = 7;
    if (!p) {
        fprintf(stderr, "gpu_kernels: out of memory\n");
        exit(1);
    }
    int32_t *token = p, *position = token + tokens, *seq_of = position + tokens,
            *slot = seq_of + tokens, *q_start = slot + tokens, *kv = q_start + n + 1,
            *page_start = kv + n + 1, *ids = page_start + n + 1;
    for (int32_t i = 0; i < pages; i++)
        ids[i] = i;
    for (int32_t i = pages - 1; i > 0; i--) {
        int32_t k = (int32_t)(rig_next64(&state) % (uint64_t)(i + 1)), t = ids[i];
        ids[i] = ids[k];
        ids[k] = t;
    }
    for (int32_t s = 0; s <= n; s++) {
        q_start[s] = s * q_len;
        page_start[s] = s * each;
        kv[s] = kv_len;
    }
    for (int32_t t = 0; t < tokens; t++) {
        int32_t s = seq_of[t] = t / q_len;
        position[t] = kv_len - q_len + t % q_len;
        slot[t] = ids[s * each + position[t] / PAGE] * PAGE + position[t] % PAGE;
    }
    batch_arrays out = {.ints = p,
                        .host = {.n_tokens = tokens,
                                 .n_seqs = n,
                                 .n_decode = q_len == 1 ? n : 0,
                                 .n_pages = pages,
                                 .page_size = PAGE,
                                 .token = token,
                                 .position = position,
                                 .seq_of = seq_of,
                                 .slot = slot,
                                 .q_start = q_start,
                                 .kv_len = kv,
                                 .page_start = page_start,
                                 .page_ids = ids}};
    out.device = out.host;
    size_t bytes = (size_t)(4 * tokens + 3 * (n + 1) + pages) * sizeof *p;
    const int32_t *d = upload(b, p, bytes);
    out.device.token = d;
    out.device.position = d + (position - p);
    out.device.seq_of = d + (seq_of - p);
    out.device.slot = d + (slot - p);
    out.device.q_start = d + (q_start - p);
    out.device.kv_len = d + (kv - p);
    out.device.page_start = d + (page_start - p);
    out.device.page_ids = d + (ids - p);
    return out;
}

static vt_tensor pool_of(void *data, int32_t pages, vt_dtype kv)
{
    return (vt_tensor){.data = data,
                       .dtype = kv,
                       .rank = 4,
                       .row_stride = DIM,
                       .dim = {pages, KV_HEADS, PAGE, DIM}};
}

/* The first `shared` tokens of every sequence become those of the first one, but for a page they
 * are a part of. */
static void share_pages(bench *b, batch_arrays *batch, int32_t shared)
{
    const vt_batch *h = &batch->host;
    int32_t *ids = (int32_t *)(uintptr_t)h->page_ids;
    for (int32_t s = 1; s < h->n_seqs; s++)
        memcpy(ids + h->page_start[s], ids, (size_t)(shared / PAGE) * sizeof *ids);
    if (shared > 0)
        batch->device.page_ids = upload(b, ids, (size_t)h->n_pages * sizeof *ids);
}

static attention_plan_config plan_config(const bench *b, int32_t heads)
{
    return (attention_plan_config){.heads = heads,
                                   .kv_heads = KV_HEADS,
                                   .few = attention_decode_shape_of(b->cuda, DIM, ATTENTION_FEW),
                                   .sm_count = b->cuda->sm_count,
                                   .prefill_rows = attention_prefill_rows(b->cuda, DIM, PAGE),
                                   .deterministic = b->lane.deterministic};
}

/* The plan of the batch into the lane, as a step's block has it. */
static void set_plan(bench *b, int32_t heads, int32_t shared_rows, const vt_batch *host)
{
    attention_plan_config c = plan_config(b, heads);
    c.shared_rows = shared_rows;
    int32_t decode = attention_decode_capacity(&c, host->n_decode, 1 << 20),
            prefill = attention_prefill_capacity(&c, host->n_seqs, host->n_tokens), used[2];
    size_t n_decode = attention_decode_plan_ints(decode, host->n_decode),
           n = n_decode + (size_t)prefill * PREFILL_ITEM_INTS;
    int32_t *plan = calloc(n, sizeof *plan);
    if (!plan)
        exit(1);
    attention_cuda_plan(&c, host, plan, decode, plan + n_decode, prefill, &used[0], &used[1]);
    b->lane.prefill_rows = c.prefill_rows;
    b->lane.attention_plan = upload(b, plan, n * sizeof *plan);
    b->lane.prefill_plan = b->lane.attention_plan + n_decode;
    b->lane.decode_items = host->n_decode ? decode : 0;
    b->lane.decodes = host->n_decode;
    b->lane.decode_shares = attention_may_share(&c, host->n_decode);
    b->lane.prefill_items = host->n_decode ? 0 : prefill;
    free(plan);
}

/* `shared` tokens in front of all sequences are the same; `apart`: each reads them for itself. */
typedef struct attention_shape {
    int32_t heads, n, kv_len, shared;
    bool apart, fp8; /* fp8: KV in E4M3 */
} attention_shape;

static void attention_row(bench *b, const vt_op *op, const attention_shape *shape, int methods)
{
    char name[96], common[32] = "";
    int32_t heads = shape->heads, n = shape->n, kv_len = shape->kv_len, shared = shape->shared;
    if (shared > 0)
        snprintf(common, sizeof common, ", %d shared%s", shared, shape->apart ? ", apart" : "");
    vt_dtype kv = shape->fp8 ? VT_FP8_E4M3 : VT_BF16;
    snprintf(name, sizeof name, "%s%s %d/%d %d x %d%s",
             op == &attention_decode_op ? "decode" : "prefill", shape->fp8 ? " fp8" : "", heads,
             KV_HEADS, n, kv_len, common);
    n = pick(b, n, n < 5 ? n : 5);
    shared = pick(b, shared, shared < 64 ? shared : 64);
    kv_len = pick(b, kv_len, kv_len < 70 ? kv_len : 70);
    int32_t q_len = op == &attention_decode_op ? 1 : kv_len;
    batch_arrays batch = make_batch(b, n, q_len, kv_len);
    share_pages(b, &batch, shared);
    int64_t rows = (int64_t)n * q_len, width = (int64_t)heads * DIM;
    size_t pool = (size_t)batch.host.n_pages * KV_HEADS * PAGE * DIM *
                  (size_t)vt_dtype_get(kv)->bytes;
    vt_tensor q = in_2d(b, VT_BF16, rows, width), o = out_2d(b, VT_BF16, rows, width);
    vt_tensor k = pool_of(take_in(b, pool), batch.host.n_pages, kv),
              v = pool_of(take_in(b, pool), batch.host.n_pages, kv);
    attention_args args = {.batch = &batch.host,
                           .q = &q,
                           .k_pool = &k,
                           .v_pool = &v,
                           .o = &o,
                           .heads = heads,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .scale = 1 / sqrtf(DIM),
                           .k_scale = 1,
                           .v_scale = 1};
    work w = row_of(op, &args, methods);
    args.batch = &batch.device;
    memcpy(w.name, name, sizeof name);
    set_plan(b, heads, shape->apart ? 0 : 1, &batch.host);
    measure(b, &w);
    free(batch.ints);
}

static void section_prefill(bench *b)
{
    static const int32_t row[][3] = {{32, 1, 2048}, {32, 1, 4096}, {32, 1, 8192},
                                     {32, 8, 2048}, {32, 64, 256}, {16, 1, 4096},
                                     {16, 1, 8192}, {16, 8, 2048}, {16, 64, 256}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        attention_row(b, &attention_prefill_op,
                      &(attention_shape){.heads = row[i][0], .n = row[i][1], .kv_len = row[i][2]},
                      COLD);
    static const int32_t fp8[][3] = {{32, 1, 8192}, {32, 8, 2048}, {32, 64, 256}};
    for (size_t i = 0; i < sizeof fp8 / sizeof *fp8; i++)
        attention_row(b, &attention_prefill_op,
                      &(attention_shape){
                          .heads = fp8[i][0], .n = fp8[i][1], .kv_len = fp8[i][2], .fp8 = true},
                      COLD);
}

static void section_decode(bench *b)
{
    static const int32_t row[][3] = {
        {32, 1, 1024},   {32, 1, 4096},   {32, 1, 32768}, {32, 8, 4096},  {32, 32, 4096},
        {32, 64, 2048},  {32, 128, 1024}, {32, 256, 512}, {16, 1, 1024},  {16, 32, 4096},
        {16, 128, 1024}, {16, 256, 512},  {16, 256, 896}, {40, 32, 4096}, {40, 256, 512}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        attention_row(b, &attention_decode_op,
                      &(attention_shape){.heads = row[i][0], .n = row[i][1], .kv_len = row[i][2]},
                      row[i][1] == 1 ? SMALL : COLD);
    static const int32_t fp8[][3] = {{32, 1, 4096},  {32, 1, 32768}, {32, 32, 4096},
                                     {32, 64, 2048}, {32, 256, 512}, {16, 256, 512},
                                     {16, 32, 4096}, {40, 256, 512}};
    for (size_t i = 0; i < sizeof fp8 / sizeof *fp8; i++)
        attention_row(b, &attention_decode_op,
                      &(attention_shape){
                          .heads = fp8[i][0], .n = fp8[i][1], .kv_len = fp8[i][2], .fp8 = true},
                      fp8[i][1] == 1 ? SMALL : COLD);
}

/* Decodes with a common beginning, read once and read for each: by the kernel that has no code for
 * the former. */
static void section_shared(bench *b)
{
    static const int32_t row[][4] = {
        {32, 5, 8192, 8064},  {32, 8, 1024, 896},   {32, 8, 8192, 8064},  {32, 64, 512, 384},
        {32, 64, 2048, 1920}, {32, 256, 1024, 896}, {16, 64, 2048, 1920}, {40, 64, 2048, 1024}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int apart = 0; apart < 2; apart++)
            attention_row(b, &attention_decode_op,
                          &(attention_shape){.heads = row[i][0],
                                             .n = row[i][1],
                                             .kv_len = row[i][2],
                                             .shared = row[i][3],
                                             .apart = apart},
                          COLD);
}

/* ---- row kernels: hidden 4096, intermediate 12288, 32 + 8 heads of 128 ---- */

static int row_methods(int32_t tokens) { return tokens <= 256 ? SMALL : COLD; }

static void norm_row(bench *b, const char *what, int32_t tokens, int32_t heads, bool add)
{
    int32_t hidden = heads ? DIM : pick(b, 4096, 256),
            rows = pick(b, tokens, tokens < 5 ? tokens : 5) * (heads ? heads : 1);
    vt_tensor weight = in_1d(b, hidden), x = in_2d(b, VT_BF16, rows, hidden);
    vt_tensor r = out_2d(b, VT_BF16, rows, hidden), y = out_2d(b, VT_BF16, rows, hidden);
    rmsnorm_args args = {.x = heads ? &y : &x,
                         .weight = &weight,
                         .residual = add ? &r : NULL,
                         .y = &y,
                         .eps = 1e-6f};
    work w = row_of(add ? &add_rmsnorm_op : &rmsnorm_op, &args, row_methods(tokens));
    snprintf(w.name, sizeof w.name, "%s %d", what, tokens);
    w.restore.to = add ? r.data : y.data; /* in place: the heads, the residual */
    w.restore.from = x.data;
    w.restore.bytes = add || heads ? (size_t)vt_tensor_bytes(&x) : 0;
    measure(b, &w);
}

static vt_status launch_rope_store(bench *b, const work *w, int32_t call)
{
    (void)call;
    return rope_store_cuda_run(w->args, w->more, &b->op_lane);
}

/* rope alone, with the norm of q and k before it, and with the store behind it too. */
static void rope_row(bench *b, const char *what, int32_t tokens, bool norm, bool store)
{
    enum { HEADS = 32, POSITIONS = 2048 };
    int32_t n = pick(b, tokens, tokens < 5 ? tokens : 5);
    batch_arrays batch = make_batch(b, 1, n, n < POSITIONS ? POSITIONS : n);
    int64_t width = (HEADS + 2 * KV_HEADS) * DIM;
    vt_tensor from = in_2d(b, VT_BF16, n, width), to = out_2d(b, VT_BF16, n, width);
    vt_tensor q = to, k = to, v = to, table = in_2d(b, VT_F32, n < POSITIONS ? POSITIONS : n, DIM);
    vt_tensor q_norm = in_1d(b, DIM), k_norm = in_1d(b, DIM);
    q.dim[1] = HEADS * DIM;
    k.dim[1] = v.dim[1] = KV_HEADS * DIM;
    k.data = (char *)to.data + HEADS * DIM * 2;
    v.data = (char *)k.data + KV_HEADS * DIM * 2;
    size_t pool = (size_t)batch.host.n_pages * KV_HEADS * PAGE * DIM * 2;
    vt_tensor k_pool = pool_of(take_out(b, pool), batch.host.n_pages, VT_BF16),
              v_pool = pool_of(take_out(b, pool), batch.host.n_pages, VT_BF16);
    rope_args rope = {.batch = &batch.device,
                      .q = &q,
                      .k = &k,
                      .head_dim = DIM,
                      .dims = DIM,
                      .cos_sin = &table,
                      .q_norm = norm ? &q_norm : NULL,
                      .k_norm = norm ? &k_norm : NULL,
                      .eps = 1e-6f};
    kv_store_args kv = {.batch = &batch.device,
                        .k = &k,
                        .v = &v,
                        .k_pool = &k_pool,
                        .v_pool = &v_pool,
                        .k_scale = 1,
                        .v_scale = 1};
    work w = row_of(&rope_op, &rope, row_methods(tokens));
    snprintf(w.name, sizeof w.name, "%s %d", what, tokens);
    if (store) { /* k is read once, and written to its page alone */
        vt_cost both = kv_store_op.cost(&kv);
        vt_cost_add(&w.cost, &both);
        w.cost.read.activations -= vt_tensor_bytes(&k);
        w.cost.write.activations -= vt_tensor_bytes(&k);
        w.launch = launch_rope_store;
        w.more = &kv;
    }
    w.restore.to = to.data;
    w.restore.from = from.data;
    w.restore.bytes = (size_t)vt_tensor_bytes(&from);
    measure(b, &w);
    free(batch.ints);
}

static void silu_row(bench *b, int32_t tokens)
{
    int32_t n = pick(b, tokens, tokens < 5 ? tokens : 5), inner = pick(b, 12288, 256);
    vt_tensor x = in_2d(b, VT_BF16, n, 2 * inner), y = out_2d(b, VT_BF16, n, inner);
    silu_mul_args args = {.x = &x, .y = &y, .activation = VT_ACT_SILU};
    work w = row_of(&silu_mul_op, &args, row_methods(tokens));
    snprintf(w.name, sizeof w.name, "silu %d", tokens);
    measure(b, &w);
}

static void index_row(bench *b, int32_t tokens)
{
    int32_t n = pick(b, tokens, tokens < 5 ? tokens : 5), vocab = pick(b, 151936, 1000),
            hidden = pick(b, 4096, 256);
    int32_t *id = calloc((size_t)n, sizeof *id);
    uint64_t state = 3;
    if (!id)
        exit(1);
    for (int32_t i = 0; i < n; i++)
        id[i] = (int32_t)(rig_next64(&state) % (uint64_t)vocab);
    vt_tensor table = in_2d(b, VT_BF16, vocab, hidden), y = out_2d(b, VT_BF16, n, hidden);
    embed_args args = {
        .table = &table, .tokens = upload(b, id, (size_t)n * sizeof *id), .y = &y, .scale = 1};
    work w = row_of(&embed_op, &args, row_methods(tokens));
    snprintf(w.name, sizeof w.name, "index 4096 %d", tokens);
    measure(b, &w);
    free(id);
}

static void store_row(bench *b, int32_t tokens, bool random)
{
    int32_t n = pick(b, tokens, tokens < 5 ? tokens : 5), page = (n + PAGE - 1) / PAGE;
    batch_arrays batch = make_batch(b, 1, n, page * PAGE);
    int32_t *slot = (int32_t *)(uintptr_t)batch.host.slot;
    uint64_t state = 5;
    for (int32_t i = 0; i < n; i++)
        slot[i] = i;
    for (int32_t i = n - 1; random && i > 0; i--) {
        int32_t k = (int32_t)(rig_next64(&state) % (uint64_t)(i + 1)), t = slot[i];
        slot[i] = slot[k];
        slot[k] = t;
    }
    batch.device.slot = upload(b, slot, (size_t)n * sizeof *slot);
    size_t pool = (size_t)page * KV_HEADS * PAGE * DIM * 2;
    vt_tensor k = in_2d(b, VT_BF16, n, KV_HEADS * DIM), v = in_2d(b, VT_BF16, n, KV_HEADS * DIM);
    vt_tensor k_pool = pool_of(take_out(b, pool), page, VT_BF16),
              v_pool = pool_of(take_out(b, pool), page, VT_BF16);
    kv_store_args args = {.batch = &batch.device,
                          .k = &k,
                          .v = &v,
                          .k_pool = &k_pool,
                          .v_pool = &v_pool,
                          .k_scale = 1,
                          .v_scale = 1};
    work w = row_of(&kv_store_op, &args, row_methods(tokens));
    snprintf(w.name, sizeof w.name, "store%s %d", random ? " random" : "", tokens);
    measure(b, &w);
    free(batch.ints);
}

static void section_rows(bench *b)
{
    static const int32_t tokens[] = {1, 256, 16384};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        int32_t t = tokens[i];
        norm_row(b, "rmsnorm", t, 0, false);
        norm_row(b, "add+rmsnorm", t, 0, true);
        norm_row(b, "q-head norm", t, 32, false);
        rope_row(b, "rope", t, false, false);
        rope_row(b, "qk-norm+rope", t, true, false);
        rope_row(b, "qk-norm+rope+store", t, true, true);
        silu_row(b, t);
        index_row(b, t);
        store_row(b, t, false);
        store_row(b, t, true);
    }
}

/* ---- sampling ---- */

typedef struct sampling_kind {
    const char *name;
    float temperature, top_p;
    int32_t top_k, n_top;
    int32_t allowed; /* one id in so many; 0: no mask */
} sampling_kind;

static void sample_rows(bench *b, int32_t rows, const sampling_kind *kind)
{
    char name[96];
    snprintf(name, sizeof name, "%s %d", kind->name, rows);
    rows = pick(b, rows, rows < 3 ? rows : 3);
    int32_t vocab = pick(b, 151936, 1000);
    vt_tensor from = in_2d(b, VT_F32, rows, vocab), logits = out_2d(b, VT_F32, rows, vocab);
    vt_tensor token = out_2d(b, VT_I32, 1, rows), logprob = out_2d(b, VT_F32, 1, rows);
    vt_tensor top_id = out_2d(b, VT_I32, rows, VT_MAX_TOP_LOGPROBS),
              top_logprob = out_2d(b, VT_F32, rows, VT_MAX_TOP_LOGPROBS);
    vt_sample_row *row = calloc((size_t)rows, sizeof *row);
    sample_cuda_row *packed = calloc((size_t)rows, sizeof *packed);
    size_t words = (size_t)vt_ceil_div(vocab, 32); /* a mask for each row */
    uint32_t *mask = calloc((size_t)rows * words, 4), *masks = calloc((size_t)rows * words, 4);
    if (!row || !packed || !mask || !masks)
        exit(1);
    for (size_t i = 0; kind->allowed && i < (size_t)rows * words * 32; i += (size_t)kind->allowed)
        mask[i / 32] |= 1u << i % 32;
    for (int32_t i = 0; i < rows; i++)
        row[i] = (vt_sample_row){.temperature = kind->temperature,
                                 .top_p = kind->top_p,
                                 .top_k = kind->top_k,
                                 .repetition_penalty = 1,
                                 .n_top = kind->n_top,
                                 .seed = 1000 + (uint64_t)i,
                                 .position = i,
                                 .pool_slot = -1,
                                 .target = -1,
                                 .pending_slot = -1,
                                 .mask = kind->allowed ? mask + (size_t)i * words : NULL};
    sample_cuda_pack(row, rows, vocab, packed, NULL, NULL, masks);
    b->lane.sample_masks = upload(b, masks, (size_t)rows * words * 4);
    b->lane.sample_rows = upload(b, packed, (size_t)rows * sizeof *packed);
    const vt_sample_row *const first = row;
    sample_args args = {.logits = &logits,
                        .row = &first,
                        .token = &token,
                        .logprob = &logprob,
                        .top_id = &top_id,
                        .top_logprob = &top_logprob};
    work w = row_of(&sample_op, &args, SMALL);
    memcpy(w.name, name, sizeof name);
    w.restore.to = logits.data;
    w.restore.from = from.data;
    w.restore.bytes = (size_t)vt_tensor_bytes(&from);
    measure(b, &w);
    free(masks);
    free(mask);
    free(packed);
    free(row);
}

static void section_sampling(bench *b)
{
    /* The logits spread as random ones do: at temperature 0.6 a nucleus of 0.9 has tens of
     * thousands of ids, at 0.06 a dozen. */
    static const int32_t rows[] = {1, 32, 256};
    static const sampling_kind kind[] = {{"sample", 0.6f, 0.9f, 50, -1, 0},
                                         {"greedy", 0, 1, 0, -1, 0},
                                         {"sample sharp top-p", 0.06f, 0.9f, 0, -1, 0},
                                         {"sample flat top-p", 0.6f, 0.9f, 0, -1, 0},
                                         {"sample all", 0.6f, 1, 0, -1, 0},
                                         {"log-probabilities", 0, 1, 0, 5, 0},
                                         {"sample allowed half", 0.6f, 0.9f, 50, -1, 2},
                                         {"sample allowed few", 0.6f, 0.9f, 50, -1, 10000},
                                         {"greedy allowed few", 0, 1, 0, -1, 10000}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            sample_rows(b, rows[i], &kind[k]);
}

/* ---- linear ---- */

typedef struct layer {
    const char *name;
    int32_t rows, cols;
    linear_epilogue epilogue;
    bool residual, head;
} layer;

static const layer layers[] = {
    {"0.6B qkv", 4096, 1024, LINEAR_NONE, false, false},
    {"0.6B o", 1024, 2048, LINEAR_NONE, true, false},
    {"0.6B gate+up", 6144, 1024, LINEAR_SWIGLU, false, false},
    {"0.6B down", 1024, 3072, LINEAR_NONE, true, false},
    {"0.6B head", 151936, 1024, LINEAR_NONE, false, true},
    {"8B qkv", 6144, 4096, LINEAR_NONE, false, false},
    {"8B o", 4096, 4096, LINEAR_NONE, true, false},
    {"8B gate+up", 24576, 4096, LINEAR_SWIGLU, false, false},
    {"8B down", 4096, 12288, LINEAR_NONE, true, false},
    {"8B head", 151936, 4096, LINEAR_NONE, false, true},
};

/* gate+up with its activation and o, down with their residual, as the model runs them; `of` says on
 * what. */
static void linear_row_of(bench *b, const layer *l, vt_dtype type, int32_t tokens, int methods,
                          const char *of)
{
    int32_t m = pick(b, tokens, tokens < 20 ? tokens : 20), cols = pick(b, l->cols, 256),
            rows = pick(b, l->rows, 320);
    bool pair = l->epilogue != LINEAR_NONE;
    bool tiles = linear_quant_type(type, cols);
    size_t bytes = tiles ? linear_quant_matrix_bytes(type, rows, cols, pair)
                         : (size_t)rows * (size_t)cols * 2;
    vt_tensor x = in_2d(b, VT_BF16, m, cols);
    vt_tensor y = out_2d(b, l->head ? VT_F32 : VT_BF16, m, pair ? rows / 2 : rows);
    vt_tensor residual = in_2d(b, VT_BF16, m, rows);
    b->in_used = vt_round_up(b->in_used, 1 << 16);
    size_t room = b->mode == MODE_RUN ? (b->in_bytes - b->in_used) / vt_round_up(bytes, 256) : 1;
    vt_tensor part = vt_tensor_2d(take_in(b, bytes), type, rows, cols);
    vt_weight weight = {.part = {&part},
                        .n_parts = 1,
                        .paired = pair,
                        .rows = rows,
                        .cols = cols,
                        .dtype = type,
                        .packed_bytes = tiles ? bytes : 0,
                        .packed_for = tiles ? &linear_cuda_impl : NULL};
    linear_args args = {.x = &x,
                        .w = &weight,
                        .residual = l->residual ? &residual : NULL,
                        .y = &y,
                        .epilogue = l->epilogue,
                        .scale = 1};
    work w = row_of(&linear_op, &args, methods);
    snprintf(w.name, sizeof w.name, "linear %s%s%s %d%s", l->name, tiles ? " " : "",
             tiles ? vt_dtype_get(type)->name : "", tokens, of);
    w.rotate = &part.data;
    w.rotate_base = part.data;
    w.rotate_stride = vt_round_up(bytes, 256);
    w.n_rotate = room > (size_t)b->calls ? b->calls : room > 1 ? (int32_t)room : 1;
    measure(b, &w);
}

static void linear_row(bench *b, const layer *l, vt_dtype type, int32_t tokens, int methods)
{
    linear_row_of(b, l, type, tokens, methods, "");
}

/* Kernels of our own beside cuBLASLt on all shapes, which the choice in linear_cublaslt.c is from.
 * The library has no pairs: gate+up runs without its activation there, and `silu` in the section
 * rows is what would come on top. */
static void section_cublaslt(bench *b)
{
    static const int32_t tokens[] = {32,  64,  96,   128,  192,  256, 384,
                                     512, 768, 1024, 2048, 4096, 8192};
    static const layer more[] = {
        {"14B qkv", 7168, 5120, LINEAR_NONE, false, false},
        {"14B o", 5120, 5120, LINEAR_NONE, true, false},
        {"14B gate+up", 34816, 5120, LINEAR_SWIGLU, false, false},
        {"14B down", 5120, 17408, LINEAR_NONE, true, false},
    };
    enum { FEW = sizeof layers / sizeof *layers, ALL = FEW + sizeof more / sizeof *more };
    char why[160];
    int32_t use = b->cuda->cublaslt_use;
    bool library = b->mode != MODE_RUN || vt_cublaslt_open(b->cuda, why, sizeof why) > 0;
    for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
        for (size_t i = 0; i < ALL; i++) {
            layer l = i < FEW ? layers[i] : more[i - FEW];
            int methods = tokens[k] <= 256 ? COLD | PDL : COLD;
            if (l.head && tokens[k] > 256)
                continue;
            b->cuda->cublaslt_use = CUBLASLT_NEVER;
            linear_row_of(b, &l, VT_BF16, tokens[k], methods, " own");
            b->cuda->cublaslt_use = CUBLASLT_ALL;
            l.epilogue = LINEAR_NONE;
            if (library)
                linear_row_of(b, &l, VT_BF16, tokens[k], methods, " cublasLt");
        }
    b->cuda->cublaslt_use = use;
}

static void section_gemm(bench *b)
{
    static const int32_t tokens[] = {256, 2048, 8192};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
            if (!layers[i].head || k == 0) /* no step wants the logits of 2048 rows */
                linear_row(b, &layers[i], VT_BF16, tokens[k], COLD);
}

static void section_gemv(bench *b)
{
    static const int32_t tokens[] = {1, 8, 64};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
            linear_row(b, &layers[i], VT_BF16, tokens[k], SMALL);
}

/* Weights in the tiles of linear_quant.h. Their bits are random, scales too, which changes no time.
 * */
static void section_quant(bench *b)
{
    static const vt_dtype type[] = {VT_FP8_E4M3, VT_Q8_0, VT_Q4_K, VT_Q6_K};
    static const int32_t tokens[] = {1, 8, 64, 256};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (size_t t = 0; t < sizeof type / sizeof *type; t++)
            for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
                if (strncmp(layers[i].name, "8B", 2) == 0)
                    linear_row(b, &layers[i], type[t], tokens[k], tokens[k] == 1 ? SMALL : COLD);
}

/* ---- the host's plan of a step's attention, and compiling ---- */

static void plan_row(bench *b, int32_t heads, int32_t n, int32_t q_len, int32_t kv_len,
                     int32_t shared)
{
    enum { REPS = 51 };
    double us[REPS];
    work w = {.name = ""};
    snprintf(w.name, sizeof w.name, "plan %s %d/%d %d x %d%s", q_len == 1 ? "decode" : "prefill",
             heads, KV_HEADS, n, kv_len, shared > 0 ? ", shared" : "");
    if (b->mode == MODE_LIST)
        printf("%s\t%s\n", b->section, w.name);
    if (b->mode == MODE_LIST || b->collecting)
        return;
    batch_arrays batch = make_batch(b, n, q_len, kv_len);
    share_pages(b, &batch, shared);
    attention_plan_config c = plan_config(b, heads);
    c.shared_rows = ATTENTION_SHARED_ROWS_LEAST;
    int32_t decode = attention_decode_capacity(&c, batch.host.n_decode, 40960), used[2],
            prefill = attention_prefill_capacity(&c, n, batch.host.n_tokens);
    size_t n_decode = attention_decode_plan_ints(decode, batch.host.n_decode);
    int32_t *plan = calloc(n_decode + (size_t)prefill * PREFILL_ITEM_INTS, sizeof *plan);
    if (!plan)
        exit(1);
    for (int32_t i = -3; i < REPS; i++) {
        int64_t begin = vt_now_ns();
        attention_cuda_plan(&c, &batch.host, plan, decode, plan + n_decode, prefill, &used[0],
                            &used[1]);
        us[i < 0 ? 0 : i] = (double)(vt_now_ns() - begin) * 1e-3;
    }
    print_row(b, &w, "host", us, REPS);
    free(plan);
    free(batch.ints);
    end_row(b);
}

static void section_plan(bench *b)
{
    plan_row(b, 32, 1, 1, 4096, 0);
    plan_row(b, 32, 32, 1, 4096, 0);
    plan_row(b, 16, 256, 1, 512, 0);
    plan_row(b, 16, 256, 1, 2048, 1920);
    plan_row(b, 32, 8, 2048, 2048, 0);
}

static bool on_compiled(void *user, int32_t done, int32_t total, const char *name, double ms,
                        bool cached)
{
    const bench *b = user;
    (void)done, (void)total;
    if (b->jit && !cached)
        printf("{\"section\": \"jit\", \"row\": \"%s\", \"method\": \"host\", \"us\": %.0f}\n",
               name, ms * 1e3);
    return true;
}

/* Everything that was collected, at once. */
static void compile(bench *b)
{
    vt_err err = {0};
    int64_t begin = vt_now_ns();
    if (b->jit)
        vt_jit_set_cache(b->cuda->jit, false);
    vt_status status = b->mode == MODE_RUN ? vt_cuda_compile(b->cuda, on_compiled, b, &err)
                                           : vt_jit_compile(b->cuda->jit, 0, on_compiled, b, &err);
    rig_must(status, &err);
    if (b->jit || b->mode == MODE_COMPILE)
        printf("{\"section\": \"jit\", \"row\": \"jit: all %d kernels\", \"method\": \"host\", "
               "\"us\": %.0f}\n",
               vt_jit_count(b->cuda->jit), (double)(vt_now_ns() - begin) * 1e-3);
    fflush(stdout);
}

/* ---- main ---- */

typedef struct section {
    const char *name;
    void (*run)(bench *b);
} section;

static const section sections[] = {
    {"roof", section_roof},     {"prefill", section_prefill},   {"decode", section_decode},
    {"shared", section_shared}, {"rows", section_rows},         {"sampling", section_sampling},
    {"gemm", section_gemm},     {"gemv", section_gemv},         {"quant", section_quant},
    {"plan", section_plan},     {"cublaslt", section_cublaslt},
};
enum { N_SECTIONS = sizeof sections / sizeof *sections };

/* Whether `name` is one of the words of "a,b,c"; NULL: all. */
static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return !list;
}

static bool known_list(const char *list)
{
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',') {
        bool known = strcspn(p, ",") == 3 && strncmp(p, "jit", 3) == 0;
        for (int i = 0; i < N_SECTIONS; i++)
            known = known || (strcspn(p, ",") == strlen(sections[i].name) &&
                              strncmp(p, sections[i].name, strlen(sections[i].name)) == 0);
        if (!known) {
            fprintf(stderr, "gpu_kernels: --only: '%.*s' found, expected some of jit",
                    (int)strcspn(p, ","), p);
            for (int i = 0; i < N_SECTIONS; i++)
                fprintf(stderr, ", %s", sections[i].name);
            fputc('\n', stderr);
            return false;
        }
    }
    return true;
}

static void run_sections(bench *b, const char *only)
{
    bool jit_alone = only && strcmp(only, "jit") == 0; /* then of every section */
    for (int i = 0; i < N_SECTIONS; i++) {
        b->section = sections[i].name;
        if (jit_alone ? b->collecting : in_list(only, sections[i].name))
            sections[i].run(b);
    }
}

static void print_machine(const bench *b)
{
    int sm_khz = 0, memory_khz = 0;
    b->cuda->driver.device_attribute(&sm_khz, CU_ATTR_CLOCK_KHZ, b->cuda->device);
    b->cuda->driver.device_attribute(&memory_khz, CU_ATTR_MEMORY_CLOCK_KHZ, b->cuda->device);
    printf("{\"machine\": \"%s\", \"arch\": \"%s\", \"level\": %d, \"sms\": %d, \"driver\": %d, "
           "\"sm_mhz\": %d, \"memory_mhz\": %d, \"l2_bytes\": %d, \"flush_bytes\": %zu}\n",
           b->cuda->name, b->cuda->arch, b->cuda->level, b->cuda->sm_count, b->cuda->driver_version,
           sm_khz / 1000, memory_khz / 1000, b->cuda->l2_bytes, b->flush_bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static bench b = {.mode = MODE_RUN};
    vt_err err = {0};
    const char *only = NULL;
    bool deterministic = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--tiny") == 0) {
            b.tiny = true;
        } else if (strcmp(argv[i], "--deterministic") == 0) {
            deterministic = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            b.mode = MODE_LIST;
        } else if (strcmp(argv[i], "--compile") == 0) {
            b.mode = MODE_COMPILE;
        } else {
            fprintf(stderr,
                    "usage: gpu_kernels [--only SECTION,...] [--deterministic] [--tiny] [--list] "
                    "[--compile]\n");
            return 2;
        }
    }
    if (!known_list(only))
        return 2;
    b.jit = only && in_list(only, "jit");
    b.reps = b.tiny ? 3 : 30;
    b.calls = b.tiny ? 4 : 48;
    b.launches = b.tiny ? 2 : 10;
    size_t mib = (size_t)1 << 20;
    b.in_bytes = (b.tiny ? 16 : 3072) * mib;
    b.out_bytes = (b.tiny ? 16 : 1536) * mib;
    b.workspace_bytes = (b.tiny ? 32 : 1024) * mib;
    b.flush_bytes = (b.tiny ? 1 : 256) * mib;
    if (b.mode == MODE_RUN)
        rig_open(&b);
    else
        rig_must(vt_cuda_offline("sm_90a", 90, 132, &b.cuda, &err), &err);
    b.lane.cuda = b.cuda;
    b.lane.deterministic = deterministic;
    b.op_lane = (vt_lane){.device = VT_DEVICE_CUDA, .cuda = &b.lane};
    if (b.mode == MODE_RUN)
        print_machine(&b);
    b.collecting = true;
    run_sections(&b, only);
    b.collecting = false;
    if (b.mode == MODE_LIST)
        return 0;
    compile(&b);
    if (b.mode == MODE_RUN)
        run_sections(&b, only);
    if (b.cuda->late_compiles > 0) {
        fprintf(stderr, "gpu_kernels: %d kernels were compiled while rows were timed\n",
                b.cuda->late_compiles);
        b.n_failed++;
    }
    rig_close(&b);
    return b.n_failed != 0;
}
