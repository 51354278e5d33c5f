/* Parameters of roofs*.cu. The host's code and the kernels include this file. */
#ifndef VT_DEVICE_ROOFS_ROOFS_PARAMS_H
#define VT_DEVICE_ROOFS_ROOFS_PARAMS_H

#ifndef VT_KERNEL
#include <stdint.h>
#endif

typedef struct roofs_read_params {
    const uint8_t *p;
    uint64_t n;
    uint32_t *out;
    int32_t passes;
    uint32_t never;
} roofs_read_params;

typedef struct roofs_copy_params {
    uint8_t *p; /* the first half of it is copied to the second one */
    uint64_t n; /* units of 16 bytes in a half */
    int32_t passes;
} roofs_copy_params;

typedef struct roofs_compute_params {
    uint32_t *out;
    int32_t rounds;
    uint32_t never;
} roofs_compute_params;

#endif
