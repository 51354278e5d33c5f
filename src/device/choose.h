/* Which device a model runs on: the values of option `device`. */
#ifndef VT_DEVICE_CHOOSE_H
#define VT_DEVICE_CHOOSE_H

#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

/* Which device "auto" chose. All zeros: it has not been asked yet. */
typedef struct vt_device_auto {
    _Atomic int answer;
} vt_device_auto;

/* The ordinal of the GPU that `device` names: 0 for "cuda", 3 for "cuda:3", -1 for "cpu". "auto" is
 * GPU 0 if a model can run there (vt_cuda_usable), else the CPU. The first call finds that out and
 * keeps the answer in *remember, so that every later call gives the same. May be called from any
 * thread. */
int32_t vt_device_choose(const char *device, vt_device_auto *remember);
/* Fills gpu[n] with the GPUs of n ranks: those that a GPU's `device` names, "cuda:2,5", or n in a
 * row from the only one that it names, "cuda:2", or from 0. Fails if it names another number of
 * them. */
vt_status vt_device_gpus(const char *device, int32_t n, int32_t *gpu, vt_err *err);
/* Writes the device's name, "cpu" or "cuda:0"; 16 bytes are enough. */
void vt_device_name(int32_t gpu, char *out, size_t size);
/* Call this when something failed on a GPU that "auto" chose. Once chosen, the device is not
 * changed. If the GPU caused the failure (and not a wrong option, say), a hint to use --device cpu
 * is appended to the message. Returns `status`. */
vt_status vt_device_auto_failed(vt_status status, vt_err *err);

#endif
