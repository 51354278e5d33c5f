#ifndef VT_OPS_PREFIX_MATCH_IMPLS_H
#define VT_OPS_PREFIX_MATCH_IMPLS_H

#include "ops/op.h"

int64_t match_length_avx2(const int32_t *a, const int32_t *b, int64_t n);
int64_t match_length_neon(const int32_t *a, const int32_t *b, int64_t n);
int64_t match_length_avx512(const int32_t *a, const int32_t *b, int64_t n);
extern const vt_impl prefix_match_avx2, prefix_match_avx512;
extern const vt_impl prefix_match_neon;

#endif
