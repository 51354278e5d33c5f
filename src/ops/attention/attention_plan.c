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
 */
#include "ops/attention/attention_impls.h"

enum { SPLIT_BELOW = 4 };
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
