/* The parts of `vitrine bench serve`. */
#ifndef VT_CLI_BENCH_BENCH_SERVE_H
#define VT_CLI_BENCH_BENCH_SERVE_H

#include "cli/bench/bench.h"
#include "load/run.h"

typedef struct load_bench {
    const cli *c;
    vt_load_target target;
    vt_load_plan plan;
    vt_trace_file trace;
    vt_load_options o;
    char model[256];
    vt_load_slo slo;
    vt_load_outcome out;
    vt_load_summary summary;
    int64_t shown_ns; /* when the progress line was last written */
} load_bench;

/* Writes the files of --jsonl and --report, and the text or the JSON object on stdout. *code is the
 * exit status. */
vt_status load_bench_report(load_bench *b, int *code, vt_err *err);

#endif
