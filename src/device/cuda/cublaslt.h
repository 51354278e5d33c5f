/* NVIDIA's cuBLASLt, opened by dlopen: y = alpha x W^T + bias + c, with bf16 inputs and fp32 sums.
 * It is used only if it is installed.
 *
 * The first call of vt_cublaslt_find or vt_cublaslt_open for a vt_cuda looks for the library. Our
 * own kernels run, and it is no error, if there is no library, if it has no algorithm for a
 * product, or if it cannot launch a product the first time. It is an error if it launched a product
 * before and cannot now.
 *
 * An algorithm is chosen once for each shape and bucket of tokens, by the library's own heuristics.
 * All numbers of tokens in a bucket use it, so the sums of a row are added in the same order
 * however the step is padded (exec/cuda_step.c). The library loads a kernel when it first runs it,
 * and that is not allowed while a graph is captured. Decode graphs are captured before any step;
 * therefore the products that they may need run once while a lane collects, and write a few rows of
 * y.
 *
 * VITRINE_CUBLASLT: "0" never uses the library; "all" uses it for every linear that it can compute
 * (to measure); a path opens that file, and it is an error if that fails. If the variable is not
 * set, the library is used where it was measured to be faster (ops/linear/linear_cublaslt.c). */
#ifndef VT_DEVICE_CUDA_CUBLASLT_H
#define VT_DEVICE_CUDA_CUBLASLT_H

#include "device/cuda/cuda.h"

typedef enum cublaslt_use { CUBLASLT_FASTER, CUBLASLT_NEVER, CUBLASLT_ALL } cublaslt_use;

/* Products of fewer weights than the first, or of shorter rows than the second, were never measured
 * to be faster in the library. A model that has only such products does not open it. */
enum { CUBLASLT_LEAST = 2 << 20, CUBLASLT_LEAST_COLS = 1024 };

/* The largest bucket whose products run once while a lane collects. */
enum { CUBLASLT_WARM = 256 };

/* Bytes of workspace that the library may use. */
#define CUBLASLT_WORKSPACE ((size_t)32 << 20)

typedef struct cublaslt_product {
    const void *x, *w;                    /* bf16 [m, k] and [n, k]; rows of w are k apart */
    const void *c;                        /* [m, n] of y's type, may be y; NULL: nothing is added */
    const void *bias;                     /* [n] of y's type; NULL: there is none */
    void *y;                              /* [m, n] bf16, or f32 */
    int64_t x_stride, c_stride, y_stride; /* in elements; all rows begin at multiples of 16 bytes */
    int32_t m, n, k;
    int32_t bucket; /* at least m; products of one shape and bucket use one algorithm */
    bool f32;
    float alpha;
} cublaslt_product;

/* Reads VITRINE_CUBLASLT. Fails if its value is none of the above, or names a file that cannot be
 * opened. */
vt_status vt_cublaslt_use(cublaslt_use *use, vt_err *err);
/* Loads the library's file (0.05 s). To be called in a thread while the device is being opened. */
void vt_cublaslt_preload(void);
/* Loads the library's file and returns true if it can be used; else writes the reason to why[size].
 */
bool vt_cublaslt_find(vt_cuda *c, char *why, size_t size);
/* Opens the library and returns its version, such as 130100 for 13.1.0. Returns 0 and writes the
 * reason to why[size] if the library is missing or not wanted. */
size_t vt_cublaslt_open(vt_cuda *c, char *why, size_t size);
/* Opens the library (0.05 s) and asks it for one algorithm, because the first question takes it
 * 0.1 s. May be called in a thread if nothing else uses the library meanwhile. */
void vt_cublaslt_prepare(vt_cuda *c);
void vt_cublaslt_close(vt_cuda *c);
/* For how many shapes and buckets the library was asked for an algorithm; 4,096 at most. */
int32_t vt_cublaslt_algorithms(const vt_cuda *c);

/* Launches the product on the lane. *ran is set to false if our own kernel must run instead: the
 * library is missing or has no algorithm, or the lane only collects kernels. `workspace` has
 * CUBLASLT_WORKSPACE bytes. */
vt_status vt_cublaslt_run(vt_cuda_lane *lane, const cublaslt_product *p, void *workspace,
                          bool *ran);

#endif
