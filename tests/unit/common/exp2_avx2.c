#include "exp2_kernels.h"

#if defined(__AVX2__)
#include "ops/simd_avx2.h"

void exp2_avx2(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i += VF)
        vf_store(y + i, vf_exp2(vf_load(x + i)));
}
#endif
