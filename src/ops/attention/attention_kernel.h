/* Paged attention over the vector type: see simd_portable.h for how this header is compiled.
 * Decode and prefill are the same code: a task is a tile of query rows of one KV head, a decode's
 * tile is the group of heads that share the KV head. Decodes that share their first pages are one
 * task: the loop below runs over what they share with the rows of all, and goes on with each one's
 * rows and its own KV (run_tile).
 *
 *   for each chunk of 256 KV positions          (absolute multiples: the state starts empty)
 *     for each block of 64                      (absolute multiples)
 *       K block -> kt [head_dim][64] fp32, transposed    once for all rows of the tile, from pages
 *       V block -> v  [64][head_dim] fp32                (up to DIRECT_ROWS rows read both
 *                                                        where they lie: attention_direct.h)
 *       for each TILE_ROWS rows
 *         s = q kt                             q carries scale * log2(e): base-2 logits
 *         mask to the row's span; m' = max(m, s); p = 2^(s - m'); l = l 2^(m - m') + sum p
 *         acc = acc 2^(m - m') + p v
 *     merge the chunk's (m, l, acc) into the row's total
 *   o = acc / l
 *
 * A row's bits depend only on its own q and the KV it sees. Every sum of products runs over d, and
 * over j, in rising order with one accumulator. Sums over a block's p always go through the same
 * tree. A masked block, or the masked part of a row, contributes p = 0 exactly, which leaves m, l
 * and acc as they are (except for the sign of a zero, which is removed at the end). So tiles,
 * tasks, workers and the chunks of a prompt may be chosen freely.
 *
 * Both products are C[rows][cols] += A[rows][k] B[k][cols] with B streamed from L1, so one register
 * tile (matmul_tile) serves both. Rejected: dot products along d with horizontal sums, which need
 * no transpose. They save half the shuffles of a decode with group 1, but a prefill tile pays 15
 * extra additions for 16 scores, and the two must use the same arithmetic. Also rejected: AMX, with
 * each operand split into two bf16 and three or four tile products in place of one. A prefill of
 * 512 tokens (9/3 heads of 64) took 1.48 ms where AVX-512 takes 2.44. But a decode at 1,024
 * positions took 89 us instead of 60, because a tile of 3 rows costs as much as one of 16. The
 * error was ten times as large, and attention matters most in batched decode. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/attention/attention_direct.h"

/* ---- softmax ---- */

/* Caps the scores of some rows in the columns [v0, v1). They and the cap are logits of base 2:
 *
 *   c tanh(s / c) = c - 2 c / (1 + e^(2 s / c)) */
static void cap_scores(float *s, int rows, int v0, int v1, float cap)
{
    vf c = vf_set1(cap * LOG2E), twice = vf_set1(2 / cap), one = vf_set1(1);
    for (int r = 0; r < rows; r++)
        for (int j = v0; j < v1; j += VF) {
            float *at = s + r * ATTENTION_BLOCK + j;
            vf e = vf_exp2(vf_mul(vf_load(at), twice));
            vf_store(at, vf_sub(c, vf_div(vf_add(c, c), vf_add(one, e))));
        }
}

/* Replaces the scores of one row against a block by p (0 outside [begin, end)) and returns the new
 * maximum. [v0, v1) are the columns that hold scores, in whole vectors. */
static inline float row_softmax(float *s, int v0, int v1, int begin, int end, float m, float *sum)
{
    vf best = vf_set1(-INFINITY);
    for (int j = v0; j < v1; j += VF) {
        vf x = vf_keep_range(vf_load(s + j), j, begin, end, -INFINITY);
        vf_store(s + j, x);
        best = vf_max(best, x);
    }
    float block_max = vf_hmax(best);
    m = m > block_max ? m : block_max;
    vf total = vf_zero();
    for (int j = v0; j < v1; j += VF) {
        vf p = vf_exp2(vf_sub(vf_load(s + j), vf_set1(m)));
        vf_store(s + j, p);
        total = vf_add(total, p);
    }
    *sum = vf_sum(total);
    return m;
}

