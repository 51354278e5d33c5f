/* vf_exp2 of each instruction set as a plain function, for test_op_simd.c. n is a multiple of
 * 16. */
#ifndef VT_TESTS_EXP2_KERNELS_H
#define VT_TESTS_EXP2_KERNELS_H

void exp2_portable(const float *x, float *y, int n);
#if defined(__x86_64__)
void exp2_avx2(const float *x, float *y, int n);
void exp2_avx512(const float *x, float *y, int n);
#elif defined(__aarch64__)
void exp2_neon(const float *x, float *y, int n);
#endif

#endif
