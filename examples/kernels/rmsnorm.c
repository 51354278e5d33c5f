/* RMSNorm on the CPU: a kernel of one's own for `vitrine lab kernel`.
 *
 *     gcc -O3 -march=native -shared -fPIC -Iinclude -o /tmp/rmsnorm.so examples/kernels/rmsnorm.c
 *     vitrine lab kernel /tmp/rmsnorm.so --op rmsnorm
 *
 * Counter to look at: vector instructions (perf stat -e fp_arith_inst_retired.512b_packed_single).
 * A compiler may not change the order of a sum. With one sum it would add one element at a time,
 * and each addition would wait for the one before. The partial sums below are independent, so they
 * become lanes of vectors, and several additions are under way at once. -march=native decides how
 * wide the vectors are. What limits the rest is memory: a row is read once from L2 or beyond (the
 * second time it is in L1), and written once. */
#include <math.h>

#include "vitrine_kernel.h"

enum {
    SUMS = 32
}; /* partial sums: two vectors of 16, or four of 8, that do not wait for each other */

static float sum_of_squares(const float *x, int64_t n)
{
    float part[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            part[k] += x[i + k] * x[i + k];
    for (; i < n; i++)
        sum += x[i] * x[i];
    for (int k = 0; k < SUMS; k++)
        sum += part[k];
    return sum;
}

VITRINE_KERNEL(rmsnorm)
{
    int64_t begin, end;
    vitrine_share(lane, call->n_rows, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = call->x + (call->row ? call->row[t] : t) * call->x_stride;
        float *y = call->y + t * call->y_stride;
        float scale = 1 / sqrtf(sum_of_squares(x, call->n) / (float)call->n + call->eps);
        for (int64_t i = 0; i < call->n; i++)
            y[i] = x[i] * scale * (call->weight[i] + (float)call->plus_one);
    }
    return 0;
}
