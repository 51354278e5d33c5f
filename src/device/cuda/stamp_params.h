/* Stamped kernels and the host share this: stamp.cuh, stamp_tick.cu, stamps.h. */
#ifndef VT_DEVICE_CUDA_STAMP_PARAMS_H
#define VT_DEVICE_CUDA_STAMP_PARAMS_H

#ifndef VT_KERNEL
#include <stdint.h>
#endif

/* Places of a launch, of two words each. */
#define STAMP_PLACES 16
/* Behind them a launch has words for what it may wait for itself: each the complement of the
 * shortest wait of its CTAs, 0 if none was noted. */
#define STAMP_WAITS 2

/* Parameters of stamp_tick.cu: where the tick goes. */
typedef struct stamp_tick_params {
    uint64_t *tick_ns;
} stamp_tick_params;

#endif
