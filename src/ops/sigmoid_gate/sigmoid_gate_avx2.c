/* Gates for avx2: sigmoid_gate_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/sigmoid_gate/sigmoid_gate_kernel.h"