/* Computes rows of the tile, from `r` on, against the block at `base`: all of them in the direct
 * form, or up to TILE_ROWS. */
static void block_rows(scratch *s, const row_states *state, const kv_view *kv, int r, int rows,
                       int32_t base)
{
    int32_t stride = kv->stride, head_dim = kv->args->head_dim;
    int first = s->begin[r] - base, last = s->end[r + rows - 1] - base;
    first = first > 0 ? first : 0;
    last = last < ATTENTION_BLOCK ? last : ATTENTION_BLOCK;
    if (first >= last)
        return;
    int v0 = first / VF * VF, v1 = (int)vt_round_up((size_t)last, VF);
    if (s->direct) /* all rows of the task */
        score_pool(rows, kv, first, last, s);
    else
        matmul(rows, v1 - v0, s->q + r * stride, stride, s->kt + v0, ATTENTION_BLOCK, 0, head_dim,
               s->s + v0, ATTENTION_BLOCK, NULL);
    if (kv->args->cap > 0)
        cap_scores(s->s, rows, v0, v1, kv->args->cap);
    float delta[DIRECT_ROWS] = {0}, sum[DIRECT_ROWS];
    for (int i = 0; i < rows; i++) {
        float m = state->m[r + i];
        state->m[r + i] = row_softmax(s->s + i * ATTENTION_BLOCK, v0, v1, s->begin[r + i] - base,
                                      s->end[r + i] - base, m, &sum[i]);
        delta[i] = m - state->m[r + i];
    }
    for (int i = 0; i < rows; i += VF)
        vf_store(delta + i, vf_exp2(vf_load(delta + i)));
    for (int i = 0; i < rows; i++)
        state->l[r + i] = state->l[r + i] * delta[i] + sum[i];
    float *acc = state->acc + r * stride;
    int32_t columns = v_columns(kv->args);
    if (s->direct)
        weigh_pool(rows, kv, first, last, s, acc, delta);
    else
        matmul(rows, columns, s->s, ATTENTION_BLOCK, s->v, stride, first, last, acc, stride, delta);
}

/* ---- chunks ---- */

static void states_clear(const row_states *s, int32_t rows, int32_t stride)
{
    for (int32_t r = 0; r < rows; r++) {
        s->m[r] = EMPTY_MAX;
        s->l[r] = 0;
    }
    memset(s->acc, 0, (size_t)rows * (size_t)stride * sizeof(float));
}

/* Merges `part` into `total`. The two are states over disjoint positions. */
static void states_merge(const row_states *total, const row_states *part, int32_t rows,
                         int32_t stride)
{
    for (int32_t r = 0; r < rows; r++) {
        float m = total->m[r] > part->m[r] ? total->m[r] : part->m[r];
        float weight[VF];
        vf_store(weight, vf_exp2(vf_set1(total->m[r] - m)));
        float keep = weight[0];
        vf_store(weight, vf_exp2(vf_set1(part->m[r] - m)));
        float add = weight[0];
        total->m[r] = m;
        total->l[r] = total->l[r] * keep + part->l[r] * add;
        float *t = total->acc + r * stride;
        const float *p = part->acc + r * stride;
        for (int32_t i = 0; i < stride; i += VF)
            vf_store(t + i,
                     vf_fma(vf_load(p + i), vf_set1(add), vf_mul(vf_load(t + i), vf_set1(keep))));
    }
}

/* Loads the query rows of a task, times scale * log2(e), and the span of KV that each row sees, to
 * the rows from `to` on. s->direct says how they will be used. */
