/* The kernels that measure a GPU's roofs (roofs/roofs.h), for compiling them without measuring. */
#ifndef VT_DEVICE_ROOFS_ROOFS_CUDA_H
#define VT_DEVICE_ROOFS_ROOFS_CUDA_H

#include "device/cuda/cuda.h"
#include "device/roofs/roofs.h"

/* Notes the kernels in c's JIT. */
void roofs_cuda_collect(vt_cuda *c);

#endif
