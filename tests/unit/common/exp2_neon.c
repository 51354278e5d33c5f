#include "exp2_kernels.h"

#if defined(__aarch64__)
#include "ops/simd_neon.h"

void exp2_neon(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i += VF)
        vf_store(y + i, vf_exp2(vf_load(x + i)));
}
#endif