static void load_rows(const attention_plan *p, const attention_task *t, int32_t stride, scratch *s,
                      int32_t to)
{
    const attention_args *a = p->args;
    int32_t d = a->head_dim;
    vf factor = vf_set1(a->scale * a->k_scale * LOG2E);
    vf power = vf_set1(s->direct ? power_of(a) : 1);
    for (int32_t r = 0; r < t->n_rows; r++) {
        int32_t token = a->batch->q_start[t->seq] + (t->row + r) / p->group;
        int32_t head = t->kv_head * p->group + (t->row + r) % p->group;
        const float *q = row_f32(a->q, token) + (int64_t)head * d;
        for (int32_t i = 0; i < d; i += VF)
            vf_store(s->q + (to + r) * stride + i,
                     vf_mul(vf_mul(vf_load_n(q + i, lanes_left(i, d)), factor), power));
        int32_t pos = a->batch->position[token];
        s->begin[to + r] = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
        s->end[to + r] = (int32_t)attention_span_end(a, a->batch, t->seq, pos);
    }
}

/* Loads the query rows of a task that shares nothing. A single tile of rows, as a decode has, uses
 * each key and value once, so they are read where they lie. */
static void load_task(const attention_plan *p, const attention_task *t, int32_t stride, scratch *s)
{
    s->direct = is_direct(p->args, t->n_rows);
    load_rows(p, t, stride, s, 0);
}

/* Returns the sum of a row's weights, that of its head's sink included. The sink's weight may be
 * infinite: the row is zeros then. */
static float row_sum(const attention_args *a, int32_t head, float m, float l)
{
    if (!a->sinks)
        return l;
    return l + exp2f(tensor_get(a->sinks, 0, head) * LOG2E - m);
}

static void store_rows(const attention_plan *p, const attention_task *t, int32_t stride,
                       const row_states *total)
{
    const attention_args *a = p->args;
    int32_t d = attention_v_dim(a);
    for (int32_t r = 0; r < t->n_rows; r++) {
        int32_t token = a->batch->q_start[t->seq] + (t->row + r) / p->group;
        int32_t head = t->kv_head * p->group + (t->row + r) % p->group;
        float *o = row_f32(a->o, token) + (int64_t)head * d;
        vf inverse = vf_set1(a->v_scale / row_sum(a, head, total->m[r], total->l[r]));
        for (int32_t i = 0; i < d; i += VF) /* adding +0 turns a -0 into +0 */
            vf_store_n(o + i,
                       vf_add(vf_mul(vf_load(total->acc + r * stride + i), inverse), vf_zero()),
                       lanes_left(i, d));
    }
}

/* Returns the keys and values that a task reads. */
static kv_view view_of(const attention_plan *p, const attention_task *t, int32_t stride)
{
    kv_view kv = {.args = p->args,
                  .pages = p->args->batch->page_ids + p->args->batch->page_start[t->seq],
                  .kv_head = t->kv_head,
                  .stride = stride};
    attention_task_span(p, t, &kv.first, &kv.last);
    return kv;
}

/* The same of one chunk alone. */
static kv_view view_of_chunk(const attention_plan *p, const attention_task *t, int32_t stride,
                             int32_t chunk)
{
    kv_view kv = view_of(p, t, stride);
    int32_t begin = chunk * ATTENTION_CHUNK, end = begin + ATTENTION_CHUNK;
    kv.first = kv.first > begin ? kv.first : begin;
    kv.last = kv.last < end ? kv.last : end;
    return kv;
}

/* Computes n_rows rows in `s` over what the view wants of one chunk, into `state`. goes_on: the
 * state holds the chunk's blocks before these. */
static void attend_chunk(const kv_view *kv, int32_t n_rows, int32_t chunk, scratch *s,
                         const row_states *state, bool goes_on)
{
    int32_t base = chunk * ATTENTION_CHUNK;
    if (!goes_on)
        states_clear(state, n_rows, kv->stride);
    for (int32_t end = base + ATTENTION_CHUNK; base < end; base += ATTENTION_BLOCK) {
        int j0 = kv->first > base ? kv->first - base : 0;
        int j1 = kv->last - base < ATTENTION_BLOCK ? kv->last - base : ATTENTION_BLOCK;
        if (j0 >= j1)
            continue;
        find_block(kv, base, j0, j1, &s->at);
        if (!s->direct)
            pack_block(kv, j0, j1, s);
        const int32_t most = s->direct ? DIRECT_ROWS : TILE_ROWS;
        for (int32_t r = 0; r < n_rows; r += most)
            block_rows(s, state, kv, r, n_rows - r < most ? n_rows - r : most, base);
    }
}

