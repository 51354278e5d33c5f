// y[t, i] = gain (add[t, i] + scale x[t, i] / rms(part of x that i is in) (w[i mod N] + plus))
//
// x, add, y [tokens, parts * N] bf16, w [N] and gain [1] fp32. LANES threads share a part and keep it in registers
// (row.cuh). Grid: THREADS / LANES parts a CTA. Bytes: 4 N a part, 6 N with `add`; bound by memory, by latency for few.
// Template: N (a part's length), VEC, THREADS, LANES, WEIGHT, ADD, GAIN.
#include "row.cuh"
#include "part_norm_params.h"

KERNEL __launch_bounds__(THREADS) part_norm(const __grid_constant__ part_norm_params p)
{
    __shared__ float room[THREADS / 32];
    u32 lane = threadIdx.x % LANES;
    i32 number = (i32)blockIdx.x * kRows + (i32)threadIdx.x / LANES;
    bool there = number < p.n_parts; // else the lanes take part in the sums of others alone
    i32 t = there ? number / p.parts : 0, at = there ? number % p.parts * N : 0;
    RowPart x, add, weight;
    float squares = 0.f;
    pdl_go();
    if constexpr (WEIGHT)
        load_weights(weight, p.weight, lane);
    pdl_wait();
    load_row(x, p.x + (i64)t * p.x_stride + at, lane, there);
    if constexpr (ADD)
        load_row(add, p.add + (i64)t * p.add_stride + at, lane, there);
    each_element(lane, [&](int i, int k, u32) { squares = fmaf(x.v[i][k], x.v[i][k], squares); });
    float scale = p.scale * rsqrtf(row_sum(squares, room) / N + p.eps), gain = GAIN ? __ldg(p.gain) : 1.f;
    each_element(lane, [&](int i, int k, u32) {
        float v = x.v[i][k] * scale;
        if constexpr (WEIGHT)
            v *= weight.v[i][k] + p.plus;
        if constexpr (ADD)
            v += add.v[i][k];
        x.v[i][k] = v * gain;
    });
    if (there)
        store_row(x, p.y + (i64)t * p.y_stride + at, lane);
}
