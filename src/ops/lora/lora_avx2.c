/* Adapters for avx2: lora_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/lora/lora_kernel.h"