/* Computes n_rows rows in `s` over all that the view wants, into `total`. goes_on: `chunk` holds
 * the blocks before these of the chunk in which the view begins. */
static void attend(const kv_view *kv, int32_t n_rows, scratch *s, const row_states *total,
                   const row_states *chunk, bool goes_on)
{
    for (int32_t c = kv->first / ATTENTION_CHUNK; c <= (kv->last - 1) / ATTENTION_CHUNK; c++) {
        attend_chunk(kv, n_rows, c, s, chunk, goes_on);
        states_merge(total, chunk, n_rows, kv->stride);
        goes_on = false;
    }
}

static void run_task(const attention_plan *p, int32_t i, int32_t stride, scratch *s,
                     const kv_view *after)
{
    attention_task t = attention_plan_task(p, i);
    kv_view kv = view_of(p, &t, stride);
    kv.after = after;
    load_task(p, &t, stride, s);
    states_clear(&s->total, t.n_rows, stride);
    attend(&kv, t.n_rows, s, &s->total, &s->chunk, false);
    store_rows(p, &t, stride, &s->total);
}

/* ---- tiles of decodes that share pages ---- */

static row_states states_from(const row_states *s, int32_t row, int32_t stride)
{
    return (row_states){.m = s->m + row, .l = s->l + row, .acc = s->acc + row * stride};
}

/* Returns the task that member i of a tile would be by itself. */
static attention_task task_of_member(const attention_plan *p, const attention_tile *tile,
                                     int32_t kv_head, int32_t i)
{
    const int32_t *start = p->args->batch->q_start;
    int32_t seq = p->order[tile->first + i];
    return (attention_task){
        .seq = seq, .kv_head = kv_head, .n_rows = (start[seq + 1] - start[seq]) * p->group};
}

/* Returns the part of member i's KV that all members of its tile share, or the rest of it. */
static kv_view view_of_member(const attention_plan *p, const attention_tile *tile, int32_t kv_head,
                              int32_t stride, int32_t i, bool shared)
{
    attention_task t = task_of_member(p, tile, kv_head, i);
    kv_view kv = view_of(p, &t, stride);
    if (shared)
        kv.last = tile->shared;
    else if (tile->shared > 0)
        kv.first = tile->shared;
    return kv;
}

/* Computes the rows of all members over the KV that they share. The state of a chunk in which that
 * ends stays in s->chunk. after: what is read next. */
static void run_shared(const attention_plan *p, const attention_tile *tile, int32_t kv_head,
                       int32_t stride, scratch *s, int32_t rows, const kv_view *after)
{
    kv_view kv = view_of_member(p, tile, kv_head, stride, 0, true);
    kv.after = after;
    s->direct = is_direct(p->args, rows);
    for (int32_t i = 0, to = 0; i < tile->n; i++) {
        attention_task t = task_of_member(p, tile, kv_head, i);
        load_rows(p, &t, stride, s, to);
        to += t.n_rows;
    }
    for (int32_t begin = 0; begin < tile->shared; begin += ATTENTION_CHUNK) {
        attend_chunk(&kv, rows, begin / ATTENTION_CHUNK, s, &s->chunk, false);
        if (begin + ATTENTION_CHUNK <= tile->shared)
            states_merge(&s->total, &s->chunk, rows, stride);
    }
}

