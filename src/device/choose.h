/* Which device a model runs on: what the words of option device mean. */
#ifndef VT_DEVICE_CHOOSE_H
#define VT_DEVICE_CHOOSE_H

#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

/* What "auto" came to. All zeros: nobody has asked yet. */
typedef struct vt_device_auto {
    _Atomic int answer;
} vt_device_auto;

/* The ordinal of the GPU that `device` names: 0 for "cuda", 3 for "cuda:3", -1 for "cpu". "auto" is
 * GPU 0 if a model can run there (vt_cuda_usable), else the CPU. That is found out at the first
 * call and kept in *remember, so that every later call gives the same. Any thread. */
int32_t vt_device_choose(const char *device, vt_device_auto *remember);
/* "cpu", "cuda:0": for people; 16 bytes are enough. */
void vt_device_name(int32_t gpu, char *out, size_t size);
/* Something failed on a GPU that "auto" chose. There is no falling back after the choice, so if the
 * failure is the GPU's (not a wrong option, say) the message gets an end that names the way out.
 * Returns `status`. */
vt_status vt_device_auto_failed(vt_status status, vt_err *err);

#endif
