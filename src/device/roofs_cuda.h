/* The kernels that measure a GPU's roofs (device/roofs.h), for compiling them without measuring. */
#ifndef VT_DEVICE_ROOFS_CUDA_H
#define VT_DEVICE_ROOFS_CUDA_H

#include "device/cuda.h"
#include "device/roofs.h"

/* Notes the kernels in c's JIT. */
void roofs_cuda_collect(vt_cuda *c);

#endif
