// y[t, i] = cap tanh(y[t, i] / cap), in place; y [rows, n] fp32
//
// Grid: x = 256 logits a CTA, y = rows. Bytes: 8 n a row; bound by memory, and a small part of the head before it.
#include "logit_cap_params.h"

KERNEL __launch_bounds__(256) logit_cap(const __grid_constant__ logit_cap_params p)
{
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    pdl_go();
    pdl_wait();
    if (i >= p.n)
        return;
    float *y = p.y + (i64)blockIdx.y * p.stride + i;
    *y = p.cap * tanhf(*y / p.cap);
}