/* after: what the worker reads next, or NULL. */
static void run_tile(const attention_plan *p, const attention_tile *tile, int32_t kv_head,
                     int32_t stride, scratch *s, const kv_view *after)
{
    const bool goes_on = tile->shared % ATTENTION_CHUNK != 0;
    kv_view own[2] = {view_of_member(p, tile, kv_head, stride, 0, false)};
    int32_t rows = 0;
    for (int32_t i = 0; i < tile->n; i++)
        rows += task_of_member(p, tile, kv_head, i).n_rows;
    states_clear(&s->total, rows, stride);
    if (tile->shared > 0)
        run_shared(p, tile, kv_head, stride, s, rows, &own[0]);
    for (int32_t i = 0, row = 0; i < tile->n; i++) {
        attention_task t = task_of_member(p, tile, kv_head, i);
        kv_view *kv = &own[i % 2], *then = &own[(i + 1) % 2];
        row_states total = states_from(&s->total, row, stride),
                   chunk = states_from(&s->chunk, row, stride);
        if (i + 1 < tile->n)
            *then = view_of_member(p, tile, kv_head, stride, i + 1, false);
        kv->after = i + 1 < tile->n ? then : after;
        load_task(p, &t, stride, s);
        attend(kv, t.n_rows, s, &total, &chunk, goes_on);
        store_rows(p, &t, stride, &total);
        row += t.n_rows;
    }
}

/* Returns the KV that task i reads first. */
static kv_view first_view(const attention_plan *p, int32_t i, int32_t stride)
{
    int32_t kv_heads = p->args->kv_heads;
    if (p->n_tiles > 0) {
        const attention_tile *tile = p->tile + i / kv_heads;
        return view_of_member(p, tile, i % kv_heads, stride, 0, tile->shared > 0);
    }
    attention_task t = attention_plan_task(p, i);
    return view_of(p, &t, stride);
}

/* ---- the team ---- */

static row_states part_at(float *parts, const attention_plan *p, int32_t item, int32_t rows,
                          int32_t stride)
{
    float *base = parts + (size_t)item * p->part_floats;
    return (row_states){.acc = base,
                        .m = base + (size_t)rows * (size_t)stride,
                        .l = base + (size_t)rows * (size_t)(stride + 1)};
}

/* Computes the states of this worker's (task, chunk) items. It takes a ticket ahead: the last block
 * of one item loads the first block of the next. */
static void run_items(const attention_plan *p, const vt_lane *lane, int32_t stride, scratch *s,
                      float *parts)
{
    int32_t i = atomic_fetch_add(lane->ticket, 1);
    while (i < p->n_items) {
        int32_t chunk, next_chunk, next = atomic_fetch_add(lane->ticket, 1);
        attention_task t = attention_plan_item(p, i, &chunk);
        kv_view kv = view_of_chunk(p, &t, stride, chunk), then;
        if (next < p->n_items) {
            attention_task after = attention_plan_item(p, next, &next_chunk);
            then = view_of_chunk(p, &after, stride, next_chunk);
            kv.after = &then;
        }
        load_task(p, &t, stride, s);
        row_states state = part_at(parts, p, i, t.n_rows, stride);
        attend_chunk(&kv, t.n_rows, chunk, s, &state, false);
        i = next;
    }
}

/* For few tasks: deals their chunks out to the workers, then merges each task's states in order. */
static void run_split(const attention_plan *p, const vt_lane *lane, int32_t stride, scratch *s,
                      float *parts)
{
    run_items(p, lane, stride, s, parts);
    vt_team_barrier(lane->team, lane->worker);
    for (int32_t i = 0, item = 0; i < p->n_tasks; i++) {
        attention_task t = attention_plan_task(p, i);
        int32_t first, last, chunks;
        attention_task_span(p, &t, &first, &last);
        chunks = (last - 1) / ATTENTION_CHUNK - first / ATTENTION_CHUNK + 1;
        if (i % lane->n_workers == lane->worker) {
            states_clear(&s->total, t.n_rows, stride);
            for (int32_t c = 0; c < chunks; c++) {
                row_states part = part_at(parts, p, item + c, t.n_rows, stride);
                states_merge(&s->total, &part, t.n_rows, stride);
            }
            store_rows(p, &t, stride, &s->total);
        }
        item += chunks;
    }
}

