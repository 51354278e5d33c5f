/* One call of a CUDA row outside an executor: tests, benchmarks and labs run any row of any card
 * with this, and no op is named in it (ops/on_cpu.h is the twin for a CPU).
 *
 *   make_args ──> args on the host ──on_cuda_round──> values that a GPU holds exactly
 *                       │
 *                       ├── on_cuda_make ──> the same args on the device (op.h: operands)
 *                       │                       └── on_cuda_take(row) ── on_cuda_run ──┐
 *                       └── op->reference ──> outputs on the host ──────────── on_cuda_compare
 *
 * The order matters: the reference may change its args in place, so the device's are made first.
 *
 * What the device gets, by the kind of the operand: activations as BF16, norms, biases, tables and
 * logits as F32, integers as they are, KV pools as BF16 or FP8, weights in the form that the row's
 * packing writes, a batch with device arrays. A call has the plan, side data, workspace and tickets
 * that an executor would give it, sized for exactly this call.
 *
 * Before every checked run the operands that the row only writes, and the workspace, are filled
 * with a pattern (NaN as a float), so an element that nobody writes is seen; on_cuda_round puts the
 * same pattern into the host's outputs, so rows that belong to another op (the decodes of a prefill
 * call) must keep it. After the run the tickets must be zero again. */
#ifndef VT_OPS_ON_CUDA_H
#define VT_OPS_ON_CUDA_H

#include "device/cuda.h"
#include "ops/op.h"

typedef struct on_cuda_options {
    bool deterministic, pdl;
    bool padded;         /* plans round their items, as those of a captured graph do */
    bool library;        /* cuBLASLt may be used where it is there */
    int32_t shared_rows; /* vt_target.shared_rows */
    size_t flush_bytes;  /* written before a cold call; 0: cold calls are not timed */
} on_cuda_options;

/* A GPU, a stream, and what all calls share. */
typedef struct on_cuda_gpu {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_target target; /* without limits and workspace */
    bool padded, emulated;
    void *flush, *tickets;
    size_t flush_bytes;
    jit_progress progress; /* of compiling; may be NULL */
    void *progress_user;
} on_cuda_gpu;

/* VT_ERR_DEVICE and its like where there is no usable GPU of this number. */
vt_status on_cuda_open(int32_t ordinal, const on_cuda_options *o, on_cuda_gpu *g, vt_err *err);
void on_cuda_close(on_cuda_gpu *g);

enum { ON_CUDA_MAX_TWINS = 48, ON_CUDA_MAX_KERNELS = 256 };

/* The device's copy of one host tensor. */
typedef struct on_cuda_twin {
    vt_tensor host;   /* its sizes; data is the host's */
    vt_tensor device; /* what the args point at: all rows, or those of on_cuda_window */
    char *base;       /* all rows */
    size_t bytes;
    void *first; /* the values before any run, of operands that are read and written */
    bool read, written;
} on_cuda_twin;

/* Where packed weights lie, and the pointers of the args that say so: timing gives each call of a
 * graph a copy of its own (a step reads every weight from memory). */
typedef struct on_cuda_weights {
    char *base;
    size_t bytes;
    vt_tensor *part; /* [n], `each` bytes apart */
    int32_t n;
    size_t each;
} on_cuda_weights;

typedef struct on_cuda {
    on_cuda_gpu *gpu;
    const vt_op *op;
    void *args;            /* the device's */
    const vt_batch *batch; /* the host's; of an op without one: its number of rows alone */
    vt_batch counted, device_batch;
    const vt_batch *batch_on_device; /* NULL: not made yet */
    on_cuda_twin twin[ON_CUDA_MAX_TWINS];
    int32_t n_twins;
    on_cuda_weights weights[4];
    int32_t n_weights;
    bool quantised; /* some weight is kept in fewer bits than BF16 */
    bool rounded;   /* some quantised weight of the host's is BF16 */
    void **block;   /* device memory of the args */
    int32_t n_blocks, max_blocks;
    vt_arena arena;
    vt_size size;
    vt_target target;
    /* of the row that was taken */
    const vt_impl *impl;
    void *plan, *side, *workspace;
    int32_t items, variant;
    int64_t n_tickets;
    bool compiled;
    int32_t kernel[ON_CUDA_MAX_KERNELS]; /* the JIT's index of each launch of the last run */
    int32_t n_kernels;
} on_cuda;

