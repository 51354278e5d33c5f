/* 2^f on [-1/2, 1/2] as a polynomial with constant term 1, so that 2^0 is exactly 1. The fit
 * minimises the largest relative error, 2.0e-9 before rounding (tools/fixtures/exp2_poly.py).
 * Degree 5 would save one multiply-add and give 9.2e-8. Shared by all instruction sets. */
#ifndef VT_OPS_SIMD_POLY_H
#define VT_OPS_SIMD_POLY_H

#define EXP2_C1 0.693147182f
#define EXP2_C2 0.240226477f
#define EXP2_C3 0.0555033237f
#define EXP2_C4 0.00961843692f
#define EXP2_C5 0.0013398875f
#define EXP2_C6 0.00015353362f
#define EXP2_MIN (-126.0f) /* below: 0 */
#define EXP2_MAX 127.0f
#define LOG2E 1.44269504f

#endif
