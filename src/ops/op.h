/* The op card: an op is declared in one place and everything else is derived from it.
 *
 *   card ── maths and argument struct      <op>/<op>.h
 *        ── cost: exact bytes and FLOPs    -> explain, story, roofline, predictions
 *        ── reference: plain scalar C      -> parity tests of every implementation
 *        ── cases: shapes to try           -> tests, vitrine bench kernels
 *        ── implementations, best first    -> the executor takes the first that fits
 *
 * Rule of determinism (CPU): which implementation runs, and the order in which it adds numbers,
 * depends on the weight's type and the instruction set only; never on the number of rows, threads,
 * or what else is in the batch. No implementation splits a reduction over threads.
 */
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

/* ---- what an implementation runs on ---- */

typedef struct vt_cuda_lane vt_cuda_lane; /* device/cuda */

/* CPU: every worker of the team calls run() with the same args and its own lane; run() returns when
 * its share is done, and the executor puts a barrier after it. Inside, vt_team_barrier(lane->team,
 * lane->worker) may be used, by all workers alike. CUDA: run() is called once and only launches. */
typedef struct vt_lane {
    vt_device_kind device;
    /* CPU */
    vt_team *team;
    int32_t worker, n_workers;
    atomic_int *ticket; /* shared, zero when the call begins: for dynamic chunks */
    void *shared;       /* shared workspace of at least workspace(limits), 64-byte aligned */
    size_t shared_bytes;
    /* CUDA */
    vt_cuda_lane *cuda;
} vt_lane;

/* This worker's half-open share [*begin, *end) of n items, in units of `grain` (static split). */
void vt_lane_share(const vt_lane *lane, int64_t n, int64_t grain, int64_t *begin, int64_t *end);

/* Upper bounds the engine promises for every step; sizes of all memory follow from them. */
typedef struct vt_limits {
    int32_t max_tokens, max_seqs, max_rows, max_context, page_size, n_workers;
} vt_limits;

/* ---- weights ---- */

/* One logical weight matrix [rows, cols] of a linear op, made of up to 3 stacked tensors of one
 * type (q, k and v; gate and up), packed once at load into the layout its implementation wants. A
 * part may be a view of a larger tensor: row_stride elements from row to row, of which cols are
 * used. */
typedef struct vt_weight {
    const vt_tensor *part[3]; /* each [rows_i, cols] */
    int32_t n_parts;
    int32_t n_experts;  /* this is the matrix of one of n_experts experts; 0: of no expert */
    bool paired;        /* two parts of equal rows whose rows i belong together (gate, up): the
                           packed form may interleave them; y_i = epilogue(gate_i, up_i) */
    int64_t rows, cols; /* sums over the parts */
    vt_dtype dtype;
    const vt_tensor *scale[3]; /* FP8: of each part, one number or one a 128x128 block; or NULL */
    void *packed;              /* made by impl->pack; NULL: run() reads part[] directly */
    size_t packed_bytes;
    const struct vt_impl *packed_for;
} vt_weight;

/* ---- implementations and cards ---- */

typedef struct vt_impl {
    const char *name; /* "portable", "avx2", "avx512vnni", "fa3" */
    vt_device_kind device;
    vt_isa isa;                         /* CPU: the instruction set it needs */
    bool (*supports)(const void *args); /* NULL: everything */
    vt_status (*run)(const void *args, const vt_lane *lane);
    /* Optional: the form in which run() reads a weight, where that is not the file's. It takes
     * pack_bytes(w) bytes, in units (rows, or tiles of rows) of pack_unit(w) bytes each. pack()
     * writes units [first, first + n) to dst; threads may pack disjoint ranges at the same time. So
     * a GPU's loader can convert and copy a matrix piece by piece. pack_bytes(w) is 0 where w needs
     * no packing (CPU) or where run() has no form for it (CUDA, see vt_op_packer). pack_type is the
     * element type of the packed matrix where run() asks for it (CUDA); NULL: the type of w. */
    size_t (*pack_bytes)(const vt_weight *w);
    size_t (*pack_unit)(const vt_weight *w);
    vt_dtype (*pack_type)(const vt_weight *w);
    void (*pack)(const vt_weight *w, int64_t first, int64_t n, void *dst);
    size_t (*workspace)(const void *args,
                        const vt_limits *limits); /* shared bytes; args at their limits */
    vt_cost (*extra)(const void *args);           /* traffic beyond the compulsory */
} vt_impl;

/* A case to try: builds its own random args in an arena (seeded), with the reference's output
 * tensor named by outputs(). See ops/cases.h for the helpers cards use. */
typedef struct vt_case {
    const char *name; /* "tokens=17 hidden=576" */
    int64_t p[8];     /* parameters, meaning fixed by the card's make_args */
    bool bench;       /* a real model's shape: timed by `vitrine bench kernels` */
} vt_case;

#define VT_MAX_OUTPUTS 4

typedef struct vt_op {
    const char *name; /* "rmsnorm" */
    const char *what; /* one sentence */
    size_t args_size;
    double tolerance; /* max |got - want| / (1 + |want|) allowed of a parity test */
    const char *tolerance_reason;
    vt_cost (*cost)(const void *args); /* args carry the batch where it matters */
    void (*reference)(const void *args);
    const vt_case *cases;
    int32_t n_cases;
    /* Random args for a case, everything from `arena`; outputs are listed so that a test can poison
     * and compare them. Returns NULL when out of memory. */
    void *(*make_args)(const vt_case *c, uint64_t seed, vt_arena *arena,
                       vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs);
    const vt_impl *const *impls; /* NULL-terminated, best first within a device */
} vt_op;

/* Every card, NULL-terminated. */
extern const vt_op *const vt_ops[];
const vt_op *vt_op_find(const char *name);

/* The first implementation for this device and instruction-set level that supports args; NULL if
 * none. The portable one supports everything its card does. */
const vt_impl *vt_op_select(const vt_op *op, vt_device_kind device, vt_isa level, const void *args);

/* The first implementation for this device and level that packs w: its pack_bytes(w) is not 0. NULL
 * if none does. A CUDA loader asks this; the program asks vt_op_select once weights are packed. */
const vt_impl *vt_op_packer(const vt_op *op, vt_device_kind device, vt_isa level,
                            const vt_weight *w);
/* All of w into dst, pack_bytes(w) bytes. */
void vt_pack_all(const vt_impl *impl, const vt_weight *w, void *dst);

#endif
