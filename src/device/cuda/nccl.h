/* NVIDIA's NCCL, opened by dlopen, so that our communication ops are measured beside it. No engine
 * uses it.
 *
 * One thread speaks for all ranks, so every call of a collective stands between vt_nccl_begin and
 * vt_nccl_end, once for each rank, with the rank's GPU current. NVLink multicast is switched off
 * (NCCL_NVLS_ENABLE=0). */
#ifndef VT_DEVICE_CUDA_NCCL_H
#define VT_DEVICE_CUDA_NCCL_H

#include "device/cuda/cuda.h"
#include "device/cuda/nccl_api.h"

enum { NCCL_RANKS = 8 };

typedef struct vt_nccl {
    nccl_functions f;
    nccl_comm comm[NCCL_RANKS];
    int32_t n;
    char version[32]; /* "2.28.9" */
} vt_nccl;

/* Makes a communicator for each of n different GPUs. VT_ERR_UNSUPPORTED: the library is not here,
 * or takes no such ranks. */
vt_status vt_nccl_open(const int32_t *gpu, int32_t n, vt_nccl **out, vt_err *err);
void vt_nccl_close(vt_nccl *c);

/* Returns VT_OK if the library answered with success; else the error says what it was doing. */
vt_status vt_nccl_check(const vt_nccl *c, int status, const char *doing, vt_err *err);
vt_status vt_nccl_begin(const vt_nccl *c, vt_err *err);
vt_status vt_nccl_end(const vt_nccl *c, vt_err *err);
/* Registers memory of vt_nccl_alloc, of all ranks at once: p[rank]. Their kernels then read and
 * write it directly. VT_ERR_UNSUPPORTED: the library is older than 2.27. */
vt_status vt_nccl_register(const vt_nccl *c, void *const *p, size_t bytes, nccl_window *window,
                           vt_err *err);

#endif
