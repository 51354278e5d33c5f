#include "exp2_kernels.h"

#if defined(__AVX512F__)
#include "ops/simd_avx512.h"

void exp2_avx512(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i += VF)
        vf_store(y + i, vf_exp2(vf_load(x + i)));
}
#endif
