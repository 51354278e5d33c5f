/* A kernel of your own on the CPU: the contract of `vitrine lab kernel FILE.so --op OP`.
 *
 *     #include "vitrine_kernel.h"
 *
 *     VITRINE_KERNEL(rmsnorm)
 *     {
 *         int64_t begin, end;
 *         vitrine_share(lane, call->n_rows, &begin, &end);
 *         for (int64_t t = begin; t < end; t++)
 *             ...
 *         return 0;
 *     }
 *
 *     gcc -O3 -march=native -shared -fPIC -Iinclude -o rmsnorm.so rmsnorm.c
 *     vitrine lab kernel rmsnorm.so --op rmsnorm
 *
 * All threads of the team call the kernel at the same time with the same `call` and their own
 * `lane`. The call has ended when all of them have returned, so they need no barrier at the end;
 * there is none inside. A kernel writes its outputs and nothing else, and returns 0; another number
 * is a failure.
 *
 * Everything is fp32 but indices and the embedding table; `table_type` names the table's type. Rows
 * are `stride` elements apart. The first row begins at a multiple of 64 bytes.
 *
 * This header needs nothing of vitrine but itself. Its structs do not change without a new
 * VITRINE_KERNEL_ABI; the lab refuses a kernel that was compiled with another one. */
#ifndef VITRINE_KERNEL_H
#define VITRINE_KERNEL_H

#include <stdint.h>

#define VITRINE_KERNEL_ABI 1

typedef struct vitrine_lane {
    int32_t worker, n_workers; /* this thread is number `worker` of n_workers */
} vitrine_lane;

/* y[t, i] = x[r, i] * (weight[i] + plus_one) / sqrt(mean_i(x[r, i]^2) + eps)
 * with r = row ? row[t] : t. y may be x, when row is NULL. */
typedef struct vitrine_rmsnorm_call {
    const float *x;      /* [.., n] rows, x_stride apart */
    const float *weight; /* [n] */
    const int32_t *row;  /* [n_rows], or NULL */
    float *y;            /* [n_rows, n] rows, y_stride apart */
    int64_t n_rows, n, x_stride, y_stride;
    float eps;
    int32_t plus_one; /* 0 or 1 */
} vitrine_rmsnorm_call;

/* Row by row: s = x + residual; residual = s;
 * y = s * (weight + plus_one) / sqrt(mean(s^2) + eps) */
typedef struct vitrine_add_rmsnorm_call {
    const float *x, *weight;
    float *residual, *y;
    int64_t n_rows, n, x_stride, residual_stride, y_stride;
    float eps;
    int32_t plus_one;
} vitrine_add_rmsnorm_call;

enum { VITRINE_F32, VITRINE_F16, VITRINE_BF16 };

/* y[t, :] = scale * table[id, :] with id = token[t], or pool[-1 - token[t]] where token[t] < 0. */
typedef struct vitrine_embed_call {
    const void *table;    /* [vocab, n], rows table_stride elements apart */
    const int32_t *token; /* [n_rows] */
    const int32_t *pool;  /* or NULL: then every token is >= 0 */
    float *y;             /* [n_rows, n] rows, y_stride apart */
    int64_t n_rows, n, vocab, table_stride, y_stride;
    float scale;
    int32_t table_type; /* VITRINE_F32 ... */
} vitrine_embed_call;

/* The half-open share [*begin, *end) of n rows that this thread takes. */
static inline void vitrine_share(const vitrine_lane *lane, int64_t n, int64_t *begin, int64_t *end)
{
    *begin = n * lane->worker / lane->n_workers;
    *end = n * (lane->worker + 1) / lane->n_workers;
}

#if defined(__GNUC__)
#define VITRINE_EXPORT __attribute__((visibility("default")))
#else
#define VITRINE_EXPORT
#endif

/* Names the op, notes the ABI, and begins the function `vitrine_kernel(call, lane)`. */
#define VITRINE_KERNEL(op)                                                                        \
    VITRINE_EXPORT extern const char vitrine_kernel_op[];                                         \
    VITRINE_EXPORT extern const int32_t vitrine_kernel_abi;                                       \
    VITRINE_EXPORT int vitrine_kernel(const vitrine_##op##_call *call, const vitrine_lane *lane); \
    const char vitrine_kernel_op[] = #op;                                                         \
    const int32_t vitrine_kernel_abi = VITRINE_KERNEL_ABI;                                        \
    int vitrine_kernel(const vitrine_##op##_call *call, const vitrine_lane *lane)

#endif
