/* The GPU's present clocks, power and temperature, from NVIDIA's management library (NVML), which
 * is opened at run time. It comes with the driver, but containers often lack it, so any of these
 * values may be missing. */
#ifndef VT_DEVICE_NVML_H
#define VT_DEVICE_NVML_H

#include "vitrine.h"

/* A value that this GPU does not report is -1. */
typedef struct vt_gpu_state {
    int32_t sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz, temperature_c;
    double power_w, power_limit_w;
    int64_t throttle; /* bits: vt_nvml_reason */
} vt_gpu_state;

/* Reads the state of the driver's GPU `ordinal` (N in --device cuda:N). VT_ERR_DEVICE with a
 * message if the library or the GPU is missing. */
vt_status vt_nvml_read(int32_t ordinal, vt_gpu_state *out, vt_err *err);

/* The name of a bit of `throttle`, a reason why clocks are lower than they could be: "power-cap".
 * NULL if the bit has no name. */
const char *vt_nvml_reason(int32_t bit);

#endif
