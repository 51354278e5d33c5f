/* Parameters of dummy_fill.cu. The host's code and the kernels include this file. */
#ifndef VT_DEVICE_CUDA_DUMMY_FILL_PARAMS_H
#define VT_DEVICE_CUDA_DUMMY_FILL_PARAMS_H

#ifndef VT_KERNEL
#include <stdint.h>
#endif

typedef struct dummy_fill_params {
    uint16_t *out;
    uint64_t key, n, first; /* n elements from word `first` (four elements a word) on */
    float base, scale;
} dummy_fill_params;

#endif
