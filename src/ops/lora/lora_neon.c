/* Adapters for neon: lora_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/lora/lora_kernel.h"
