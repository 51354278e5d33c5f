/* One call of a CUDA row outside an executor: tests, benchmarks and labs run any row of any card
 * with this, and no op is named in it (ops/calls/on_cpu.h is the twin for a CPU).
 *
 *   make_args ──> args on the host ──on_cuda_round──> values that a GPU holds exactly
 *                       │
 *                       ├── on_cuda_make ──> the same args on the device (op.h: operands)
 *                       │                       └── on_cuda_take(row) ── on_cuda_run ──┐
 *                       └── op->reference ──> outputs on the host ──────────── on_cuda_compare
 *
 * The order matters: the reference may change its args in place, so the device's are made first.
 *
 * The kind of an operand decides its form on the device: activations are BF16; norms, biases,
 * tables and logits are F32; integers stay as they are; KV pools are BF16 or FP8; weights have the
 * form that the row's packing writes; a batch has device arrays. A call has the plan, side data,
 * workspace and tickets that an executor would give it, sized for exactly this call.
 *
 * Before every checked run the operands that the row only writes, and the workspace, are filled
 * with a pattern (NaN as a float), which shows elements that the row does not write. on_cuda_round
 * puts the same pattern into the host's outputs. So rows of the output that belong to another op
 * (the decodes of a prefill call) must keep it. After the run the tickets must be zero again. */
#ifndef VT_OPS_CALLS_ON_CUDA_H
#define VT_OPS_CALLS_ON_CUDA_H

#include "device/cuda/cuda.h"
#include "ops/op.h"

typedef struct on_cuda_options {
    bool deterministic, pdl;
    bool padded;  /* plans round their items, as those of a captured graph do */
    bool library; /* cuBLASLt may be used if it is installed */
    bool always;  /* what a card's knob governs happens however small the call is; else never */
    size_t flush_bytes; /* written before a cold call; 0: cold calls are not timed */
    size_t margin;      /* bytes with a pattern on both sides of every operand; 0: none */
} on_cuda_options;

/* A GPU, a stream, and the other things that all calls share. */
typedef struct on_cuda_gpu {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_target target; /* without limits and workspace */
    bool padded, emulated;
    void *flush, *tickets;
    size_t flush_bytes, margin;
    jit_progress progress; /* of compiling; may be NULL */
    void *progress_user;
} on_cuda_gpu;

/* Fails, with VT_ERR_DEVICE for example, if this number has no usable GPU. */
vt_status on_cuda_open(int32_t ordinal, const on_cuda_options *o, on_cuda_gpu *g, vt_err *err);
void on_cuda_close(on_cuda_gpu *g);

enum { ON_CUDA_MAX_TWINS = 48, ON_CUDA_MAX_KERNELS = 256 };

/* The device's copy of one host tensor. */
typedef struct on_cuda_twin {
    vt_tensor host;   /* the host's tensor */
    vt_tensor device; /* the tensor that the args point at: all rows, or those of on_cuda_window */
    char *base;       /* all rows */
    size_t bytes;
    void *first; /* for operands that are read and written: their values before any run */
    bool read, written;
} on_cuda_twin;

/* Packed weights, and the pointers of the args to them. When a graph is timed, each of its calls
 * gets a copy of its own, because a step reads every weight from memory. */
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
    void *args;            /* on the device */
    const vt_batch *batch; /* on the host; if the op has no batch: the number of rows only */
    vt_batch counted, device_batch;
    const vt_batch *batch_on_device; /* NULL: not made yet */
    on_cuda_twin twin[ON_CUDA_MAX_TWINS];
    int32_t n_twins;
    on_cuda_weights weights[4];
    int32_t n_weights;
    bool quantised;              /* a weight is kept in fewer bits than BF16 */
    bool rounded;                /* a weight with scales on the host is BF16 here */
    struct on_cuda_block *block; /* [n_blocks] the args' device memory */
    int32_t n_blocks, max_blocks;
    vt_arena arena;
    vt_size size;
    vt_target target;
    /* for the row that was taken */
    const vt_impl *impl;
    void *plan, *side, *workspace;
    int32_t items, variant;
    int32_t filled; /* of the items those that the plan of this batch has */
    int64_t n_tickets;
    bool compiled;
    int32_t kernel[ON_CUDA_MAX_KERNELS]; /* the JIT's index of each launch of the last run */
    int32_t n_kernels;
} on_cuda;

/* Rounds the operands that are read to values which the device's types hold exactly, so that the
 * reference works on the same numbers. Fills operands that are only written with the pattern.
 * Weights whose packing keeps the bits of the file stay as they are. */
