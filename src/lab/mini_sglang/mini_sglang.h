/* The labs of the track mini-sglang share this. */
#ifndef VT_LAB_MINI_SGLANG_MINI_SGLANG_H
#define VT_LAB_MINI_SGLANG_MINI_SGLANG_H

#include "exec/describe.h"
#include "lab/kit/all_reduce.h"
#include "lab/kit/lab.h"
#include "story/step.h"

extern const lab_def mini_check_env, mini_test_kernels, mini_profile_index, mini_profile_store,
    mini_profile_attention, mini_profile_comm, mini_full_pipeline, mini_profile_radix;

/* ---- figures in sentences (mini_sglang/shared.c) ---- */

/* A rate beside the measured copy roof: "58 % of the measured copy roof of 3.96 TB/s", or that this
 * roof does not bind it. */
typedef struct mini_share {
    char text[160];
} mini_share;
mini_share mini_of_copy(const lab *l, double per_s);

/* Bytes of one line of the device's memory: 128 on a GPU, 64 on a CPU. */
int32_t mini_line_bytes(const lab *l);
/* The least time of a call that has nothing to do, by the measured roofs; NAN: not known. */
double mini_launch_s(const lab *l);
/* The share of the lines that are fetched for rows of this length and this alignment that is
 * used. */
double mini_line_use(const lab *l, int64_t row_bytes, int64_t row_stride);
/* Bytes of one load of the row, as it describes itself; 0: it does not say. */
int32_t mini_vector_bytes(const lab_kernel *k);

/* Writes a file into the lab's results, and tells it. */
vt_status mini_write_file(lab *l, const char *name, const char *what, const vt_buf *b, vt_err *err);

typedef struct mini_point {
    char mark;
    double flop_per_byte, per_s;
} mini_point;

/* Draws the points below the memory roof and this arithmetic roof (mini_sglang/roofline.c). */
void mini_roofline(lab *l, const char *key, const char *title, double peak, const mini_point *p,
                   int32_t n, const char *legend);

/* Before lab 06 runs anything: a decode step in the middle of its request's generation. */
vt_status mini_forward_predict(lab *l, vt_err *err);
/* Lab 06: one request through the engine, told as its items (mini_sglang/pass.c). */
vt_status mini_forward(lab *l, vt_err *err);

/* Knobs of the pass: graphs, one graph, programmatic dependent launch (mini_sglang/knobs.c). */
vt_status mini_turn_engine(lab *l, const json_t *story, vt_err *err);

/* ---- several rows of one op ---- */

enum { MINI_MAX_ROWS = 32, MINI_MAX_SWEEP = 24 };

typedef struct mini_rows {
    lab_kernel k[MINI_MAX_ROWS]; /* k[0]: what an engine would choose */
    int32_t n;
} mini_rows;

/* Runs the row that an engine would choose, then all other rows and variants that take the shape.
 * mini_rows_free frees it. */
vt_status mini_rows_run(lab *l, const char *op, const char *shape, mini_rows **out, vt_err *err);
/* The row of this name; NULL: it is not here. */
const lab_kernel *mini_rows_find(const mini_rows *r, const char *name);
/* The usual table of these rows under this key. */
void mini_rows_table(lab *l, const char *key, const char *title, const mini_rows *r);
/* One knob for each row but the first: the engine's row before, this one after. `gain` as in
 * lab_knob. `why` (a function of the name) may answer NULL for a row that is no knob. */
void mini_rows_turn(lab *l, const char *op, const mini_rows *r,
                    const char *(*why)(const char *impl, double *gain));
/* A knob whose two positions are measured calls; the expected gain is that of all bytes moved. */
void mini_turn_kernels(lab *l, const char *name, const char *where, const lab_kernel *before,
                       const lab_kernel *after, const char *why);
/* lab_kernel_run on one worker of the CPU. VT_ERR_UNSUPPORTED: the lab has no more than one. */
vt_status mini_one_worker(lab *l, const lab_kernel_ask *ask, lab_kernel *out, vt_err *err);

/* Knobs of lab 02, and its item counters (mini_sglang/index_knobs.c). r: all rows on this shape. */
vt_status mini_turn_index(lab *l, const mini_rows *r, const char *shape, vt_err *err);

/* Knobs of lab 03 (mini_sglang/store_knobs.c). r: all rows on sequential slots; random: the
 * engine's row on random ones. */
vt_status mini_turn_store(lab *l, const mini_rows *r, const lab_kernel *random, vt_err *err);

/* Lab 05's items of two ranks, and its knobs (mini_sglang/comm_measured.c). copy_least_s: the least
 * time of copying 8 MiB. */
void mini_comm_measured(lab *l, const lab_link *m, double copy_least_s);

/* The smallest case of a real model that the card has, as text; false: it has none that fits. */
bool mini_case_text(const vt_op *op, char *out, size_t size);

/* ---- the forward pass of the lab's model on the lab's device ---- */

typedef struct mini_pass {
    vt_model *model;
    vt_described described;
    story_step *step;
} mini_pass;

enum { MINI_PASS_TOKENS = 4096, MINI_PASS_SEQS = 256 };

/* Describes the program that an engine would build: no weight is packed, no cache allocated. */
vt_status mini_pass_open(lab *l, mini_pass *out, vt_err *err);
void mini_pass_close(mini_pass *p);
/* A step of n equal sequences with q_len new tokens each and kv_len tokens of context after it. */
vt_status mini_pass_set(mini_pass *p, int32_t n, int32_t q_len, int32_t kv_len, vt_err *err);
/* The shape of a call of the step as the text of a case; false: the call has none, or the step does
 * not run it. Weights are cut to a size that is quick to make. */
bool mini_pass_shape(const mini_pass *p, int32_t call, char *out, size_t size);

#endif
