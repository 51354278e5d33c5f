/* The Hopper GEMM as linear's CUDA implementation uses it. */
#ifndef VT_OPS_LINEAR_CUDA_H
#define VT_OPS_LINEAR_CUDA_H

#include "device/cuda.h"
#include "ops/linear/linear.h"

/* wgmma and TMA need level 90, 16-byte rows, and a pair without a bias. */
bool linear_sm90_fits(const linear_args *a, const vt_cuda_lane *l);
vt_status linear_sm90_run(const linear_args *a, vt_cuda_lane *l);

#endif
