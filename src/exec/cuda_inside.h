/* The CUDA executor's parts, for cuda*.c. None of them knows an op by name.
 *
 *   cuda.c         launch, wait, free: what a step does
 *   cuda_run.c     running calls of the bound program: each sees its own plan and workspace
 *   cuda_step.c    a step's size and its block: where its arrays and plans lie, filling them
 *   cuda_graph.c   which parts of a step are graphs; running and capturing them
 *   cuda_kv.c      the KV cache's memory, which grows
 *   cuda_start.c   making one: memory, the kernels' dry run, capture
 *   cuda_recover.c what to do when the GPU fails: a lost context, a step that does not end
 *   cuda_ranks.c   an executor of several GPUs: a cuda_executor for each rank
 *   cuda_spans.c   an observer: which steps are timed, and when their calls ran
 *   cuda_stamped.c steps whose kernels stamp their begin and end, in graphs as well
 *   cuda_vitals.c, cuda_pm.c, cuda_activity.c, cuda_lines.c
 *                  observers that have CUPTI count, sample, record and look at lines */
#ifndef VT_EXEC_CUDA_INSIDE_H
#define VT_EXEC_CUDA_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/stamps.h"
#include "exec/cuda.h"
#include "exec/observer.h"
#include "exec/program.h"
#include "exec/ranks.h"
#include "exec/weights_cuda.h"

enum {
    MAX_IN_FLIGHT = 2,
    SLOTS = 4,
    MAX_GRAPHS = 192,
    MAX_STAMPED = 24,
    MISSED = 64,
    MAX_PIECES = 3,
    GAPS = 4096,         /* how many of the last gaps are kept */
    GRAPH_TOKENS = 1024, /* prefill and mixed steps of more tokens do not run as graphs */
    RETRY_STEPS = 1000   /* no capture is tried for this many steps after one that failed */
};

/* After a growth of the KV cache that failed, none is tried for this long. */
#define RETRY_NS ((int64_t)60 * 1000000000)

/* State of KV growth: idle, a thread is mapping memory, or the device had no more when it was last
 * asked. */
enum { KV_IDLE, KV_GROWING, KV_FULL };

/* Everything that the layout of a step's block depends on. `decode`, `body` and `tail` say which
 * parts of the step are padded to a bucket, and so may run as graphs (cuda_graph.c): the whole step
 * of decodes, the layers, and what follows them. */
typedef struct step_shape {
    vt_size size;                  /* with padding */
    int32_t items[VT_MAX_PLANS];   /* room in each plan; 0 for plans that this step does not use */
    int32_t variant[VT_MAX_PLANS]; /* vt_host_plan.variant */
    bool used[VT_MAX_PLANS];
    bool decode, body, tail;
    bool held; /* it is launched in two parts, so sampling is a piece of its own */
} step_shape;

/* Byte offsets in the block; bytes before `begin` are not copied to the device. */
typedef struct step_layout {
    size_t begin, row_token, token, position, seq_of, slot, q_start, kv_len, page_start;
    size_t window_slot, window_page_start; /* empty without window pages */
    size_t state_from, state_to;           /* empty without sequence state */
    size_t state_behind;                   /* empty where no step can have guesses, too */
    size_t hidden;                         /* of an MTP head; else empty */
    size_t second;                         /* empty where the model tells no two texts apart */
    size_t plan[VT_MAX_PLANS];
    size_t page_ids; /* the last array, because its size changes every step: those of the pages,
                        then those of the window pages */
} step_layout;

/* Calls [begin, end) of the program, and all that their launches depend on. */
typedef struct step_piece {
    int32_t begin, end, tokens, seqs, rows, decodes, decode_tokens;
    int32_t items[VT_MAX_PLANS], variant[VT_MAX_PLANS];
} step_piece;

typedef struct piece_graph {
    step_piece piece;
    cuda_graph graph;
    uint64_t used; /* number of the last step that launched it */
} piece_graph;

/* The graph of a piece's stamped kernels, and what it launches. */
typedef struct stamped_graph {
    piece_graph is;
    cuda_stamp_note *note; /* [n_notes] */
    int32_t n_notes;
    uint64_t mapped; /* its launches have rows of this step's table of CTAs; 0: they have none */
} stamped_graph;

