/* Scratch of moe_linear on CUDA, in the lane's workspace. */
#ifndef VT_OPS_MOE_CUDA_H
#define VT_OPS_MOE_CUDA_H

#include <stddef.h>
#include <stdint.h>

size_t moe_cuda_workspace(int64_t tokens, int32_t used, int32_t experts, int32_t hidden,
                          int32_t ffn);

#endif
