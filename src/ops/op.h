/* The op card: an op is declared in one place and everything else is derived from it.
 *
 *   card ── maths and argument struct      <op>/<op>.h
 *        ── cost: exact bytes and FLOPs    -> explain, story, roofline, predictions
 *        ── reference: plain scalar C      -> parity tests of every row
 *        ── cases: shapes to try           -> tests, vitrine bench kernels, labs
 *        ── draws: random shapes           -> tests on a CPU and a GPU (ops/case_draw.h)
 *        ── shape: the case a call is      -> expected times, labs (ops/shape_of.h)
 *        ── operands: what the args hold   -> the same call on a GPU (ops/calls/on_cuda.h)
 *        ── impls: one row a kernel family, best first
 *        ── variants: rows that the engine never chooses; parity, bench and labs run them
 *
 * How a row is chosen. A program is built for a target (the device and what the user asked of it).
 * For each call the first row that supports the call and suits its size is taken; on a GPU that
 * depends on the number of tokens, so a call keeps a small table "up to n tokens: row"
 * (vt_choice), which `vitrine explain` prints.
 *
 * Rule of determinism (CPU): which row runs, and the order in which it adds numbers, depends on the
 * weight's type and the instruction set only; never on the number of tokens, threads, or what else
 * is in the batch. No row splits a reduction over threads. With --deterministic the same holds on a
 * GPU: only rows with `fixed_order` are taken. */
#ifndef VT_OPS_OP_H
#define VT_OPS_OP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/team.h"
#include "base/tensor.h"
#include "device/cpu.h"
#include "ops/batch.h"
#include "vitrine.h"

typedef enum vt_device_kind { VT_DEVICE_CPU, VT_DEVICE_CUDA } vt_device_kind;

/* ---- cost: compulsory traffic and work ---- */

typedef struct vt_traffic {
    int64_t weights, kv, activations; /* bytes */
} vt_traffic;

typedef struct vt_flops {
    int64_t fp32, bf16, fp8, int8; /* multiply and add count as two; the unit picks the roof */
} vt_flops;

typedef struct vt_cost {
    vt_traffic read, write;
    vt_flops flops;
} vt_cost;

void vt_cost_add(vt_cost *sum, const vt_cost *c);
int64_t vt_cost_bytes(const vt_cost *c);
int64_t vt_cost_flops(const vt_cost *c);

/* ---- sizes and targets ---- */

/* Upper bounds the engine promises for every step; sizes of all memory follow from them. */
typedef struct vt_limits {
    int32_t max_tokens, max_seqs, max_rows, max_context, page_size, n_workers;
    int32_t decode_tokens; /* the most tokens of a decode, at most VT_DECODE_MOST; 0 counts as 1 */
} vt_limits;

/* The size class of a step: what stays the same for all steps that one captured graph serves. A
 * step that is padded to a bucket has the bucket's numbers here and its own in the batch. */
typedef struct vt_size {
    int32_t tokens, seqs, rows; /* rows of logits */
    int32_t decodes;            /* sequences first in the batch (vt_batch.n_decode) */
    int32_t decode_tokens;      /* the most that one of them brings: 2, 4 or 8; 0: one */
    int32_t prefills;           /* the other sequences */
    int32_t copies;             /* page copies before the forward pass */
    int32_t pad_seqs;           /* decodes of the bucket beyond the batch's: one KV token each */
    bool bucket;                /* padded: plans round their items, so that few graphs are needed */
} vt_size;

/* The user's wish, given with --attention-backend or --linear-backend. */
typedef struct vt_backend {
    const char *op, *row; /* a row's name or family; both are the card's own strings */
} vt_backend;

/* The value of a card's knob (ops/knobs.h). */
typedef struct vt_knob_value {
    const struct vt_knob_row *row;
    int64_t value;
} vt_knob_value;

enum { VT_MAX_BACKENDS = 4, VT_MAX_KNOBS = 4 };