/* The CTAs of one step, of a kind of which no other is told. */
typedef struct mapped_step {
    cuda_cta_table table;
    vt_cta_launch *launch; /* what was read of it; NULL: nothing was yet */
    vt_cta *cta;
    uint64_t number; /* as x->launched counts, plus 1; 0: none was chosen */
} mapped_step;

/* The stamps of a step in flight. */
typedef struct stamped_step {
    cuda_stamps stamps;        /* what it launches */
    uint64_t *copy;            /* pinned: of the places, when they were read */
    cu_event copied;           /* behind a copy that the next stamped step brought */
    uint64_t number;           /* as x->launched counts */
    bool pending;              /* they are in the places still */
    int64_t host_ns, timer_ns; /* one moment, on the host's clock and on the device's timer */
} stamped_step;

/* Steps whose kernels are stamped: see cuda_stamped.c. */
typedef struct stamped_steps {
    bool on;
    char why_not[192]; /* on is false */
    void *places;      /* the device's; NULL: there are none yet */
    cu_stream stream;  /* on which they are copied */
    stamped_step step[MAX_IN_FLIGHT];
    stamped_graph graph[MAX_STAMPED];
    int32_t n_graphs, max_graphs; /* max_graphs: MAX_STAMPED; tests set less */
    int64_t prepare_ns;    /* of the host, for graphs of a step that took the place of others */
    mapped_step mapped[2]; /* with prompt tokens, and of decodes alone */
    int32_t n_decodes;     /* that could have been mapped */
    vt_cta_facts ctas;
} stamped_steps;

/* A call of a stamped step, on the host's clock. */
typedef struct stamped_call {
    int32_t call;
    int64_t begin_ns, end_ns; /* of its first CTA (INT64_MAX: not known), and of its last */
    int64_t wait_ns;          /* in which it waited for other ranks; -1: not known */
} stamped_call;

typedef struct result_slot {
    char *step_block; /* pinned: the step's arrays and plans */
    char *side[2]; /* pinned: side data of the layers, and of the rows; grown when a step needs */
    size_t side_bytes[2]; /* more than any before */
    int32_t *token, *top_id;
    float *logprob, *top_logprob;
    void *hidden; /* hidden states that the program gives; of one that ends in them, in place of
                     all these */
    cu_event begin, end;
    vt_step_result view;
    int32_t n_rows;
} result_slot;

