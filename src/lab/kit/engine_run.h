/* A whole engine in a process of its own: `vitrine bench latency` with an environment variable or
 * options more than this process has. A process decides once which instructions, kernels and
 * libraries it uses, so such settings cannot be compared inside one.
 *
 *     lab_engine_run off, on;
 *     lab_engine_ask ask = {.prompt = 128, .gen = 32};
 *     TRY(lab_engine_child(l, &ask, &on, err));
 *     ask.env = "VITRINE_CUDA_PDL=0";
 *     TRY(lab_engine_child(l, &ask, &off, err));
 */
#ifndef VT_LAB_KIT_ENGINE_RUN_H
#define VT_LAB_KIT_ENGINE_RUN_H

#include "lab/kit/lab.h"

enum { LAB_ENGINE_OPTIONS = 4 };

typedef struct lab_engine_ask {
    const char *env;                        /* "VITRINE_ISA=avx2"; NULL: none */
    const char *option[LAB_ENGINE_OPTIONS]; /* such as {"--no-graphs", NULL} */
    int32_t prompt, gen, batch, reps;       /* 0: 1 sequence, 5 repetitions */
} lab_engine_ask;

typedef struct lab_engine_run {
    double ttft_s, ttft_noise;   /* of a prompt: median; noise: vt_noise */
    double token_s, token_noise; /* a decode step */
    double prefill_tokens_per_s, decode_tokens_per_s;
} lab_engine_run;

/* VT_ERR_UNSUPPORTED: the process ended with another status than 0, which the sentence names. */
vt_status lab_engine_child(lab *l, const lab_engine_ask *ask, lab_engine_run *out, vt_err *err);
/* Returns true if the model is small enough to be loaded once for each setting; else `why` says
 * so. */
bool lab_engine_small(lab *l, char why[160]);

#endif