/* A program is built for this: the device as the rows of a card see it, and the user's wishes. */
typedef struct vt_target {
    vt_device_kind device;
    vt_isa isa; /* CPU: the instruction set level */
    vt_limits limits;
    size_t workspace_bytes; /* size of vt_lane.workspace; 0 while it is being decided */
    /* CUDA */
    int32_t level; /* 80: mma.sync and cp.async; 90: wgmma and TMA too */
    int32_t sm_count, max_shared_bytes;
    bool deterministic; /* a row's result does not depend on what else is in the batch */
    bool cublaslt;      /* the library is installed and may be used */
    bool cublaslt_all;  /* ... for every product it can compute, to measure it */
    vt_backend backend[VT_MAX_BACKENDS]; /* [n_backends] rows that come first wherever they fit */
    int32_t n_backends;
    vt_knob_value knob[VT_MAX_KNOBS]; /* [n_knobs] of cards; others have their presets */
    int32_t n_knobs;
} vt_target;

/* vt_size.decode_tokens for a batch with host arrays: how many tokens its decodes bring at most,
 * rounded up to 2, 4 or 8; 0 if none brings more than one. */
int32_t vt_decode_tokens(const vt_batch *b);
/* The size that has every limit at once; no step is larger. */
vt_size vt_size_most(const vt_limits *limits);
/* The number of rows of a tensor in a step of this size: its own, or that of what it follows
 * (vt_tensor.follows). */
int64_t vt_size_rows(const vt_tensor *t, const vt_size *size);

/* Returns what n tokens of a step on a GPU are padded to where a graph runs: 1, 2, 4, 16, 32, 64,
 * 80, 96, 128, then multiples of 32 up to 256, and of 64. All numbers that are padded to one size
 * have the same bits, padded or not (exec/cuda_step.c). */
int32_t vt_padded_tokens(int32_t n);
/* Rows, elements and bytes of a tensor in this batch; batch NULL: the tensor's own. */
int64_t vt_batch_rows(const vt_tensor *t, const vt_batch *batch);
int64_t vt_batch_elems(const vt_tensor *t, const vt_batch *batch);
int64_t vt_batch_bytes(const vt_tensor *t, const vt_batch *batch);
/* The number of states that the batch keeps beside those of state_to (vt_batch.state_behind). */
int64_t vt_batch_states_behind(const vt_batch *batch);

/* ---- lanes: where a row runs ---- */

typedef struct vt_cuda_lane vt_cuda_lane; /* device/cuda/cuda.h */

/* CPU: every worker of the team calls run() with the same args and its own lane; run() returns when
 * its share is done, and the executor puts a barrier after it. Inside, vt_team_barrier(lane->team,
 * lane->worker) may be used, by all workers alike. CUDA: run() is called once and only launches.
 * A call sees its own plan, side data, workspace and tickets, and no other call's. */
typedef struct vt_lane {
    const vt_target *target;
    const vt_size *size; /* the step's */
    const void *plan;    /* what the row's plan wrote for this step; on a GPU a device address */
    const void *side;    /* its side data; on a GPU a device address too */
    int32_t items;       /* the plan's items, padding counted */
    int32_t variant;     /* what the plan's variant() answered for this step; else 0 */
    const void *own;     /* of a row that is in no card (a lab's): what it needs beside the args */
    void *workspace;     /* shared by all calls one after the other; 64-byte aligned */
    size_t workspace_bytes;
    /* CPU */
    vt_team *team;
    int32_t worker, n_workers;
    atomic_int *ticket; /* shared by the workers, zero when the call begins: for dynamic chunks */
    int64_t *waited_ns; /* a worker adds the time that it waited for other ranks; or NULL */
    /* CUDA */
    vt_cuda_lane *cuda;
    uint32_t *tickets; /* as many as the row asked for, zero when the call begins and when it ends:
                          "the last CTA merges" */
} vt_lane;

