/* Stamped kernels and the host share this: stamp.cuh, stamp_tick.cu, stamps.h. */
#ifndef VT_DEVICE_CUDA_STAMP_PARAMS_H
#define VT_DEVICE_CUDA_STAMP_PARAMS_H

#ifndef VT_KERNEL
#include <stdint.h>
#endif

/* Bits of STAMPED, which say what a kernel stamps: its begin and when it had waited; its end too,
 * where no launch behind it tells that; each CTA, where the host gives a table of them. */
#define STAMP_LAUNCHED 1
#define STAMP_ENDS 2
#define STAMP_CTAS 4

/* The words of a launch: its begin; when it had waited for the launch before it; the ends of its
 * last CTAs, where they are stamped; and words for what it may wait for itself, each the complement
 * of the shortest wait of its CTAs, 0 if none was noted. */
#define STAMP_PLACES 16
#define STAMP_WAITS 2
#define STAMP_BEGAN 0
#define STAMP_WAITED 1
#define STAMP_ENDED 2
#define STAMP_NOTED (STAMP_ENDED + STAMP_PLACES)
#define STAMP_WORDS (STAMP_NOTED + STAMP_WAITS)

/* The words of a CTA in a table of all CTAs of a launch (cuda_stamps_table): its begin, its end,
 * and its SM + 1, which is 0 until it has ended. */
#define STAMP_CTA_BEGAN 0
#define STAMP_CTA_ENDED 1
#define STAMP_CTA_SM 2
#define STAMP_CTA_WORDS 3

/* Parameters of stamp_tick.cu: where the tick goes. */
typedef struct stamp_tick_params {
    uint64_t *tick_ns;
} stamp_tick_params;

#endif
