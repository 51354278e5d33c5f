/* A GPU's hardware counters of one call of an op: what `vitrine bench kernels --counters` shows.
 * The call runs again for each set of vitals (device/cupti/vitals.h), warm: straight after
 * itself. */
#ifndef VT_OPS_BENCH_BENCH_COUNTERS_H
#define VT_OPS_BENCH_BENCH_COUNTERS_H

#include "device/cupti/ranges.h"
#include "ops/calls/on_cuda.h"

typedef struct bench_counts {
    double vital[VT_VITALS];   /* of a call; NAN: not counted */
    double stalled[VT_STALLS]; /* shares of the cycles of the call's warps; NAN: not counted */
} bench_counts;

/* Counts the call, which has run before. `r`: of vt_ranges_open with room for BENCH_COUNT_RUNS. */
enum { BENCH_COUNT_RUNS = 3 };
vt_status bench_count(on_cuda *c, vt_ranges *r, bench_counts *out, vt_err *err);

#endif