/* This worker's half-open share [*begin, *end) of n items, in units of `grain` (static split). */
void vt_lane_share(const vt_lane *lane, int64_t n, int64_t grain, int64_t *begin, int64_t *end);

/* ---- weights ---- */

/* One logical weight matrix [rows, cols] of a linear op, made of up to 3 stacked tensors of one
 * type (q, k and v; gate and up), packed once at load into the layout its implementation wants. A
 * part may be a view of a larger tensor: row_stride elements from row to row, of which cols are
 * used. */
enum { VT_WEIGHT_PARTS = 6 }; /* at most */

typedef struct vt_weight {
    const vt_tensor *part[VT_WEIGHT_PARTS]; /* each [rows_i, cols] */
    int32_t n_parts;
    int32_t n_experts;  /* this is the matrix of one of n_experts experts; 0: of no expert */
    bool paired;        /* two parts of equal rows whose rows i belong together (gate, up): the
                           packed form may interleave them; y_i = epilogue(gate_i, up_i) */
    int64_t rows, cols; /* sums over the parts */
    vt_dtype dtype;
    /* FP8: of each part, one number or one a 128x128 block; or NULL */
    const vt_tensor *scale[VT_WEIGHT_PARTS];
    void *packed; /* made by packing->write; NULL: run() reads part[] directly */
    size_t packed_bytes;
    const struct vt_packing *packing; /* the layout of `packed` */
    bool packed_in_blocks; /* what vt_weight_in_blocks() said before the scales were packed, too */
} vt_weight;

enum { VT_SCALE_BLOCK = 128 };
/* FP8: whether rows 128 i to 128 i + 127 of the matrix (of each half of a pair) share their scales,
 * one for each 128 columns. False if a part begins elsewhere. */
bool vt_weight_in_blocks(const vt_weight *w);

/* A form in which rows of a card read a weight, if that is not the form of the file. A packed
 * weight has bytes(w) bytes, in units (rows, or tiles of rows) of unit(w) bytes each. write()
 * writes units [first, first + n) to dst. Threads may write disjoint ranges at the same time, so
 * that a GPU's loader can convert and copy a matrix piece by piece. Rows that read the same form
 * share its vt_packing. */
typedef struct vt_packing {
    const char *name;                     /* "tiles", "bf16", "x86" */
    size_t (*bytes)(const vt_weight *w);  /* 0: w is read as it is (CPU), or not at all (CUDA) */
    size_t (*unit)(const vt_weight *w);   /* bytes */
    vt_dtype (*type)(const vt_weight *w); /* type of the packed matrix; NULL: the weight's */
    void (*write)(const vt_weight *w, int64_t first, int64_t n, void *dst);
} vt_packing;

/* The weight that rows of a GPU get: matrix `host`, packed by `p` at `part`. */
vt_weight vt_weight_packed(const vt_weight *host, const vt_packing *p, const vt_tensor *part);

/* ---- rows and cards ---- */

/* Host work of a row for each step. Calls whose rows have the same vt_host_plan and equal keys
 * share one plan per step (for example the attention of all layers). The executor lays out the
 * plans of a program in one block, so a step allocates nothing and a captured graph needs no host
 * work. */
