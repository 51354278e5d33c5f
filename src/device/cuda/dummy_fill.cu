// Makes the weights of dummy models on the device: element i = bf16(base + r(key, i) * scale)
// (model/dummy.h)
//
// Grid: one thread for four elements (one 64-bit hash word), 256 threads per CTA. Bytes: 2 per element;
// bound by integer arithmetic.
#include "dummy_fill_params.h"

INLINE u64 mix(u64 z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

KERNEL __launch_bounds__(256) dummy_fill(const __grid_constant__ dummy_fill_params p)
{
    u64 j = (u64)blockIdx.x * 256 + threadIdx.x;
    pdl_go();
    pdl_wait();
    u64 word = mix(p.key + (p.first + j + 1) * 0x9e3779b97f4a7c15ull);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u64 i = j * 4 + k;
        if (i < p.n) // __fmul_rn, __fadd_rn: rounded twice as on the CPU; the product is exact
            p.out[i] = f32_bf16(
                __fadd_rn(p.base, __fmul_rn((float)(short)(word >> 16 * k), p.scale)));
    }
}