vt_status on_cuda_round(const vt_op *op, void *args, vt_err *err);

/* Makes the args on the device, with weights in the form of `packing` (of a row of the card); NULL:
 * in the form in which a model's weights are loaded. `args` and all that it points at must stay
 * valid. */
vt_status on_cuda_make(on_cuda *c, on_cuda_gpu *g, const vt_op *op, const void *args,
                       const vt_packing *packing, vt_err *err);
void on_cuda_release(on_cuda *c); /* *c may be all zeros */

/* Returns true if the row supports this call with the args as they were made. */
bool on_cuda_fits(const on_cuda *c, const vt_impl *impl);
/* The row that a program would take; NULL: none. */
const vt_impl *on_cuda_choice(const on_cuda *c);
/* Makes plan, side data, workspace and tickets for the row. */
vt_status on_cuda_take(on_cuda *c, const vt_impl *impl, vt_err *err);
/* Restricts the call to rows [at, at + n) of its activations and of all operands that follow them
 * row by row. The op must have neither batch nor index. on_cuda_fetch still returns all rows. */
void on_cuda_window(on_cuda *c, int64_t at, int64_t n);
/* Resets the operands to their first values, runs the row once and waits. Compiles kernels that are
 * not compiled yet. */
vt_status on_cuda_run(on_cuda *c, vt_err *err);
/* Launches the row once more on the operands' present values, and does not wait. */
vt_status on_cuda_launch(on_cuda *c, vt_err *err);

/* Returns how far an element may be from the reference: |got - want| <= allowed (1 + |want|).
 *
 *   0       the card's own tolerance is 0: copies, stores; and always for integers and ids
 *   0.02    a quantised weight, or an FP8 one with scales, is BF16 on the device, or the row makes
 *           it BF16: the reference has the integers and scales of the file
 *   0.01    BF16 results of fp32 sums
 *   0.002   F32 results
 *
 * FP8 results may be off by one code, because the last bit of an fp32 sum can decide a rounding. */
double on_cuda_tolerance(const on_cuda *c, const vt_tensor *device);

typedef struct on_cuda_error {
    double worst;   /* max |got - want| / (1 + |want|) over outputs that are allowed to differ */
    double allowed; /* the tolerance of that output */
    bool good;
    char why[256]; /* place and values of the first wrong element */
} on_cuda_error;

/* Compares the outputs with those that the reference left in the host's args, and checks that the
 * tickets are zero. */
vt_status on_cuda_compare(on_cuda *c, vt_tensor *const *outputs, int32_t n_outputs,
                          on_cuda_error *out, vt_err *err);
/* With margins: notes what the operands hold that the row must not change. Call it before the run
 * that on_cuda_check_margins checks. */
vt_status on_cuda_note_margins(on_cuda *c, vt_err *err);
/* Checks that the bytes around every operand, and the operands that the row only reads, are as they
 * were. If not, `why` says which operand and where: "it wrote 2 bytes behind the end of y ...". */
vt_status on_cuda_check_margins(on_cuda *c, bool *good, char why[256], vt_err *err);
/* The device's bytes of an output, rows row_stride elements apart. The caller frees them. */
vt_status on_cuda_fetch(on_cuda *c, const vt_tensor *output, void **bytes, vt_err *err);
/* The device's twin of a host tensor; NULL: none. */
const on_cuda_twin *on_cuda_find(const on_cuda *c, const vt_tensor *host);

/* The compulsory cost on the device: with the device's types, and FLOPs of its units. */
vt_cost on_cuda_cost(const on_cuda *c);

/* ---- timing (on_cuda_time.c) ---- */

/* cold    the median of single launches between two events, each after a fill of flush_bytes. The
 *         fill runs longer than the launches take to arrive, so the host's share is hidden; an
 *         empty pair of events reads about 2 us. Operands changed in place are put back before.
 * warm    the same without the fill
 * graph   the period of a call inside a CUDA graph of 48 equal calls, which is what a call costs in
 *         a decode step. Activations are warm; each call reads another copy of the weights, as far
 *         as memory allows.
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
    double us, us_min, us_max; /* median, least and most */
    double noise;              /* vt_noise of the repetitions */
    int32_t n;
} on_cuda_times;

/* quick: few repetitions, for an emulated GPU whose times mean nothing. */
vt_status on_cuda_time(on_cuda *c, on_cuda_method method, bool quick, on_cuda_times *out,
                       vt_err *err);

#endif
