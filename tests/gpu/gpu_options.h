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
    int32_t n_random;      /* cases of each op; 0: the chosen ones */
    uint64_t seed;
} gpu_options;

/* False: one is unknown, or its value missing or wrong, which stderr was told. */
bool gpu_options_read(gpu_options *o, char **argv);

#endif
