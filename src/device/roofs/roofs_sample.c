/* Judges if a roof's samples can be believed (device/roofs/roofs_sample.h). */
#include "device/roofs/roofs_sample.h"

static const double near_enough = 0.97; /* of the best */
static const double too_long = 0.02;    /* share of a run that its threads may wait for a CPU */

void roof_samples_add(roof_samples *s, double work, double seconds, int64_t delay_ns)
{
    if (!(seconds > 0) || !(work > 0))
        return;
    double rate = work / seconds;
    if (rate > s->best)
        s->best = rate;
    if (delay_ns > 0 && (double)delay_ns * 1e-9 > too_long * seconds)
        s->n_disturbed++;
    else if (s->n < ROOF_MAX_SAMPLES)
        s->rate[s->n++] = rate;
}

bool roof_samples_agree(const roof_samples *s)
{
    int32_t near = 0;
    for (int32_t i = 0; i < s->n; i++)
        near += s->rate[i] >= near_enough * s->best;
    return near >= 2;
}