typedef struct vt_host_plan {
    const char *name;                  /* "decode_split" */
    uint64_t (*key)(const void *args); /* NULL: one plan for all calls */
    /* Items of work that a step of this size needs, rounded if size->bucket is set. batch NULL: the
     * most that any batch of this size can need. The number fixes grids, so it is part of a graph's
     * key. Rows of a CPU whose bytes() does not depend on the items may have NULL here. */
    int32_t (*items)(const void *args, const vt_target *t, const vt_size *size,
                     const vt_batch *batch);
    size_t (*bytes)(const void *args, const vt_target *t, const vt_size *size, int32_t items);
    /* Which of the row's n_variants kernel instances this batch needs, from 0. For rows of a GPU
     * that have an instance for what few batches contain; it reaches run() as vt_lane.variant and
     * is part of a graph's key. NULL: always 0. */
    int32_t (*variant)(const void *args, const vt_target *t, const vt_size *size,
                       const vt_batch *batch);
    int32_t n_variants;
    /* Data that few steps bring, of no fixed size: uploaded apart, only when there are some. Both
     * NULL: none. most_side_bytes bounds what side_bytes may answer; batch has host arrays. Only
     * rows of a GPU may have side data. */
    size_t (*most_side_bytes)(const void *args, const vt_target *t);
    size_t (*side_bytes)(const void *args, const vt_batch *batch);
    /* Fills out[bytes] and side[side_bytes] from a batch with host arrays, which is not padded:
     * size->pad_seqs says what follows it. Returns how many items the batch and its padding need;
     * more than `items` is an error of the plan, which the caller reports: the rest is not written.
     */
    int32_t (*fill)(const void *args, const vt_target *t, const vt_size *size,
                    const vt_batch *batch, int32_t items, void *out, void *side);
    /* How many of a filled plan's items serve several sequences at once. NULL: none ever do. */
    int32_t (*shared)(const void *plan, int32_t items);
} vt_host_plan;

/* plan->items(), or 0 if the plan has no such function. */
int32_t vt_plan_items(const vt_host_plan *plan, const void *args, const vt_target *t,
                      const vt_size *size, const vt_batch *batch);
/* plan->variant(); 0 where there is none, or no batch. */
int32_t vt_plan_variant(const vt_host_plan *plan, const void *args, const vt_target *t,
                        const vt_size *size, const vt_batch *batch);

/* How a row cuts its work. Stories, explain and labs print it. A member that does not apply is zero
 * or empty. */
typedef struct vt_cut {
    char shape[64];       /* "[512 x 4096] x [4096 x 6144]" */
    int32_t tile[3];      /* rows and columns of the output, and length of the reduction */
    int32_t split;        /* parts of the reduction that different workers sum */
    int64_t items;        /* pieces of work ... */
    int32_t workers;      /* ... divided among this many SMs (times resident) or CPU workers */
    int32_t resident;     /* CTAs an SM holds at once */
    double waves;         /* items / (workers * resident) */
    int32_t vector_bytes; /* bytes of one load */
    char roles[64];       /* "1 TMA producer warp, 2 consumer warpgroups" */
    char merge[64];       /* how split parts are merged: "last CTA", "cluster", "in order" */
} vt_cut;

typedef struct vt_impl {
    const char *name;   /* "gemm_sm90", "decode_split", "cublaslt", "avx512" */
    const char *family; /* another name that options take for several rows: "fa2"; or NULL */
    vt_device_kind device;
    vt_isa isa;       /* CPU: the instruction set it needs */
    int32_t level;    /* CUDA: the compute level it needs, 80 or 90; 0: any */
    bool fixed_order; /* CUDA: its sums do not depend on what else is in the batch */
    bool
        bf16_weights; /* CUDA: makes quantised weights BF16; others use their integers and scales */
    bool fp8_products; /* CUDA: FP8 tensor cores do what the card counts as bf16 products */
    /* Returns true if it can run a call of up to this size. NULL: every call. */
    bool (*supports)(const void *args, const vt_target *t, const vt_size *upto);
    /* Returns true if it is the right choice for a call of this size that it supports. NULL:
     * yes. */
    bool (*suits)(const void *args, const vt_target *t, const vt_size *upto);
    /* CUDA: returns true if in a step of this size it makes what the call in front of it makes
     * (linear_args.before, attention_args.before). Where all readers of that call do, it is left
     * out. NULL: never. */
    bool (*makes_before)(const void *args, const vt_size *size);
    /* Returns what that call costs a row that makes it, in a step of this batch, beside the op's
     * own cost; batch as in vt_op.cost. Rows with makes_before alone have it. */
    vt_cost (*before_cost)(const void *args, const vt_batch *batch);
    vt_status (*run)(const void *args, const vt_lane *lane);
    void (*describe)(const void *args, const vt_target *t, const vt_size *size, vt_cut *out);
    const vt_host_plan *plan;  /* NULL: no host work */
    const vt_packing *packing; /* NULL: reads weights as they are */
    /* CPU: the memory that this worker will read first in a call of the lane's size; places that it
     * reads in turn. NULL: it is not known. */
    void (*ahead)(const void *args, const vt_lane *lane, vt_ahead *out);
    /* Shared bytes, and tickets, that any step within the target's limits can need. */
    size_t (*workspace)(const void *args, const vt_target *t);
    int64_t (*tickets)(const void *args, const vt_target *t);
    /* Traffic beyond the compulsory, on a target; batch as in vt_op.cost. */
    vt_cost (*extra)(const void *args, const vt_target *t, const vt_batch *batch);
    /* CUDA: a library that computes for it, by its name in vt_probe_libraries ("cublasLt"). NULL:
     * the row has kernels of our own, which NVRTC compiles. */
    const char *library;
} vt_impl;

