/* How an attention step is divided among the CPU's workers: tasks, and when a task is split.
 *
 *   task   one KV head of one sequence and up to ATTENTION_ROWS of its query rows
 *   item   a task restricted to one chunk of ATTENTION_CHUNK absolute KV positions
 *
 * The arithmetic is the same in both cases: a row is computed chunk by chunk, each chunk from an
 * empty state, and the chunks are merged in rising order. Which worker computes a chunk, and
 * whether its state lies in that worker's scratch or in shared memory, changes no bit. So the load
 * decides what is split: tasks are split if there are fewer than SPLIT_BELOW for each worker (one
 * sequence of 3 KV heads on 2 workers would leave one idle a third of the time) and if their states
 * fit into the budget.
 *
 * A plan holds counts only, and is made once per step for all layers. The task of an index is found
 * by a division if every sequence has one task per KV head, as in decode, and else by walking the
 * sequences. The tasks of a sequence begin with its last rows: these see the most KV, and the last
 * task to start should be a short one.
 *
 * Decodes that have their first pages in common (ops/shared_kv.h) are put into tiles, whose tasks
 * read these pages once for all members. As any rows may be computed together, no bit changes. A
 * tile has as many members as its rows allow while TASKS_A_WORKER tasks are left for each worker.
 */
#include <string.h>

#include "ops/shared_kv.h"
#include "ops/attention/attention_impls.h"

enum { SPLIT_BELOW = 4, TASKS_A_WORKER = 2 };
#define SPLIT_BUDGET_BYTES ((size_t)8 << 20)

static int32_t n_rows_of(const attention_plan *p, int32_t seq)
{
    const vt_batch *b = p->args->batch;
    return (b->q_start[seq + 1] - b->q_start[seq]) * p->group;
}

static int32_t n_tiles_of(const attention_plan *p, int32_t seq)
{
    return (int32_t)vt_ceil_div(n_rows_of(p, seq), ATTENTION_ROWS);
}

/* Task `index` of one sequence. */
static attention_task task_of_seq(const attention_plan *p, int32_t seq, int32_t index)
{
    int32_t tile = n_tiles_of(p, seq) - 1 - index / p->args->kv_heads;
    int32_t row = tile * ATTENTION_ROWS, left = n_rows_of(p, seq) - row;
    return (attention_task){.seq = seq,
                            .kv_head = index % p->args->kv_heads,
                            .row = row,
                            .n_rows = left < ATTENTION_ROWS ? left : ATTENTION_ROWS};
}

attention_task attention_plan_task(const attention_plan *p, int32_t index)
{
    int32_t seq = p->first_seq;
    if (p->one_each)
        return task_of_seq(p, seq + index / p->args->kv_heads, index % p->args->kv_heads);
    for (;; seq++) {
        int32_t n = n_tiles_of(p, seq) * p->args->kv_heads;
        if (index < n)
            break;
        index -= n;
    }
    return task_of_seq(p, seq, index);
}

void attention_task_span(const attention_plan *p, const attention_task *t, int32_t *first,
                         int32_t *last)
{
    const vt_batch *b = p->args->batch;
    int32_t from = b->position[b->q_start[t->seq] + t->row / p->group];
    int32_t to = b->position[b->q_start[t->seq] + (t->row + t->n_rows - 1) / p->group];
    int32_t window = p->args->window;
    *first = window > 0 && from >= window ? from - window + 1 : 0;
    *last = (int32_t)attention_span_end(p->args, b, t->seq, to);
}

static int32_t n_chunks_of(const attention_plan *p, const attention_task *t, int32_t *first_chunk)
{
    int32_t first, last;
    attention_task_span(p, t, &first, &last);
    *first_chunk = first / ATTENTION_CHUNK;
    return (last - 1) / ATTENTION_CHUNK - *first_chunk + 1;
}

attention_task attention_plan_item(const attention_plan *p, int32_t item, int32_t *chunk)
{
    for (int32_t i = 0;; i++) {
        attention_task t = attention_plan_task(p, i);
        int32_t first, n = n_chunks_of(p, &t, &first);
        if (item < n) {
            *chunk = first + item;
            return t;
        }
        item -= n;
    }
}

