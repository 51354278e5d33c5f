/* The kernels behind a GPU's roofs (device/roofs.h), for who compiles them without measuring. */
#ifndef VT_DEVICE_ROOFS_CUDA_H
#define VT_DEVICE_ROOFS_CUDA_H

#include "device/cuda.h"
#include "device/roofs.h"

/* Notes the kernels in c's JIT. */
void roofs_cuda_collect(vt_cuda *c);

#endif
