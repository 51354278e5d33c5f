/* gpu_parity's command line. */
#ifndef VT_TESTS_GPU_OPTIONS_H
#define VT_TESTS_GPU_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpu_options {
    bool timing, small, list, pdl, padded, deterministic; /* small: no bench cases */
    const char *only_op, *only_case;                      /* NULL: all */
    const char *rows;      /* "all", or a row's name; NULL: the one that a program would take */
    int32_t shard, shards; /* every Nth case from number I */
    int32_t n_random;      /* random cases of each op; 0: run the chosen cases instead */
    uint64_t seed;
} gpu_options;

/* False if an option is unknown, or its value is missing or wrong; stderr has a message. */
bool gpu_options_read(gpu_options *o, char **argv);

#endif
