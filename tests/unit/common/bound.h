#ifndef VT_TEST_BOUND_H
#define VT_TEST_BOUND_H

/* Returns the largest difference that a logit or log-probability may have from a reference in fp32,
 * for KV in fp32 and weights that BF16 or a wider type holds exactly, on the CPU at the level in
 * use. With AMX an activation beside BF16 weights keeps 16 bits of its mantissa (linear_amx.c): the
 * tiny models' sharp attention makes up to 3e-4 of that. */
double fp32_bound(void);

#endif