typedef struct cuda_executor {
    vt_executor base;
    const vt_model *model;
    vt_executor_config config;
    vt_cuda_options options;
    int32_t window; /* of layers with window pages: the most tokens that one of them sees */
    bool pairs;     /* the model tells a sequence's two texts apart (vt_batch.second) */
    vt_rank is;
    vt_comm_rank comm;                    /* group NULL: it runs alone */
    void *comm_flags, *comm_part;         /* in its memory, for its peers: vt_comm_gpu */
    void *comm_failed;                    /* of rank 0, in pinned memory: vt_comm_gpu.failed */
    atomic_llong waited_ns, waited_steps; /* for its peers, in stamped steps; and their number */
    void (*look_at_peers)(void *), *look_arg; /* called while a step takes long; or NULL */
    vt_cuda *cuda;
    vt_cuda_weights *weights;
    cuda_range kv_range[VT_KV_GROUPS]; /* belong to the thread that grows them while there is one */
    _Atomic int32_t kv_ready, kv_windows_ready; /* pages, and window pages, that have memory */
    _Atomic int kv_growth;
    int64_t kv_failed_ns; /* when KV_FULL was first seen; 0: not since the last growth */
    pthread_t kv_thread;
    bool kv_thread_started;
    vt_kv_cache kv;
    vt_program *prog;
    void *activations, *workspace, *tickets, *step_block, *token_pool, *states;
    size_t step_bytes, tail_bytes;   /* of the largest step's block, and of its part for rows */
    cuda_range side;                 /* has a part for each plan with side data */
    int32_t side_part[VT_MAX_PLANS]; /* which part is the plan's; -1: it has no side data */
    vt_cuda_lane lane;
    bool library;            /* cuBLASLt is open and may be used */
    const step_shape *bound; /* the step whose calls run; its layout */
    step_layout bound_layout;
    int32_t n_body;       /* calls [prog->n_before, n_body) are the layers */
    int32_t graph_tokens; /* the most tokens of a prefill step that runs as graphs; 0: none does */
    piece_graph graph[MAX_GRAPHS];
    int32_t n_graphs, max_graphs;
    int64_t graph_nodes;    /* of the graphs that are kept */
    double node_host_bytes; /* of host memory a node, measured at start-up; 0: not known */
    uint64_t capture_from;  /* no graph is captured before this step, because a capture failed */
    int32_t retry_steps;    /* RETRY_STEPS; tests set less */
    int64_t retry_ns;       /* RETRY_NS; tests set less */
    uint64_t missed[MISSED];
    uint32_t n_missed; /* keys of pieces that found the cache full: see cuda_graph.c */
    result_slot slot[SLOTS];
    uint64_t launched, waited, captures;
    struct {
        const vt_step *step; /* a step whose forward pass was launched, and that has not been */
        step_shape shape;    /* sampled; NULL: none */
        result_slot *slot;
        bool apart;
    } unsampled;
    stamped_steps stamped;
    bool overlapping; /* kernels of graphs overlap as much as they can: see cuda_graph.c */
    bool restore;     /* they did before a step that was timed; the next decode restores it */
    struct {
        _Atomic int32_t graphs, kernels, algorithms;
        _Atomic uint64_t captures;
        _Atomic int64_t graph_bytes;
    } held;                /* copies of these numbers after each launch, for other threads */
    uint64_t shared_items; /* of all steps' plans: items that served several sequences */
    float gap_us[GAPS];
    vt_series gaps; /* the values are in gap_us */
    struct {
        double open_ms, weights_ms, compile_ms, capture_ms;
        vt_layout *layout; /* while it is made */
        vt_cuda_upload_run *upload;
        pthread_t opener; /* opens cuBLASLt; joined where `opening` is set */
        bool opening;
    } startup;
    vt_observers observers;
    struct cuda_vitals *vitals;     /* one of them; NULL: nobody asked for counters */
    struct cuda_pm *pm;             /* another; NULL: nobody asked for counters over time */
    struct cuda_activity *activity; /* another; NULL: nobody asked for records of kernels */
    struct cuda_lines *lines;       /* another; NULL: nobody asked for lines */
    int64_t step_limit_ns;          /* VITRINE_CUDA_STEP_LIMIT; 0: wait for ever */
    bool lost;                      /* the context is gone, and nothing has taken its place */
} cuda_executor;

/* Makes an executor of one GPU without anything on the device. */
cuda_executor *cuda_new(const vt_model *m, const vt_executor_config *config,
                        const vt_cuda_options *options, vt_err *err);
/* It is there: what was borrowed for making it is given up. */
void cuda_made(cuda_executor *x);

/* ---- cuda_ranks.c ---- */

/* Makes an executor of config->n_ranks GPUs. */
vt_status cuda_ranks_new(const vt_model *m, const vt_executor_config *config,
                         const vt_cuda_options *options, vt_executor **out, vt_err *err);
/* Returns the first rank before this one that has the same GPU; -1: none has. */
int32_t cuda_shares_with(const cuda_executor *x);
/* Ends all waits for this rank, whose step cannot be launched as a whole. */
void cuda_ranks_fail(cuda_executor *x);

/* ---- cuda_step.c ---- */

/* Bytes of a block's part for this many rows of logits. */
size_t cuda_step_tail_bytes(const cuda_executor *x, int32_t rows);
step_layout cuda_step_layout(const cuda_executor *x, const step_shape *s);
/* The bucket for n sequences or rows where at most `most` fit; 0: none. */
int32_t cuda_step_bucket(int32_t n, int32_t most);
/* The most sequences of a decode bucket. */
int32_t cuda_step_most_decode(const cuda_executor *x);
step_shape cuda_step_decode(const cuda_executor *x, int32_t seqs); /* a decode bucket's shape */
step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *b);
/* A shape of this size without a batch: it has room for the items of any batch of that size. */
step_shape cuda_step_of_size(const cuda_executor *x, const vt_size *size);
/* The program gets the shape's sizes and the device addresses of its arrays. `s` must live until
 * the next bind. */
void cuda_step_bind(cuda_executor *x, const step_shape *s);
/* Fills the pinned block for the step, padded to the shape. *end: where it ends. Fails if a plan
 * needs more items than the shape has room for. */
vt_status cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out,
                         size_t *end, vt_err *err);