/* Counts the step's tasks, and decides whether they are split or, if there is room for tiles, what
 * they share. */
static void plan_step(const attention_args *args, const vt_target *t, const vt_batch *batch,
                      int32_t first_seq, int32_t last_seq, attention_plan *out, void *room)
{
    attention_args a = *args;
    int32_t stride = row_stride_of(&a);
    size_t workers = scratch_floats(stride) * (size_t)t->limits.n_workers;
    a.batch = batch;
    *out = attention_plan_make(&a, first_seq, last_seq, t->limits.n_workers, stride,
                               t->workspace_bytes / sizeof(float) - workers);
    if (room)
        attention_plan_share(out, t->limits.n_workers, room);
    out->args = NULL;
}

/* Pieces of work: tasks, or their chunks where they are split. */
static int32_t pieces_of(const attention_plan *p) { return p->n_items ? p->n_items : p->n_tasks; }

/* Tasks of so many sequences and tokens, of any lengths. */
static int64_t tasks_of(const attention_args *a, int64_t seqs, int64_t tokens)
{
    int64_t rows = tokens * (a->heads / a->kv_heads),
            tiles = seqs + (rows > seqs ? (rows - seqs) / ATTENTION_ROWS : 0);
    return tiles * a->kv_heads;
}

static int32_t attention_decode_items(const void *args, const vt_target *t, const vt_size *size,
                                      const vt_batch *batch)
{
    attention_plan p;
    if (!batch)
        return (int32_t)tasks_of(args, size->decodes, size->decodes);
    int64_t saved;
    int32_t tiles = attention_plan_tiles(args, batch, t->limits.n_workers, &saved);
    if (tiles > 0)
        return tiles * ((const attention_args *)args)->kv_heads;
    plan_step(args, t, batch, 0, batch->n_decode, &p, NULL);
    return pieces_of(&p);
}

static int32_t attention_prefill_items(const void *args, const vt_target *t, const vt_size *size,
                                       const vt_batch *batch)
{
    attention_plan p;
    if (!batch)
        return (int32_t)tasks_of(args, size->prefills, size->tokens - size->decodes);
    plan_step(args, t, batch, batch->n_decode, batch->n_seqs, &p, NULL);
    return pieces_of(&p);
}

static int32_t attention_decode_plan_fill(const void *args, const vt_target *t, const vt_size *size,
                                          const vt_batch *batch, int32_t items, void *out,
                                          void *side)
{
    (void)size, (void)items, (void)side;
    plan_step(args, t, batch, 0, batch->n_decode, out, (attention_plan *)out + 1);
    return pieces_of(out);
}

static int32_t attention_prefill_plan_fill(const void *args, const vt_target *t,
                                           const vt_size *size, const vt_batch *batch,
                                           int32_t items, void *out, void *side)
{
    (void)size, (void)items, (void)side;
    plan_step(args, t, batch, batch->n_decode, batch->n_seqs, out, NULL);
    return pieces_of(out);
}

static size_t attention_decode_plan_bytes(const void *args, const vt_target *t, const vt_size *size,
                                          int32_t items)
{
    return attention_plan_bytes(args, t, size, items) + attention_tiles_bytes(size->decodes);
}

static const vt_host_plan attention_decode_plan = {.name = "decode tasks",
                                                   .key = attention_plan_key,
                                                   .items = attention_decode_items,
                                                   .bytes = attention_decode_plan_bytes,
                                                   .fill = attention_decode_plan_fill};
static const vt_host_plan attention_prefill_plan = {.name = "prefill tasks",
                                                    .key = attention_plan_key,
                                                    .items = attention_prefill_items,
                                                    .bytes = attention_plan_bytes,
                                                    .fill = attention_prefill_plan_fill};

