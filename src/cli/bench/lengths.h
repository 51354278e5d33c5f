/* Lengths of prompts and answers, for benches: from a file, or drawn from ranges. */
#ifndef VT_CLI_BENCH_LENGTHS_H
#define VT_CLI_BENCH_LENGTHS_H

#include "cli/cli.h"

typedef struct cli_lengths {
    int32_t *input, *output; /* [n] tokens */
    int32_t n;
    int64_t total_input, total_output;
} cli_lengths;

/* Reads option `id`, a range such as "100:1024" or one number. Messages say --`name`. */
vt_status cli_read_range(const cli *c, const char *id, const char *name, int32_t *lo, int32_t *hi,
                         vt_err *err);
/* The pairs of the file of option `lengths`; without one, `num` pairs from the ranges of `input`
 * and `output`, drawn with *rng. Release them in any case. */
vt_status cli_get_lengths(const cli *c, uint64_t *rng, cli_lengths *l, vt_err *err);
void cli_lengths_release(cli_lengths *l);

#endif