/* Copies the side data of the plans that this step uses; few steps have any. Also fills these plans
 * in the pinned block. `rows`: the plans of calls for rows, else the others. */
vt_status cuda_step_upload_side(cuda_executor *x, const vt_step *step, const step_shape *s,
                                bool rows, result_slot *slot, vt_err *err);
/* Copies the plans of calls for rows that have side data from the pinned block, where they were
 * filled after the block was copied. */
vt_status cuda_step_upload_late(cuda_executor *x, const step_shape *s, const result_slot *slot,
                                vt_err *err);

/* ---- cuda_run.c ---- */

/* Launches calls [begin, end) of the bound program. */
vt_status cuda_run_calls(cuda_executor *x, int32_t begin, int32_t end, vt_err *err);

/* ---- cuda_kv.c ---- */

vt_status cuda_kv_make(cuda_executor *x, vt_err *err);
void cuda_kv_join(cuda_executor *x);                          /* before the range is released */
vt_kv_count cuda_kv_pages(vt_executor *x, vt_kv_count taken); /* vt_executor.pages */

/* ---- cuda_recover.c ---- */

/* Waits for an event behind a step. An error if the step does not end in time. */
vt_status cuda_wait_event(cuda_executor *x, cu_event event, const char *what, vt_err *err);
/* Frees everything but the vt_cuda, the observers and the executor itself. */
void cuda_release(cuda_executor *x);
bool cuda_lost(vt_executor *base);                    /* vt_executor.lost */
vt_status cuda_renew(vt_executor *base, vt_err *err); /* vt_executor.renew */
/* Its first part: everything on the device is given up, and a lost context made anew. */
vt_status cuda_renew_begin(cuda_executor *x, vt_err *err);

/* ---- cuda_spans.c ---- */

/* Makes the observer that records spans, and puts it into the executor's list. */
vt_status cuda_spans_new(cuda_executor *x, vt_err *err);

/* ---- cuda_vitals.c ---- */

/* Makes the observer that reads counters, where options.counters asks for it. */
vt_status cuda_vitals_new(cuda_executor *x, vt_err *err);
/* Returns true if it counts the step that is launched next, which is not stamped then. */
bool cuda_vitals_takes(const cuda_executor *x, const vt_step *step);
/* Ends counting on all ranks if one of them cannot count. */
void cuda_vitals_agree(cuda_executor *const *rank, int32_t n);
/* Fills the members of a source that speak of vitals. */
void cuda_vitals_tell(const cuda_executor *x, vt_source *out);

/* ---- cuda_activity.c ---- */

/* Has CUPTI watch graphs from now on, where options.activity asks for it. */
vt_status cuda_activity_open(cuda_executor *x, vt_err *err);
/* Puts its observer into the executor's list, once there are others. */
void cuda_activity_observe(cuda_executor *x);
/* Frees it, if it is in no list yet. */
void cuda_activity_drop(cuda_executor *x);
/* Call `call` is launched or captured next; -1: none is. */
void cuda_activity_call(const cuda_executor *x, int32_t call);
/* Returns true if the step that is being launched is recorded. */
bool cuda_activity_records(const cuda_executor *x);
/* Returns true if it records the step that is launched next, which is not stamped then. */
bool cuda_activity_takes(const cuda_executor *x, const vt_step *step);
/* Waits until the stream is empty, as it must be before a step that is recorded. */
vt_status cuda_activity_wait(const cuda_executor *x, vt_err *err);
/* Fills the members of a source that speak of it. */
void cuda_activity_tell(const cuda_executor *x, vt_source *out);

/* ---- cuda_lines.c ---- */

/* Makes the observer that samples the program counter, where options.lines asks for it. */
vt_status cuda_lines_new(cuda_executor *x, vt_err *err);
/* Returns true while steps are sampled. */
bool cuda_lines_sampling(const cuda_executor *x);
/* Fills the members of a source that speak of it; sampling ends. */
void cuda_lines_tell(const cuda_executor *x, vt_source *out);

/* ---- cuda_pm.c ---- */

/* Makes the observer that samples the GPU, where options.lanes asks for it. */
vt_status cuda_pm_new(cuda_executor *x, vt_err *err);
/* Fills the members of a source that speak of it, when all samples up to now are in the ring. */
void cuda_pm_tell(const cuda_executor *x, vt_source *out);

