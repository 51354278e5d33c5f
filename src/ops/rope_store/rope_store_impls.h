#ifndef VT_OPS_ROPE_STORE_IMPLS_H
#define VT_OPS_ROPE_STORE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(rope_store);

/* Never chosen by an engine. */
extern const vt_impl rope_store_cuda_apart, rope_store_apart_avx2, rope_store_apart_avx512;
extern const vt_impl rope_store_apart_neon;

#endif
