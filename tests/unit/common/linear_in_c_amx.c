/* The row `amx` of linear over tiles in plain C, for any machine with AVX-512 VNNI and BF16. */
#include "amx_in_c.h"

#define linear_amx linear_amx_in_c
#include "ops/linear/cpu/linear_amx.c"