/* ---- cuda_graph.c ---- */

/* Cuts a step of this shape into pieces; returns how many. */
int32_t cuda_graph_cut(const cuda_executor *x, const step_shape *s, step_piece piece[MAX_PIECES]);
/* Runs the pieces of the bound step that lie in [begin, end): those that have a graph as graphs,
 * the others call by call. `apart`: all of them call by call. */
vt_status cuda_graph_run(cuda_executor *x, const step_shape *s, int32_t begin, int32_t end,
                         bool apart, vt_err *err);
/* Captures those pieces of the bound step that may be graphs and have none yet. Where the cache is
 * full, a piece that was missed before takes the place of the one least recently used. */
vt_status cuda_graph_capture(cuda_executor *x, const step_shape *s, vt_err *err);

/* Returns true if the piece is padded to a bucket: only such pieces repeat often enough to be
 * captured. */
bool cuda_graph_may_be(const step_shape *s, const step_piece *p);
vt_status cuda_graph_capture_piece(cuda_executor *x, const step_piece *p, cuda_graph *out,
                                   vt_err *err);

/* ---- cuda_stamped.c ---- */

/* Finds out whether steps can be stamped, before kernels are collected. */
vt_status cuda_stamped_start(cuda_executor *x, vt_err *err);
/* A dry run between these two collects stamped kernels too. */
void cuda_stamped_collect(cuda_executor *x);
/* The step that is being launched is to be stamped. False: it cannot. */
bool cuda_stamped_begin(cuda_executor *x);
/* Captures the graphs that the bound step needs and that are not there. A piece without one runs
 * call by call. */
void cuda_stamped_prepare(cuda_executor *x, const step_shape *s);
/* Runs a piece of the bound step, stamped. *graphs grows by 1 if it has a graph. */
vt_status cuda_stamped_run(cuda_executor *x, const step_shape *s, const step_piece *p,
                           int32_t *graphs, vt_err *err);
/* Nothing more of the step is launched. */
void cuda_stamped_end(cuda_executor *x);
/* Returns the launches of the oldest step in flight, which was stamped. */
const cuda_stamps *cuda_stamped_oldest(const cuda_executor *x);
/* Reads when the calls of that step ran, which has ended: out[*n], at most `most`, in the order of
 * their launches. On the host's clock the uploads had ended at uploaded_ns, and the last
 * call at ran_ns. */
vt_status cuda_stamped_read(cuda_executor *x, int64_t uploaded_ns, int64_t ran_ns,
                            stamped_call *out, int32_t most, int32_t *n, vt_err *err);
/* Returns true if the CTAs of a step should be told apart: options.ctas asks for it, and it is the
 * first with prompt tokens, or the second of decodes alone that is not stamped otherwise. */
bool cuda_ctas_want(cuda_executor *x, const vt_step *step, bool timed);
/* The step for which cuda_stamped_begin was called will have a table of its CTAs. */
void cuda_ctas_begin(cuda_executor *x, bool prompt);
/* Reads the table of the oldest step in flight, which has ended. After cuda_stamped_read. */
vt_status cuda_ctas_read(cuda_executor *x, uint64_t step, bool prompt, vt_err *err);
/* Fills the members of a source that speak of CTAs. */
void cuda_ctas_tell(const cuda_executor *x, vt_source *out);
void cuda_stamped_release(cuda_executor *x, bool live);

/* ---- cuda_start.c ---- */

/* Makes everything that needs no device: target, KV description, program. */
vt_status cuda_start_describe(cuda_executor *x, vt_err *err);
/* A dry run over a ladder of sizes names every kernel that steps need. */
vt_status cuda_start_collect(cuda_executor *x, vt_err *err);
/* Makes all parts of the executor: device (unless x->cuda is open), weights, memory, kernels,
 * graphs. In two steps where peers must know its memory before it has kernels: after
 * cuda_start_place addresses are known, and the weights are on their way. If either step fails,
 * nothing is on its way any more. */
vt_status cuda_start_build(cuda_executor *x, vt_err *err);
vt_status cuda_start_place(cuda_executor *x, vt_err *err);
vt_status cuda_start_finish(cuda_executor *x, vt_err *err);
/* Ends what cuda_start_place began. */
void cuda_start_give_up(cuda_executor *x);

#endif
