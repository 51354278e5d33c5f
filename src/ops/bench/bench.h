/* Times implementations on the cases of their cards: what `vitrine bench kernels` prints, for a CPU
 * (bench.c) and for a GPU (bench_cuda.c, with the methods of ops/calls/on_cuda.h).
 *
 * A measurement on a CPU calls run() many times inside one run of the team, with a barrier after
 * each call, as an executor does. A repetition has so many calls that it lasts min_rep_ns. All
 * calls use the arguments of the case, so everything that fits into the cache is there. With
 * `cold`, calls rotate through as many copies of the arguments (at most 1,024) as memory's roof is
 * measured with bytes: several times what all caches hold. */
#ifndef VT_OPS_BENCH_BENCH_H
#define VT_OPS_BENCH_BENCH_H

#include "ops/calls/on_cuda.h"
#include "ops/op.h"

typedef struct bench_options {
    int32_t repetitions; /* 0: 7 */
    int64_t min_rep_ns;  /* 0: 2 ms */
    int64_t check_flops; /* the reference is run for cases up to this much work; 0: 10 GFLOP */
    bool all_cases;      /* also cases that are not marked `bench` */
    bool cold;
    bool variants;         /* also rows that an engine never chooses */
    const char *impl;      /* only rows of this name or family; NULL: all */
    const char *shape;     /* cases of this text (ops/case_text.h), for one op; NULL: the card's */
    on_cuda_method method; /* GPU */
    struct vt_ranges *counters; /* GPU: counts each row's call (bench_counters.h); NULL: not */
    struct vt_pc *pc;           /* GPU: samples each row's call (bench_lines.h); NULL: not */
    const vt_impl *extra; /* CPU: a row that is in no card, measured before the others; or NULL */
    const void *own;      /* its vt_lane.own */
} bench_options;

typedef struct bench_result {
    const vt_op *op;
    const vt_case *c;
    const vt_impl *impl;
    const char *method;                /* "cold" ... */
    const struct bench_counts *counts; /* NULL: nobody asked for them */
    const struct bench_lines *lines;   /* the same */
    const on_cuda *cuda;        /* the call on the GPU, for its kernels' names; NULL: on a CPU */
    int32_t n_workers, n_calls; /* CPU; calls per repetition */
    int64_t best_ns, median_ns; /* time of one call */
    double noise;               /* vt_noise of the repetitions */
    vt_cut cut;                 /* how the row cuts this call; all zeros: not told */
    vt_cost cost;               /* compulsory */
    int64_t bytes;              /* compulsory, plus the implementation's extra */
    int64_t flops;
    double gb_per_s, gflop_per_s; /* compulsory cost over the median time */
    /* difference from the reference, in the measure of the card's tolerance; NAN: not checked */
    double error, allowed;
    bool wrong;
    char why[256]; /* why the result is wrong; else empty */
    bool timed;    /* false on an emulated GPU: its times mean nothing, and are 0 */
} bench_result;

typedef void (*bench_report)(void *user, const bench_result *r);

/* Every CPU implementation up to `level` of the op of this name (NULL: of every op), case by case,
 * best implementation first. Unknown names fail. */
vt_status bench_kernels(const char *op_name, vt_team *team, vt_isa level,
                        const bench_options *options, bench_report report, void *user, vt_err *err);

/* The same for every CUDA row that supports the case. */
vt_status bench_kernels_cuda(const char *op_name, on_cuda_gpu *gpu, const bench_options *options,
                             bench_report report, void *user, vt_err *err);

/* Calls visit for every case that the options select. The case is freed after the call. */
vt_status bench_each_case(const char *op_name, const bench_options *options,
                          vt_status (*visit)(void *ctx, const vt_op *op, const vt_case *c,
                                             vt_err *err),
                          void *ctx, vt_err *err);
/* Returns true if the options select this row. */
bool bench_wants(const bench_options *o, const vt_impl *impl);

/* max |got - want| / (1 + |want|) over two equal lists of outputs; infinite where one is NaN and
 * the other is not, or where integers differ. */
double bench_error(vt_tensor *const *got, vt_tensor *const *want, int32_t n_outputs);

#endif
