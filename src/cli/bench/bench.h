/* The benches share this: samples with mean and spread, and the settings a result was made with. */
#ifndef VT_CLI_BENCH_BENCH_H
#define VT_CLI_BENCH_BENCH_H

#include "cli/cli.h"

enum { CLI_SAMPLE_KEPT = 256 };

typedef struct cli_sample {
    double sum, squares, low, high;
    double kept[CLI_SAMPLE_KEPT]; /* the first values, for the median and the noise */
    int32_t n;
} cli_sample;

void cli_sample_add(cli_sample *s, double v); /* NAN is not counted */
double cli_sample_mean(const cli_sample *s);  /* NAN without values */
double cli_sample_stdev(const cli_sample *s); /* of the sample (n - 1); NAN below two */
/* "name": mean, "name_stdev": stdev, "name_median": median, "name_noise": vt_noise */
void cli_sample_write(vt_json *w, const char *name, const cli_sample *s, int digits);

/* Begins a bench's result: {"bench", "model", "version", "commit", "device", "machine",
 * "settings": {every option of the verb: its value}, "knobs". The object is left open for the
 * bench's own members and cli_object_print. `model` NULL: the bench has none. */
void cli_bench_begin(vt_json *w, const cli *c, const char *bench, const char *model);

#endif
