/* The GPU's present clocks, power and temperature, from NVIDIA's management library (NVML), which
 * is opened at run time. It comes with the driver, but containers often lack it, so any of these
 * values may be missing. */
#ifndef VT_DEVICE_NVML_H
#define VT_DEVICE_NVML_H

#include "base/trace.h"
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

/* ---- watching a GPU while it works ---- */

/* A thread that reads clocks, throttle reasons, power, energy and what other processes use of the
 * GPU, every 500 ms while steps are launched, and sleeps otherwise. */
typedef struct vt_nvml_watch vt_nvml_watch;

/* `out` stays NULL where the GPU cannot be asked; that is no error. */
vt_status vt_nvml_watch_new(int32_t ordinal, vt_nvml_watch **out, vt_err *err);
void vt_nvml_watch_free(vt_nvml_watch *w);
/* A step is being launched. Costs an atomic increment; wakes the thread where it sleeps. `w` may be
 * NULL. */
void vt_nvml_watch_step(vt_nvml_watch *w);
/* Its samples (vt_machine_event), with only a GPU's members known; NULL where `w` is. */
const vt_trace_ring *vt_nvml_watch_samples(const vt_nvml_watch *w);

#endif
