/* The lines of our kernels at which a call's warps were, and what they waited for there: what
 * `vitrine bench kernels --lines` shows. The call runs over and over, warm, while the hardware
 * samples the program counter (device/cupti/pc.h). */
#ifndef VT_OPS_BENCH_BENCH_LINES_H
#define VT_OPS_BENCH_BENCH_LINES_H

#include "device/cupti/pc.h"
#include "ops/calls/on_cuda.h"

enum { BENCH_LINES = 10 };

typedef struct bench_line {
    char file[64]; /* "rmsnorm.cu" */
    int32_t line;
    const char *text; /* of the line, without its indent; text_bytes long; NULL: not ours */
    int32_t text_bytes;
    uint64_t samples;
    uint64_t stalled[VT_STALLS];
} bench_line;

typedef struct bench_lines {
    int32_t n_calls;
    uint64_t samples; /* in the call's kernels */
    uint64_t placed;  /* of these, at a line of a file */
    uint64_t other;   /* in kernels that are not ours: a library's */
    vt_pc_totals totals;
    int32_t n; /* the lines with the most samples, first the one with most */
    bench_line line[BENCH_LINES];
} bench_lines;

/* Samples the call, which has run before. The JIT's cubins have lines (vt_jit_set_lines). */
vt_status bench_sample_lines(on_cuda *c, vt_pc *p, bench_lines *out, vt_err *err);

#endif
