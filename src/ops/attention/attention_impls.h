#ifndef VT_OPS_ATTENTION_IMPLS_H
#define VT_OPS_ATTENTION_IMPLS_H

#include "ops/attention/attention.h"
#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(attention_prefill);
CPU_ROWS_DECLARE(attention_decode);

/* Never chosen by an engine: a given number of KV ranges for each decode. */
extern const vt_impl attention_decode_splits_1, attention_decode_splits_2,
    attention_decode_splits_4, attention_decode_splits_8, attention_decode_splits_16;

/* A query at `position` of a sequence sees positions before this one. */
static inline int64_t attention_span_end(const attention_args *a, const vt_batch *b, int32_t seq,
                                         int64_t position)
{
    int64_t end = position + 1 + a->after;
    return a->after == 0 || end < b->kv_len[seq] ? end : b->kv_len[seq];
}

/* Values of a row of V. */
static inline int32_t attention_v_dim(const attention_args *a)
{
    return a->v_dim ? a->v_dim : a->head_dim;
}

vt_cost attention_decode_extra(const void *args, const vt_target *t, const vt_batch *batch);

/* One head's query rows of one sequence, in the order (token, head within the group): the flat row
 * r is token r / group, head kv_head * group + r % group. A task is at most ATTENTION_ROWS of them,
 * all of one KV head. */
enum { ATTENTION_ROWS = 96, ATTENTION_CHUNK = 256 };

typedef struct attention_task {
    int32_t seq, kv_head, row, n_rows; /* flat rows [row, row + n_rows) */
} attention_task;

/* Decodes that one task computes together, for one KV head. The task reads the KV that they share
 * once for all of them, and then the rest of each one's KV. */
typedef struct attention_tile {
    int32_t first, n; /* sequences: plan.order[first .. first + n) */
    int32_t shared;   /* KV tokens, whole blocks of ATTENTION_BLOCK */
} attention_tile;

/* The tasks of a step's sequences [first_seq, last_seq), counted and found without a list: see
 * attention_plan.c. */
typedef struct attention_plan {
    const attention_args *args; /* set for each call that uses the plan */
    int32_t first_seq, last_seq;
    int32_t group, n_tasks;
    bool one_each;      /* every sequence has one task per KV head, as in decode */
    int32_t n_items;    /* split: (task, chunk) pairs; else 0 */
    size_t part_floats; /* of one item's partial state: rows, their maxima and sums */
    /* Where decodes share pages, a task is a KV head of a tile; else n_tiles is 0. */
    int32_t n_tiles;
    attention_tile *tile; /* [n_tiles] */
    int32_t *order;       /* every sequence once */
} attention_plan;

/* vt_host_plan.key and vt_host_plan.bytes of every CPU row. */
uint64_t attention_plan_key(const void *args);
size_t attention_plan_bytes(const void *args, const vt_target *t, const vt_size *size,
                            int32_t items);
attention_plan attention_plan_make(const attention_args *a, int32_t first_seq, int32_t last_seq,
                                   int32_t n_workers, int32_t stride, size_t budget_floats);
/* Makes tiles of the decodes in a plan of attention_plan_make, if some share pages. `room` has
 * attention_tiles_bytes(decodes) and is the plan's from then on. */
void attention_plan_share(attention_plan *p, int32_t n_workers, void *room);
size_t attention_tiles_bytes(int32_t decodes);
/* Returns how many tiles attention_plan_share makes of a step's decodes, 0 if it makes none.
 * *saved: KV tokens that it saves reading, of each KV head. The batch may lack pages if it has
 * shared_kv; groups of the same length then count as one. */
int32_t attention_plan_tiles(const attention_args *a, const vt_batch *b, int32_t n_workers,
                             int64_t *saved);
attention_task attention_plan_task(const attention_plan *p, int32_t index);
/* The task and the chunk of a split item, and the index of the task's first item. */
attention_task attention_plan_item(const attention_plan *p, int32_t item, int32_t *chunk);
/* The KV positions that a task's rows see: [*first, *last). */
void attention_task_span(const attention_plan *p, const attention_task *t, int32_t *first,
                         int32_t *last);

/* The floats that partial states may take. The shared workspace holds a scratch of scratch_floats
 * for each worker, then the partial states. */
size_t attention_budget_floats(const attention_args *a, const vt_limits *limits, int32_t stride);

/* From how many saved KV rows on decodes read the pages that they share once. */
extern const struct vt_knob_row attention_shared_knob;

#endif
