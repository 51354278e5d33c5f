/* Gates for neon: sigmoid_gate_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/sigmoid_gate/sigmoid_gate_kernel.h"
