/* How long steps take, as far as their tokens tell: what chunks of prefill beside running decodes
 * are sized by.
 *
 *   time of a step = decode_ns + prefill tokens * token_ns
 *
 * Both terms are moving averages of measured steps, so they follow the model, the machine, the
 * batch and the length of the contexts without knowing any of them. */
#ifndef VT_ENGINE_STEP_TIME_H
#define VT_ENGINE_STEP_TIME_H

#include <stdint.h>

enum { VT_CHUNK_LEAST = 16 /* tokens; a prompt always goes on by at least as many */ };

typedef struct vt_step_time {
    double decode_ns; /* of the decodes; 0: no step had decodes alone yet */
    double token_ns;  /* that a prefill token adds; 0: none was measured yet */
} vt_step_time;

/* A step of `decodes` sequences and `prefill` tokens took this long. */
void vt_step_time_ran(vt_step_time *t, int32_t decodes, int32_t prefill, int64_t ns);
/* Returns how many prefill tokens a step with decodes may have to end within target_ns: at least
 * VT_CHUNK_LEAST; INT32_MAX while nothing is known. */
int32_t vt_step_time_tokens(const vt_step_time *t, int64_t target_ns);

#endif
