/* The labs of the track flashinfer: attention, norms, rope and the JIT; and what they share. */
#ifndef VT_LAB_FLASHINFER_FLASHINFER_H
#define VT_LAB_FLASHINFER_FLASHINFER_H

#include "lab/kit/lab.h"
#include "lab/kit/roofline.h"

extern const lab_def lab_flashinfer_env, lab_flashinfer_test, lab_flashinfer_prefill,
    lab_flashinfer_decode, lab_flashinfer_norm, lab_flashinfer_rope, lab_flashinfer_jit;

/* ---- shared by the labs (flashinfer/common.c) ---- */

/* The heads that a lab about attention runs with: those of the documents on a GPU, those of a small
 * model on a CPU, fewer on an emulated GPU. */
typedef struct lab_heads {
    int32_t heads, kv_heads, dim, page;
    const char *kv; /* type of the KV cache */
} lab_heads;

/* 32 query heads: the documents' shape. */
lab_heads lab_heads_32(const lab *l);
/* The heads of the model that the labs run on this device. */
lab_heads lab_heads_model(const lab *l);
/* "heads=32,kv_heads=8,head_dim=128,page=64,kv_type=bf16" */
void lab_heads_text(const lab_heads *h, char *out, size_t size);

/* lab_kernel_run of the row `impl` (NULL: the chosen one) on a shape that is written like
 * printf. */
vt_status lab_run_shape(lab *l, const char *op, const char *impl, lab_kernel *out, vt_err *err,
                        const char *shape, ...) __attribute__((format(printf, 6, 7)));
/* The items occupancy, of a call that was run. */
void lab_tell_occupancy(lab *l, const char *key, const lab_kernel *k);
/* A figure that was computed from a time: lab_number, or missing where there is no time. */
void lab_figure(lab *l, const char *key, double v, vt_unit unit, const char *of);
/* Bytes of a call a second as a share of the measured copy roof, or that this does not bind it. */
void lab_copy_share(lab *l, const char *key, const lab_kernel *k);
/* Bytes (compulsory) a second of a call; NAN where there is no time. */
double lab_bandwidth(const lab_kernel *k);
/* `a` over `b`; NAN where b is not a positive number. */
double lab_over(double a, double b);

enum { LAB_MAX_RUNS = 12 };

/* Calls that were measured, for a table and the roofline. */
typedef struct lab_runs {
    lab_kernel k[LAB_MAX_RUNS];
    char name[LAB_MAX_RUNS][48];
    int32_t n;
} lab_runs;

/* The calls as a table, a row each; `call` is the title of its first column. By their rates, or by
 * FLOPs a byte where the operation is what limits. */
void lab_tell_runs(lab *l, const lab_runs *r, const char *key, const char *call, bool by_flops);
void lab_tell_roofline(lab *l, const lab_runs *r, const char *key, const roofline_roof *roof);
/* The sizes of this form of the lab: emulated, quick, full or with --sweep; each ends with 0. */
const int32_t *lab_sizes(const lab *l, const int32_t *small, const int32_t *quick,
                         const int32_t *full, const int32_t *swept);

#endif