/* Fields that change from step to step. A class of shapes (ops/shape_of.h) rounds them. */
typedef enum vt_grows {
    VT_GROWS_NOT,
    VT_GROWS_TOKENS, /* with the new tokens, or the rows of logits, of a step */
    VT_GROWS_EACH,   /* with the new tokens of one sequence */
    VT_GROWS_SEQS,   /* with the sequences */
    VT_GROWS_CONTEXT /* with the tokens of KV of one sequence */
} vt_grows;

/* One field of a case's shape: `--shape KEY=VALUE` of `vitrine bench kernels` sets it. */
typedef struct vt_field {
    const char *name;         /* "tokens" */
    int64_t preset;           /* its value if a text (ops/case_text.h) does not name it */
    bool is_type;             /* a vt_dtype, by name */
    int64_t most;             /* 0: VT_FIELD_MOST. The least is 0 if the preset is 0, else 1 */
    const char *const *words; /* NULL-terminated names of the values 0, 1 ...; NULL: numbers */
    bool zero;                /* 0 is allowed although the preset is not 0 */
    vt_grows grows;
    bool of_rank; /* a value other than 0 makes a call that only one rank of several has */
} vt_field;

enum { VT_FIELD_MOST = 1 << 18 };
#define VT_UNSAID INT64_MIN /* a field of which a call's shape says nothing: the preset will do */

enum { VT_MAX_FIELDS = 20, VT_MAX_OUTPUTS = 4, VT_CASE_NAME = 160 };

/* A case to try. make_args of the card builds its random args. */
typedef struct vt_case {
    char name[VT_CASE_NAME];  /* "tokens=17 hidden=576": a text that makes the case again */
    int64_t p[VT_MAX_FIELDS]; /* values of the card's fields */
    bool bench;               /* a real model's shape: timed by `vitrine bench kernels` */
} vt_case;

/* The kind of a member of the args struct: with this the same call can be made on a GPU. */
typedef enum vt_operand_kind {
    VT_OPERAND_ACTIVATION, /* vt_tensor *: BF16 on a GPU; F32 where a case's output follows rows of
                              logits */
    VT_OPERAND_F32,        /* vt_tensor *: F32 on a GPU: norms, biases, tables, logits */
    VT_OPERAND_INT,        /* vt_tensor *: integers */
    VT_OPERAND_KV,         /* vt_tensor *: a KV pool: FP8 as it is, else BF16 */
    VT_OPERAND_KV_LAYERS,  /* vt_tensor *: the pools of all layers, `count` says how many; K and V
                              pools lie one after the other: L0 K, L0 V, L1 K ... */
    VT_OPERAND_WEIGHT,     /* vt_weight *: in the row's packing */
    VT_OPERAND_WEIGHTS,    /* vt_weight *: an array of several, `count` says how many */
    VT_OPERAND_TABLE,      /* vt_tensor *: a weight matrix that is looked up by rows */
    VT_OPERAND_BATCH,      /* vt_batch * */
    VT_OPERAND_INDEX,      /* int32_t *const *: an index for each row of the output */
    VT_OPERAND_POOL        /* int32_t *const *: the token pool; a case's has a slot for each row of
                              the output */
} vt_operand_kind;

