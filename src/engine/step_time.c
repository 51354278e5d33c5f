/* The running estimate of a step's time (engine/step_time.h). */
#include "engine/step_time.h"

static const double kWeight = 0.25; /* of the newest step in an average */
static const double kLeast = 0.1;   /* share of a mixed step that is its prefill's, at least */

static void average(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + kWeight * (value - *mean) : value;
}

/* A step of prefill alone is taken for a mixed one: reading the weights costs it what decodes
 * cost. One with fewer tokens than the least chunk says too little about a token. */
void vt_step_time_ran(vt_step_time *t, int32_t decodes, int32_t prefill, int64_t ns)
{
    if (ns <= 0)
        return;
    double time = (double)ns, rest = time - t->decode_ns;
    if (prefill == 0 && decodes > 0)
        average(&t->decode_ns, time);
    else if (prefill >= VT_CHUNK_LEAST)
        average(&t->token_ns, (rest > kLeast * time ? rest : kLeast * time) / prefill);
}

int32_t vt_step_time_tokens(const vt_step_time *t, int64_t target_ns)
{
    double left = (double)target_ns - t->decode_ns;
    if (!(t->token_ns > 0) || left >= t->token_ns * INT32_MAX)
        return INT32_MAX;
    int32_t n = left > 0 ? (int32_t)(left / t->token_ns) : 0;
    return n > VT_CHUNK_LEAST ? n : VT_CHUNK_LEAST;
}
