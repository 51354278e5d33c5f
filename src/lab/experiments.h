/* Between the experiments: a server to look at, loads on it, files of their own names. */
#ifndef VT_LAB_EXPERIMENTS_H
#define VT_LAB_EXPERIMENTS_H

#include "lab/lab.h"
#include "load/measure.h"

extern const lab_def lab_experiment_1, lab_experiment_2, lab_experiment_3, lab_experiment_4,
    lab_experiment_5, lab_experiment_6;

/* Sessions of `turns` turns of `input` words and at most `output` tokens, `concurrency` at once;
 * `shared` tokens in front of all sessions of a group are the same. */
typedef struct lab_load {
    int32_t n, concurrency, input, output, turns, shared, groups;
    uint64_t seed;
} lab_load;

/* What a load gave: the summary, and each answer in the order of the plan (malloc'ed). */
typedef struct lab_answers {
    vt_load_summary sum;
    vt_load_result *result;
    int32_t n;
} lab_answers;

vt_status lab_load_run(lab *l, const lab_server *s, const lab_load *load, lab_answers *out,
                       vt_err *err);
void lab_answers_release(lab_answers *a);

/* The server that experiment 1 left running, if it still answers and has the lab's model; else a
 * new one with these arguments. *own: it was started here. */
vt_status lab_server_borrow(lab *l, const char *const *args, lab_server *out, bool *own,
                            vt_err *err);
/* Notes the server in the results, for the other experiments. */
vt_status lab_server_leave(lab *l, const lab_server *s, vt_err *err);
/* Ends the server that was left; VT_ERR_USAGE: there is none. */
vt_status lab_server_end_left(lab *l, vt_err *err);

/* Writes a file of the results, and notes it. */
vt_status lab_write_json(lab *l, const char *name, const json_t *object, const char *what,
                         vt_err *err);
vt_status lab_write_text(lab *l, const char *name, const vt_buf *text, const char *what,
                         vt_err *err);
/* Bytes of memory that the process has; NAN: not known. */
double lab_resident_bytes(int pid);
/* A spread as JSON: {"n", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms"} */
json_t *lab_spread_json(const vt_load_spread *s);

#endif
