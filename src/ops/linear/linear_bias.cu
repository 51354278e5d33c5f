// to[i] = bf16(from[i])     a bias for cuBLASLt, which adds one of y's type
//
// Grid: a thread for each of n values. `from` is a weight, so it is read before the kernels in front have ended.
#include "linear_params.h"

KERNEL __launch_bounds__(256) linear_bias(const __grid_constant__ linear_bias_params p)
{
    i32 i = blockIdx.x * 256 + threadIdx.x;
    float v = i < p.n ? p.from[i] : 0.f;
    pdl_go();
    pdl_wait();
    if (i < p.n)
        p.to[i] = f32_bf16(v);
}
