/* cuBLASLt by dlopen: y = alpha x W^T + c, bf16 in, fp32 sums, where the library is there.
 *
 * It is looked for by the first who asks (vt_cublaslt_open), once for each vt_cuda. Without it, and
 * for a product that it has no algorithm for or cannot launch the first time, kernels of our own
 * run and nobody fails; a product that it launched before and cannot now is an error.
 *
 * An algorithm is chosen once for a shape and a bucket of tokens, by the library's own heuristics,
 * and all numbers of tokens of a bucket run it: so a row's sum has the same order whatever a step
 * is padded to (exec/cuda_step.c). The library loads a kernel when it first runs, which a capture
 * of a graph does not allow; so what decode graphs may need, which are captured before any step,
 * runs once while a lane collects, and writes a few rows of y.
 *
 * VITRINE_CUBLASLT: 0 never; all, for every linear that it can compute, to measure; a path opens
 * that file, and nobody runs without it; else where it was measured to be faster
 * (ops/linear/linear_cublaslt.c). */
#ifndef VT_DEVICE_CUBLASLT_H
#define VT_DEVICE_CUBLASLT_H

#include "device/cuda.h"

typedef enum cublaslt_use { CUBLASLT_FASTER, CUBLASLT_NEVER, CUBLASLT_ALL } cublaslt_use;

/* Smaller products were never measured to be faster there: weights, and columns of their rows. A
 * model without larger ones does not open the library. */
enum { CUBLASLT_LEAST = 2 << 20, CUBLASLT_LEAST_COLS = 1024 };

/* Bytes of workspace that it uses. */
#define CUBLASLT_WORKSPACE ((size_t)32 << 20)

typedef struct cublaslt_product {
    const void *x, *w;                    /* bf16 [m, k] and [n, k]; rows of w are k apart */
    const void *c;                        /* [m, n] of y's type, may be y; or NULL */
    void *y;                              /* [m, n] bf16, or f32 */
    int64_t x_stride, c_stride, y_stride; /* in elements; addresses and rows on 16 bytes */
    int32_t m, n, k;
    int32_t bucket; /* at least m: all m that share it share the algorithm */
    bool f32;
    float alpha;
} cublaslt_product;

/* What the environment wants; an error where it is none of the above, or a file that cannot be
 * opened. */
vt_status vt_cublaslt_use(cublaslt_use *use, vt_err *err);
/* Before there is a device, in a thread of its own: loads the library's file (0.05 s). */
void vt_cublaslt_preload(void);
/* The library's version, as in 130100 for 13.1.0; 0: not there, or not wanted, and why (size
 * bytes). */
size_t vt_cublaslt_open(vt_cuda *c, char *why, size_t size);
/* The same, and what the library does at its first question (0.07 s). May be called by a thread of
 * its own, if nobody else uses the library meanwhile. */
void vt_cublaslt_prepare(vt_cuda *c);
void vt_cublaslt_close(vt_cuda *c);

/* Launches the product on the lane, or notes it where the lane collects. *ran false: the library is
 * not there or has no algorithm; nothing was launched. `workspace` has CUBLASLT_WORKSPACE bytes. */
vt_status vt_cublaslt_run(vt_cuda_lane *lane, const cublaslt_product *p, void *workspace,
                          bool *ran);

#endif