/* Rounds what the args read to values that the device's types hold, so that the reference works on
 * the same numbers, and fills what they only write with the pattern. Weights that a packing keeps
 * in the file's bits stay as they are. */
vt_status on_cuda_round(const vt_op *op, void *args, vt_err *err);

/* The args on the device, weights in the form of `packing` (of a row of the card); NULL: the form
 * in which a model's weights are loaded. Both `args` and what it points at must stay. */
vt_status on_cuda_make(on_cuda *c, on_cuda_gpu *g, const vt_op *op, const void *args,
                       const vt_packing *packing, vt_err *err);
void on_cuda_release(on_cuda *c); /* takes a zeroed one */

/* Whether the row takes this call in the form in which it was made. */
bool on_cuda_fits(const on_cuda *c, const vt_impl *impl);
/* The row that a program would take; NULL: none. */
const vt_impl *on_cuda_choice(const on_cuda *c);
/* Makes plan, side data, workspace and tickets for the row. */
vt_status on_cuda_take(on_cuda *c, const vt_impl *impl, vt_err *err);
/* Makes the call one of rows [at, at + n) of its activations and of what follows them row by row;
 * for an op without a batch or an index. on_cuda_fetch still gives all rows. */
void on_cuda_window(on_cuda *c, int64_t at, int64_t n);
/* Puts the operands back to what they were at first, runs the row once and waits. Kernels that are
 * not compiled yet are compiled. */
vt_status on_cuda_run(on_cuda *c, vt_err *err);
/* Launches the row once more on what the operands hold now, and does not wait. */
vt_status on_cuda_launch(on_cuda *c, vt_err *err);

/* How far an element may be from the reference: |got - want| <= allowed (1 + |want|).
 *
 *   0       the card's own tolerance is 0: copies, stores. Integers and ids always.
 *   0.02    a quantised weight is BF16 on the device, or meets more than 64 tokens, where kernels
 *           make it BF16: the reference has the integers and scales of the file. (Few tokens, and
 *           the slots of experts, meet the integers themselves.)
 *   0.01    BF16 results of fp32 sums
 *   0.002   F32 results
 *
 * FP8 results may be the next code, where the last bit of an fp32 sum decides a rounding. */
double on_cuda_tolerance(const on_cuda *c, const vt_tensor *device);

typedef struct on_cuda_error {
    double worst;   /* max |got - want| / (1 + |want|) of what is allowed to differ */
    double allowed; /* of the output with the worst */
    bool good;
    char why[256]; /* where and what, of the first wrong element */
} on_cuda_error;

/* Holds the outputs against what the reference left in the host's args, and the tickets against
 * zero. */
vt_status on_cuda_compare(on_cuda *c, vt_tensor *const *outputs, int32_t n_outputs,
                          on_cuda_error *out, vt_err *err);
/* The device's bytes of an output, rows row_stride elements apart. The caller frees them. */
vt_status on_cuda_fetch(on_cuda *c, const vt_tensor *output, void **bytes, vt_err *err);
/* The device's twin of a host tensor; NULL: none. */
const on_cuda_twin *on_cuda_find(const on_cuda *c, const vt_tensor *host);

/* The compulsory cost as the device has it: types of its own, FLOPs of its units. */
vt_cost on_cuda_cost(const on_cuda *c);

/* ---- timing (on_cuda_time.c) ---- */

/* cold    the median of single launches between two events, each after a fill of flush_bytes. The
 *         fill runs longer than the launches take to arrive, so the host's share is hidden; an
 *         empty pair of events reads about 2 us. Operands changed in place are put back before.
 * warm    the same without the fill
 * graph   the period of a call inside a CUDA graph of 48 equal calls: what a decode step pays.
 *         Activations are warm; weights are another copy in each call, as far as memory allows.
 * pdl     the same with programmatic dependent launch */
typedef enum on_cuda_method {
    ON_CUDA_COLD,
    ON_CUDA_WARM,
    ON_CUDA_GRAPH,
    ON_CUDA_PDL,
    ON_CUDA_METHODS
} on_cuda_method;

extern const char *const on_cuda_method_name[ON_CUDA_METHODS]; /* "cold" ... */

typedef struct on_cuda_times {
    double us, us_min, us_max; /* median and range */
    int32_t n;
} on_cuda_times;

/* quick: few repetitions, for an emulated GPU whose times mean nothing. */
vt_status on_cuda_time(on_cuda *c, on_cuda_method method, bool quick, on_cuda_times *out,
                       vt_err *err);

#endif