size_t attention_budget_floats(const attention_args *a, const vt_limits *limits, int32_t stride)
{
    size_t group = (size_t)(a->heads / a->kv_heads);
    size_t chunks = (size_t)vt_ceil_div(limits->max_context, ATTENTION_CHUNK);
    size_t rows = group < ATTENTION_ROWS ? group : ATTENTION_ROWS;
    size_t most = (size_t)limits->n_workers * SPLIT_BELOW * chunks * rows * (size_t)(stride + 2);
    size_t cap = SPLIT_BUDGET_BYTES / sizeof(float);
    return limits->n_workers < 2 ? 0 : most < cap ? most : cap;
}

/* The key has the window and what is seen behind a token, which decide which chunks a task has, and
 * the heads and their length, which decide how large a state is. */
uint64_t attention_plan_key(const void *args)
{
    const attention_args *a = args;
    return (uint64_t)a->window << 32 ^ (uint64_t)a->heads << 22 ^ (uint64_t)a->kv_heads << 12 ^
           (uint64_t)a->head_dim ^ (uint64_t)a->after * UINT64_C(0x9e3779b97f4a7c15);
}

size_t attention_plan_bytes(const void *args, const vt_target *t, const vt_size *size,
                            int32_t items)
{
    (void)args, (void)t, (void)size, (void)items;
    return sizeof(attention_plan);
}

attention_plan attention_plan_make(const attention_args *a, int32_t first_seq, int32_t last_seq,
                                   int32_t n_workers, int32_t stride, size_t budget_floats)
{
    attention_plan p = {
        .args = a, .first_seq = first_seq, .last_seq = last_seq, .group = a->heads / a->kv_heads};
    p.one_each = true;
    for (int32_t s = first_seq; s < last_seq; s++) {
        int32_t tiles = n_tiles_of(&p, s);
        p.n_tasks += tiles * a->kv_heads;
        p.one_each = p.one_each && tiles == 1;
    }
    if (n_workers < 2 || p.n_tasks >= n_workers * SPLIT_BELOW)
        return p;
    int32_t n_items = 0, most_rows = 0;
    for (int32_t i = 0; i < p.n_tasks; i++) {
        attention_task t = attention_plan_task(&p, i);
        int32_t first;
        n_items += n_chunks_of(&p, &t, &first);
        most_rows = t.n_rows > most_rows ? t.n_rows : most_rows;
    }
    p.part_floats = (size_t)most_rows * (size_t)(stride + 2);
    if (n_items > p.n_tasks && (size_t)n_items * p.part_floats <= budget_floats)
        p.n_items = n_items;
    return p;
}

/* ---- tiles of decodes that share pages ---- */

/* The most members of a tile; 1: decodes share nothing. A window that hides a decode's first tokens
 * allows one: rows of a shared part all begin with its first token. */
static int32_t most_members(const attention_args *a, const vt_batch *b, int32_t n_workers)
{
    int32_t tokens = 1;
    if (n_workers < 1) /* a target without a team */
        return 1;
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t last = b->q_start[s + 1] - 1, n = b->q_start[s + 1] - b->q_start[s];
        if (a->window > 0 && b->position[last] >= a->window)
            return 1;
        tokens = n > tokens ? n : tokens;
    }
    int64_t rows = (int64_t)tokens * (a->heads / a->kv_heads), most = ATTENTION_ROWS / rows,
            even = (int64_t)b->n_decode * a->kv_heads / ((int64_t)n_workers * TASKS_A_WORKER);
    most = most < even ? most : even;
    return most > 1 ? (int32_t)most : 1;
}

/* Returns how many tiles a group of n decodes becomes. Where most decodes are in it, its tiles take
 * most of the time: the workers then get equally many tasks, if that leaves two members a tile. */
static int32_t tiles_of_group(const attention_args *a, const vt_batch *b, int32_t n_workers,
                              int32_t n, int32_t most)
{
    int32_t tiles = (int32_t)vt_ceil_div(n, most);
    for (int32_t more = tiles; 2 * n > b->n_decode && 2 * more <= n; more++)
        if (more * a->kv_heads % n_workers == 0)
            return more;
    return tiles;
}

