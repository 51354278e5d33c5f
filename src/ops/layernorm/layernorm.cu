// y[t, :] = (x[r(t), :] - mean) / sqrt(variance + eps) * w + b        x, y [rows, N] bf16, w, b [N] fp32
//
// LANES threads share a row and keep it in registers (row.cuh): the variance is summed from differences to the mean,
// so that a large mean costs no digits. Grid: THREADS / LANES rows a CTA. Bytes: 4 N a row, and w and b from L2;
// bound by memory for many rows, by latency for few.
// Template: N, VEC, THREADS, LANES, ROWS (a row index is given), BIAS.
#include "row.cuh"
#include "layernorm_params.h"

KERNEL __launch_bounds__(THREADS) layernorm(const __grid_constant__ layernorm_params p)
{
    __shared__ float part[2][THREADS / 32]; // of the two sums
    u32 lane = threadIdx.x % LANES;
    i32 t = (i32)blockIdx.x * kRows + (i32)threadIdx.x / LANES;
    bool there = t < p.n_rows; // else the lanes take part in the sums of others alone
    RowPart x, weight, bias;
    float sum = 0.f, squares = 0.f;
    pdl_go();
    load_weights(weight, p.weight, lane);
    if constexpr (BIAS)
        load_weights(bias, p.bias, lane);
    pdl_wait();
    i32 from = !there ? 0 : ROWS ? p.row[t] : t;
    load_row(x, p.x + (i64)from * p.x_stride, lane, there);
    each_element(lane, [&](int i, int k, u32) { sum += x.v[i][k]; });
    float mean = row_sum(sum, part[0]) / N;
    each_element(lane, [&](int i, int k, u32) {
        x.v[i][k] -= mean;
        squares = fmaf(x.v[i][k], x.v[i][k], squares);
    });
    float scale = rsqrtf(row_sum(squares, part[1]) / N + p.eps);
    each_element(lane, [&](int i, int k, u32) {
        x.v[i][k] = fmaf(x.v[i][k] * scale, weight.v[i][k], BIAS ? bias.v[i][k] : 0.f);
    });
    if (there)
        store_row(x, p.y + (i64)t * p.y_stride, lane);
}