typedef struct vt_operand {
    const char *name;
    size_t offset; /* in the args struct; the member may be NULL */
    vt_operand_kind kind;
    bool read, written;
    size_t count; /* KV_LAYERS, WEIGHTS: offset of the int32_t that says how many */
} vt_operand;

/* Kinds of weights whose form in memory the rows of one op decide. */
typedef enum vt_packs {
    VT_PACKS_NOTHING,
    VT_PACKS_MATRIX,  /* a matrix that all tokens are multiplied with */
    VT_PACKS_EXPERTS, /* the matrices of experts */
    VT_PACKS_HEADS,   /* a matrix for each head */
    VT_PACKS_TABLE    /* a matrix that is looked up by rows */
} vt_packs;

/* Answers to what stories and options ask of an op, as bits of vt_op.is. */
enum {
    VT_OP_DECODES = 1,  /* its query rows are the decodes of a step: its row is that of a decode */
    VT_OP_PREFILLS = 2, /* its query rows are the other sequences' */
    VT_OP_HEAVY = 4,    /* so much work for a byte that no neighbour could do it on the way */
    VT_OP_JOINS_RANKS = 8 /* it waits for the other ranks of its group (ops/comm.h) */
};

typedef struct vt_op {
    const char *name; /* "rmsnorm" */
    const char *what; /* one sentence */
    size_t args_size;
    double tolerance; /* max |got - want| / (1 + |want|) that a parity test allows */
    const char *tolerance_reason;
    /* The tolerance of a CPU's rows for a call with quantised weights. 0: no other one. */
    double quantised_tolerance;
    /* Compulsory traffic and work for a batch with host arrays. NULL: for the batch and the sizes
     * in the args themselves. */
    vt_cost (*cost)(const void *args, const vt_batch *batch);
    void (*reference)(const void *args);
    const vt_field *fields; /* [n_fields] the fields of a case */
    int32_t n_fields;
    /* A sentence that says why the values of a shape do not fit together; NULL if they do. The
     * pointer may be NULL: then every shape within the fields' limits is a case. */
    const char *(*refuses)(const vt_case *c);
    /* Texts of the cases to try (ops/case_text.h), NULL-terminated: "tokens=1|17 hidden=576". A '*'
     * in front: `vitrine bench kernels` times them, for they are a real model's. vt_op_case makes
     * the cases. */
    const char *const *cases;
    /* Texts from which random cases are drawn (ops/case_draw.h), NULL-terminated. NULL: they are
     * the card's cases with other sizes. */
    const char *const *draws;
    const char *no_draw; /* why the card has no random cases; NULL: it has them */
    /* Random args for a case, everything from `arena`; outputs are listed so that a test can poison
     * and compare them. Returns NULL when out of memory. */
    void *(*make_args)(const vt_case *c, uint64_t seed, vt_arena *arena,
                       vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs);
    /* The inverse of make_args: sets those fields of p[n_fields], which come as VT_UNSAID, that the
     * cost and the choice of a row depend on, for a batch as in `cost`. Weights of more than
     * most_weights elements are cut: fewer rows, a smaller vocabulary, fewer experts. Sequences of
     * several lengths become sequences of the mean length. */
    void (*shape)(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p);
    const char *no_shape;       /* why there is none; NULL: there is one */
    const vt_operand *operands; /* [n_operands] */
    int32_t n_operands;
    const vt_impl *const *impls;    /* NULL-terminated, best first within a device */
    const vt_impl *const *variants; /* NULL-terminated; or NULL: none */
    /* If results must not depend on the rest of the batch, this op must run on rows of the same
     * family as the op of this name, because a token may pass through either op. NULL: none. */
    const char *one_family_with;
    uint32_t is;    /* VT_OP_... */
    vt_packs packs; /* the weights whose form its rows decide */
    /* On a CPU: the row that weights are packed for, of this card or of one whose rows this card's
     * call; NULL if none takes such a weight. NULL: no row of a CPU packs anything. */
    const vt_impl *(*row_of)(const vt_weight *w, const vt_target *t);
    const char *backend; /* the option BACKEND-backend names its rows; NULL: none does */
    /* An environment variable with a number that its rows ask of the target (ops/knobs.h): from
     * which size on they do something, 0 for never. NULL: none. */
    const struct vt_knob_row *knob;
} vt_op;