/* Counts a decode of a batch without pages that shares `len` tokens with a group. Of each group one
 * member has no such count (shared_kv_find). */
static void count_member(shared_groups *out, int32_t len)
{
    int32_t i = 0;
    while (i < out->n && out->group[i].len != len)
        i++;
    if (i == SHARED_MOST_SEQS / 2)
        return;
    if (i == out->n)
        out->group[out->n++] = (shared_group){.n = 1, .len = len};
    out->group[i].n++;
}

/* Finds the groups of a batch. Without pages it has only their sizes, no members. */
static void find_groups(const vt_batch *b, shared_groups *out)
{
    out->n = out->n_seqs = 0;
    if (b->page_ids)
        shared_groups_find(b, &shared_rule_any, out);
    for (int32_t s = 0; !b->page_ids && b->shared_kv && s < b->n_decode; s++)
        if (b->shared_kv[s] > 0)
            count_member(out, b->shared_kv[s]);
}

static int32_t whole_blocks(int32_t tokens) { return tokens / ATTENTION_BLOCK * ATTENTION_BLOCK; }

int32_t attention_plan_tiles(const attention_args *a, const vt_batch *b, int32_t n_workers,
                             int64_t *saved)
{
    int32_t most = most_members(a, b, n_workers), n = b->n_decode;
    shared_groups groups;
    *saved = 0;
    if (most < 2)
        return 0;
    find_groups(b, &groups);
    for (int32_t i = 0; i < groups.n; i++) {
        const shared_group *g = &groups.group[i];
        int32_t shared = whole_blocks(g->len),
                less = shared > 0 ? g->n - tiles_of_group(a, b, n_workers, g->n, most) : 0;
        n -= less;
        *saved += (int64_t)less * shared;
    }
    return *saved > 0 ? n : 0;
}

size_t attention_tiles_bytes(int32_t decodes)
{
    return (size_t)decodes * (sizeof(attention_tile) + sizeof(int32_t));
}

/* Appends the tiles of a group. */
static void add_group(attention_plan *p, int32_t n_workers, int32_t most, const int32_t *seq,
                      int32_t n, int32_t shared)
{
    int32_t first = p->n_tiles > 0 ? p->tile[p->n_tiles - 1].first + p->tile[p->n_tiles - 1].n : 0,
            tiles = tiles_of_group(p->args, p->args->batch, n_workers, n, most);
    memcpy(p->order + first, seq, (size_t)n * sizeof *seq);
    for (int32_t k = 0; k < tiles; k++) {
        int32_t from = n * k / tiles, to = n * (k + 1) / tiles;
        p->tile[p->n_tiles++] = (attention_tile){first + from, to - from, shared};
    }
}

void attention_plan_share(attention_plan *p, int32_t n_workers, void *room)
{
    const vt_batch *b = p->args->batch;
    int32_t most = most_members(p->args, b, n_workers);
    shared_groups groups;
    bool placed[SHARED_MOST_SEQS] = {false};
    if (most < 2)
        return;
    p->tile = room;
    p->order = (int32_t *)(p->tile + b->n_decode);
    find_groups(b, &groups);
    for (int32_t i = 0; i < groups.n; i++) {
        const shared_group *g = &groups.group[i];
        const int32_t *seq = groups.seq + g->first;
        if (whole_blocks(g->len) == 0)
            continue;
        add_group(p, n_workers, most, seq, g->n, whole_blocks(g->len));
        for (int32_t k = 0; k < g->n; k++)
            placed[seq[k]] = true;
    }
    if (p->n_tiles == 0)
        return;
    for (int32_t s = 0; s < b->n_decode; s++)
        if (s >= SHARED_MOST_SEQS || !placed[s])
            add_group(p, n_workers, 1, &s, 1, 0);
    p->n_tasks = p->n_tiles * p->args->kv_heads;
    p->n_items = 0;
    p->one_each = true;
}