static vt_status attention_run(const void *args, const vt_lane *lane)
{
    attention_plan p = *(const attention_plan *)lane->plan;
    p.args = args;
    int32_t stride = row_stride_of(p.args);
    size_t own = scratch_floats(stride), workers = own * (size_t)lane->n_workers;
    float *shared = lane->workspace;
    scratch s = scratch_at(shared + own * (size_t)lane->worker, stride);
    if (p.n_items > 0) {
        run_split(&p, lane, stride, &s, shared + workers);
        return VT_OK;
    }
    /* Where tasks are alike each worker takes a ticket ahead, to load what comes next. */
    int32_t i = atomic_fetch_add(lane->ticket, 1);
    while (i < p.n_tasks) {
        int32_t next = p.one_each ? atomic_fetch_add(lane->ticket, 1) : p.n_tasks;
        kv_view then, *after = next < p.n_tasks ? &then : NULL;
        if (after)
            then = first_view(&p, next, stride);
        if (p.n_tiles > 0)
            run_tile(&p, p.tile + i / p.args->kv_heads, i % p.args->kv_heads, stride, &s, after);
        else
            run_task(&p, i, stride, &s, after);
        i = p.one_each ? next : atomic_fetch_add(lane->ticket, 1);
    }
    return VT_OK;
}

static bool attention_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const attention_args *a = args;
    return a->q->dtype == VT_F32 && a->o->dtype == VT_F32 && dtype_is_kv(a->k_pool->dtype) &&
           a->v_pool->dtype == a->k_pool->dtype;
}

static size_t attention_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const attention_args *a = args;
    int32_t stride = row_stride_of(a);
    return (scratch_floats(stride) * (size_t)limits->n_workers +
            attention_budget_floats(a, limits, stride)) *
           sizeof(float);
}

/* Describes the tasks of a step of this size before any of them is split, which a plan decides by
 * the lengths of the KV (vt_cut_planned). */
static void attention_describe(const void *args, const vt_target *t, const vt_size *size,
                               int64_t seqs, int64_t tokens, vt_cut *out)
{
    (void)size;
    const attention_args *a = args;
    vt_cut_shape(out, "%lld tokens of %lld sequences, %d/%d heads of %d", (long long)tokens,
                 (long long)seqs, a->heads, a->kv_heads, a->head_dim);
    out->tile[0] = ATTENTION_ROWS;
    out->tile[1] = a->head_dim;
    out->tile[2] = ATTENTION_CHUNK;
    vt_cut_roles(out, NULL, "chunks of KV in rising order");
    vt_cut_cpu(out, t, tasks_of(a, seqs, tokens), (int32_t)(VF * sizeof(float)));
}

static void attention_decode_describe(const void *args, const vt_target *t, const vt_size *size,
                                      vt_cut *out)
{
    int64_t n = size ? size->decodes : ((const attention_args *)args)->batch->n_decode;
    attention_describe(args, t, size, n, n, out);
}

static void attention_prefill_describe(const void *args, const vt_target *t, const vt_size *size,
                                       vt_cut *out)
{
    const vt_batch *b = ((const attention_args *)args)->batch;
    int64_t n = size ? size->prefills : b->n_seqs - b->n_decode,
            tokens = size ? size->tokens - size->decodes : b->n_tokens - b->n_decode;
    attention_describe(args, t, size, n, tokens, out);
}

const vt_impl SIMD_ROW(attention_prefill) = {.name = SIMD_NAME,
                                             .device = VT_DEVICE_CPU,
                                             .isa = SIMD_ISA,
                                             .supports = attention_supports,
                                             .run = attention_run,
                                             .describe = attention_prefill_describe,
                                             .plan = &attention_prefill_plan,
                                             .workspace = attention_workspace};

const vt_impl SIMD_ROW(attention_decode) = {.name = SIMD_NAME,
                                            .device = VT_DEVICE_CPU,
                                            .isa = SIMD_ISA,
                                            .supports = attention_supports,
                                            .run = attention_run,
                                            .describe = attention_decode_describe,
                                            .plan = &attention_decode_plan,
                                            .workspace = attention_workspace,
                                            .extra = attention_decode_extra};