/* Every card, NULL-terminated. */
extern const vt_op *const vt_ops[];
const vt_op *vt_op_find(const char *name);
/* The first card with this bit of `is`, or which packs such weights; NULL if there is none. */
const vt_op *vt_op_that_is(uint32_t is);
const vt_op *vt_op_that_packs(vt_packs kind);
/* Returns the error that a row on a CPU may have in this call. */
double vt_op_tolerance(const vt_op *op, const void *args);
/* The first operand of this kind; NULL: the op or the call has none. */
const void *vt_op_operand(const vt_op *op, const void *args, vt_operand_kind kind);

/* Returns true if the target has what the row needs, and the row supports the call. */
bool vt_impl_fits(const vt_impl *impl, const void *args, const vt_target *t, const vt_size *upto);
/* The card's cost of a call that this row runs, with its products in the unit that does them, and
 * that of the call in front of it if the row makes it. */
vt_cost vt_impl_cost(const vt_op *op, const vt_impl *impl, const void *args, const vt_batch *batch);
/* The row that runs a call of this size: the one that the user asked for, if it fits; else the
 * first one that fits and suits; NULL if there is none. On the CPU it does not depend on the
 * size. */
const vt_impl *vt_op_select(const vt_op *op, const void *args, const vt_target *t,
                            const vt_size *upto);
/* A row or variant of this name; NULL if none. */
const vt_impl *vt_op_row(const vt_op *op, vt_device_kind device, const char *name);

/* A call with up to `upto` tokens runs on impl. (For the head rows are counted, for decode
 * attention sequences.) */
typedef struct vt_choice {
    int32_t upto;
    const vt_impl *impl;
} vt_choice;

enum { VT_MAX_CHOICES = 12 };

/* Finds the rows for every size up to `most`, in rising order; the last one's upto is INT32_MAX.
 * Returns their number; 0 if some size has no row. */
int32_t vt_op_choose(const vt_op *op, const void *args, const vt_target *t, int32_t most,
                     vt_choice out[VT_MAX_CHOICES]);
/* Returns true if a row has this name, or belongs to this family. */
bool vt_impl_is(const vt_impl *impl, const char *name);
/* The target for the CPU at this level. limits may be NULL for calls that need no memory. */
vt_target vt_target_cpu(vt_isa isa, const vt_limits *limits);

/* Finds the form in which the op's rows for this device read w; *out is NULL if they read it as the
 * file has it. On a GPU it is the form of the first row that packs w. Loaders ask this: a program
 * chooses rows after weights are packed. False: no row takes such a weight. */
bool vt_op_packing(const vt_op *op, const vt_weight *w, const vt_target *t, const vt_packing **out);
/* Packs all of w into dst, which has packing->bytes(w) bytes. */
void vt_pack_all(const vt_packing *p, const vt_weight *w, void *dst);

#endif
