/* What the benches share: samples with mean and spread, and the settings a result was made with. */
#ifndef VT_CLI_BENCH_H
#define VT_CLI_BENCH_H

#include "cli/cli.h"

typedef struct cli_sample {
    double sum, squares, low, high;
    int32_t n;
} cli_sample;

void cli_sample_add(cli_sample *s, double v); /* NAN is not counted */
double cli_sample_mean(const cli_sample *s);  /* NAN of none */
double cli_sample_stdev(const cli_sample *s); /* of the sample (n - 1); NAN below two */
/* "name": mean, "name_stdev": stdev */
void cli_sample_json(json_t *object, const char *name, const cli_sample *s, int digits);

/* {"commit", "version", "machine": {...}, "settings": {every option of the verb: its value}} */
json_t *cli_bench_json(const cli *c, const char *bench, const char *model);

#endif
