/* Adapters for avx512: lora_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/lora/lora_kernel.h"
