/* Judges if a roof's samples can be believed.
 *
 * A sample is the rate of one short run. Other programs can only make a run slower, so the best
 * sample is nearest to the truth, if the machine left the program alone at least for that long. Two
 * things say whether it did: how long the measuring threads waited for a CPU during a run, and
 * whether several runs agree.
 *
 *   samples      28.1*  31.9  32.4  32.1         * its threads waited for a CPU
 *   best 32.4, and 31.9 and 32.1 are within 3 % of it: two runs without waiting agree. Measured.
 *
 *   samples      7.6  19.0*  32.4*  11.2
 *   best 32.4, but no two runs without waiting are within 3 % of it. Disturbed. */
#ifndef VT_DEVICE_ROOFS_ROOFS_SAMPLE_H
#define VT_DEVICE_ROOFS_ROOFS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { ROOF_MAX_SAMPLES = 256 };

typedef struct roof_samples {
    double rate[ROOF_MAX_SAMPLES]; /* of the undisturbed runs; larger is better */
    int32_t n, n_disturbed;
    double best; /* of all runs */
} roof_samples;

/* Adds a run that took `seconds` for `work` units. The threads together waited delay_ns for a CPU;
 * -1: not known. The run counts as disturbed if that was more than 2 % of its time. */
void roof_samples_add(roof_samples *s, double work, double seconds, int64_t delay_ns);
/* Returns true if the best two undisturbed runs are within 3 % of the best of all. */
bool roof_samples_agree(const roof_samples *s);

#endif
