#ifndef VT_OPS_PREFIX_MATCH_IMPLS_H
#define VT_OPS_PREFIX_MATCH_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(prefix_match);

int64_t match_length_avx2(const int32_t *a, const int32_t *b, int64_t n);
int64_t match_length_neon(const int32_t *a, const int32_t *b, int64_t n);
int64_t match_length_avx512(const int32_t *a, const int32_t *b, int64_t n);

#endif
