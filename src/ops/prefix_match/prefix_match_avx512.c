/* Prefix match for avx512: prefix_match_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/prefix_match/prefix_match_kernel.h"

int64_t match_length_avx512(const int32_t *a, const int32_t *b, int64_t n)
{
    return match_length(a, b, n);
}
