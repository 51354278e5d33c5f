/* The rows of a CPU whose kernel is one header, compiled once per instruction set (see
 * simd_portable.h): CPU_ROWS(rope) is their list, best first, for a card's `impls`. */
#ifndef VT_OPS_CPU_ROWS_H
#define VT_OPS_CPU_ROWS_H

#include "ops/op.h"

#if defined(__x86_64__)
#define CPU_ROWS(name) &name##_avx512, &name##_avx2, &name##_portable
#define CPU_ROWS_DECLARE(name) extern const vt_impl name##_avx512, name##_avx2, name##_portable
#elif defined(__aarch64__)
#define CPU_ROWS(name) &name##_neon, &name##_portable
#define CPU_ROWS_DECLARE(name) extern const vt_impl name##_neon, name##_portable
#else
#define CPU_ROWS(name) &name##_portable
#define CPU_ROWS_DECLARE(name) extern const vt_impl name##_portable
#endif

#endif
