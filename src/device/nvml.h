/* What the GPU's clocks, power and temperature are now: NVIDIA's management library, opened at run
 * time. It comes with the driver; containers often lack it, so everything here may be missing. */
#ifndef VT_DEVICE_NVML_H
#define VT_DEVICE_NVML_H

#include "vitrine.h"

/* A value of -1 could not be had from this GPU. */
typedef struct vt_gpu_state {
    int32_t sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz, temperature_c;
    double power_w, power_limit_w;
    int64_t throttle; /* bits: vt_nvml_reason */
} vt_gpu_state;

/* The state of the driver's GPU `ordinal` (as in --device cuda:N). VT_ERR_DEVICE and a sentence
 * where the library or the GPU is missing. */
vt_status vt_nvml_read(int32_t ordinal, vt_gpu_state *out, vt_err *err);

/* Why clocks are lower than they could be: the name of a bit, "power-cap"; NULL if it has none. */
const char *vt_nvml_reason(int32_t bit);

#endif
