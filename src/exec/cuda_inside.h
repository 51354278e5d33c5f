/* The CUDA executor's parts, for cuda*.c.
 *
 *   cuda.c         launch, wait, free: what a step does
 *   cuda_step.c    a step's block: sizes, where its arrays lie, filling it
 *   cuda_graph.c   which parts of a step are graphs; running and capturing them
 *   cuda_kv.c      the KV cache's memory, which grows
 *   cuda_start.c   making one: memory, the kernels' dry run, capture
 *   cuda_spans.c   recording: which steps are timed call by call, and when their calls ran */
#ifndef VT_EXEC_CUDA_INSIDE_H
#define VT_EXEC_CUDA_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "exec/cuda.h"
#include "exec/program.h"
#include "exec/weights_cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/sample/sample_cuda.h"

enum {
    MAX_IN_FLIGHT = 2,
    SLOTS = 4,
    MAX_GRAPHS = 192,
    MAX_PIECES = 3,
    GAPS = 4096,         /* kept */
    GRAPH_TOKENS = 1024, /* of the largest prefill or mixed step that is a graph */
    WORKSPACE_BYTES = 64 << 20
};

/* Growing the KV cache: nobody does, a thread does, no more memory can be had. */
enum { KV_GREW, KV_GROWS, KV_FULL };

/* Sizes that fix where everything lies in a step's block. `decode`, `body`, `tail`: which parts are
 * padded to a bucket, and so may be graphs (cuda_graph.c). */
typedef struct step_shape {
    int32_t tokens, seqs, rows, decodes, decode_items, prefill_items;
    bool decode, body, tail;
} step_shape;

typedef struct step_layout {
    size_t begin, row_token, rows; /* byte offsets; what is before `begin` does not travel */
    size_t token, position, seq_of, slot, q_start, kv_len, page_start, decode_plan, prefill_plan,
        page_ids; /* these last */
} step_layout;

/* Calls [begin, end) of the program, and the sizes that they depend on. */
typedef struct step_piece {
    int32_t begin, end, tokens, seqs, rows, decodes, prefill_items;
} step_piece;

typedef struct piece_graph {
    step_piece piece;
    cuda_graph graph;
} piece_graph;

typedef struct result_slot {
    char *step_block; /* pinned: the step's arrays */
    char *extra; /* pinned: contexts, biases, masks; grown when a step needs more than any before */
    size_t extra_bytes;
    int32_t *token, *top_id;
    float *logprob, *top_logprob;
    cu_event begin, end;
    vt_step_result view;
    int32_t n_rows;
} result_slot;

typedef struct cuda_executor {
    vt_executor base;
    const vt_model *model;
    vt_executor_config config;
    vt_cuda_options options;
    vt_cuda *cuda;
    vt_cuda_weights *weights;
    cuda_range kv_range;      /* the growing thread's while it grows */
    _Atomic int32_t kv_ready; /* pages that are backed */
    _Atomic int kv_growth;
    pthread_t kv_thread;
    bool kv_thread_started;
    vt_kv_cache kv;
    vt_tensor *kv_tensors;
    vt_program *prog;
    void *activations, *workspace, *tickets, *step_block, *contexts, *biases, *masks, *token_pool,
        *copies;
    size_t step_bytes, tail_bytes; /* of the largest step's block, and of its part for rows */
    sample_cuda_counts most;       /* that contexts, biases and masks have room for */
    vt_cuda_lane lane;
    attention_plan_config plan;
    int32_t n_body;       /* calls [0, n_body) are the layers */
    int32_t graph_tokens; /* of the largest prefill step that is a graph; 0: none is */
    piece_graph graph[MAX_GRAPHS];
    int32_t n_graphs, max_graphs;
    result_slot slot[SLOTS];
    uint64_t launched, waited;
    uint64_t shared_items; /* of all steps' decode plans */
    float gap_us[GAPS];    /* gap k is at k % GAPS */
    uint64_t n_gaps;
    vt_cuda_startup startup;
    struct cuda_spans *spans; /* NULL: does not record */
} cuda_executor;

static inline cu_ptr cuda_address(const void *p) { return (cu_ptr)(uintptr_t)p; }

/* ---- cuda_step.c ---- */

size_t cuda_step_tail_bytes(int32_t rows); /* of the part for rows */
step_layout cuda_step_layout(const cuda_executor *x, const step_shape *s);
/* The bucket of n sequences or rows where at most `most` fit; 0: none. */
int32_t cuda_step_bucket(int32_t n, int32_t most);
/* Sequences of the largest decode bucket, at most. */
int32_t cuda_step_most_decode(const cuda_executor *x);
step_shape cuda_step_decode(const cuda_executor *x, int32_t seqs); /* a decode bucket's */
step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *b);
/* The largest that any step can have, without its page ids. */
step_shape cuda_step_largest(const cuda_executor *x);
/* The program and the lane get the shape's sizes and the device addresses of its arrays. */
void cuda_step_bind(cuda_executor *x, const step_shape *s);
/* Fills the pinned block for the step, padded to the shape; returns where it ends. */
size_t cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out);
/* Sampling rows into the block; contexts, biases and masks, which few steps have, by copies of
 * their own. */
vt_status cuda_step_fill_rows(cuda_executor *x, const vt_step *step, const step_shape *s,
                              result_slot *slot, vt_err *err);

/* ---- cuda.c ---- */

/* Launches calls [begin, end) of the bound program; rope and the store behind it as one. */
vt_status cuda_run_calls(cuda_executor *x, int32_t begin, int32_t end, vt_err *err);
vt_status cuda_run_copies(cuda_executor *x, int32_t n, vt_err *err);

/* ---- cuda_kv.c ---- */

vt_status cuda_kv_make(cuda_executor *x, vt_err *err);
void cuda_kv_join(cuda_executor *x);                  /* before the range is released */
int32_t cuda_kv_pages(vt_executor *x, int32_t taken); /* vt_executor.pages */
void *cuda_kv_first_page(const cuda_executor *x);     /* the engine's page 0 of the first pool */

/* ---- cuda_spans.c: these do nothing where the executor does not record ---- */

vt_status cuda_spans_new(cuda_executor *x, vt_err *err);
void cuda_spans_free(cuda_executor *x);
/* Before anything of the step is launched. True: its calls shall run one by one and be timed, even
 * where there is a graph for them. */
bool cuda_spans_begin(cuda_executor *x, const vt_step *step);
/* There is a graph for the step, in which it has so many tokens with the padding. */
void cuda_spans_fits(cuda_executor *x, int32_t tokens);
/* Bytes that the step copied. */
void cuda_spans_moved(cuda_executor *x, vt_trace_move way, size_t bytes);
/* Everything is launched up to the end of call `call` and of the `further` ones that went with it;
 * call -1: up to the end of the uploads. */
vt_status cuda_spans_mark(cuda_executor *x, int32_t call, int32_t further, vt_err *err);
/* All of the step but its end event is launched. */
void cuda_spans_launched(cuda_executor *x);
/* The step has ended, view.end_ns is when the host knew: corrects the times in the view and writes
 * the step's events. */
vt_status cuda_spans_end(cuda_executor *x, result_slot *slot, vt_err *err);
bool cuda_spans_recording(const cuda_executor *x, vt_cuda_recording *out);

/* ---- cuda_graph.c ---- */

/* Cuts a step of this shape into pieces; returns how many. */
int32_t cuda_graph_cut(const cuda_executor *x, const step_shape *s, step_piece piece[MAX_PIECES]);
/* Runs the bound step, as graphs where they are there; apart: call by call all the same. */
vt_status cuda_graph_run(cuda_executor *x, const step_shape *s, bool apart, vt_err *err);
/* Captures what of the bound step may be graphs and is not yet. */
vt_status cuda_graph_capture(cuda_executor *x, const step_shape *s, vt_err *err);

/* ---- cuda_start.c ---- */

/* What needs no device: plan, KV description, program. */
vt_status cuda_start_describe(cuda_executor *x, vt_err *err);
/* A dry run over the buckets and a ladder of prefill sizes names every kernel that steps need. */
vt_status cuda_start_collect(cuda_executor *x, vt_err *err);
/* All of it: device, weights, memory, kernels, graphs. */
vt_status cuda_start_build(cuda_executor *x, vt_err *err);

#endif
