/* Knobs: environment variables for measurements and for unusual machines. They are not options of
 * any verb. Each is declared once: those of the engine and its devices in knob.c, those of an op's
 * rows on its card (vt_op.knob). --help, `bench --json` and the checks read both (ops/knobs.h). */
#ifndef VT_BASE_KNOB_H
#define VT_BASE_KNOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum vt_knob {
    VT_KNOB_ISA,
    VT_KNOB_CUDA_LEVEL,
    VT_KNOB_CUDA_PDL,
    VT_KNOB_CUDA_ONE_GRAPH,
    VT_KNOB_CUDA_STEP_LIMIT,
    VT_KNOB_CUBLASLT,
    VT_KNOB_NVRTC,
    VT_KNOB_CUPTI,
    VT_KNOB_RANK_LIMIT,
    VT_KNOB_COMM_TIMES,
    VT_KNOB_DISTURBED_LIMIT,
    VT_KNOB_SPIN_US,
    VT_N_KNOBS
} vt_knob;

typedef struct vt_knob_row {
    const char *env;      /* "VITRINE_CUDA_PDL" */
    const char *choices;  /* "0|1": the allowed words; NULL: there are none */
    bool number;          /* a number from 0 to `most` is allowed */
    bool path;            /* a path is allowed; without choices anything that dlopen takes */
    int64_t most, preset; /* `preset` is the value if the variable is not set */
    const char *expected; /* what the message for a wrong value expects: "0 or 1" */
    const char *help;     /* one line, no full stop */
} vt_knob_row;

extern const vt_knob_row vt_knobs[VT_N_KNOBS];

/* The variable's text; NULL if it is not set or empty. */
const char *vt_knob_text(const vt_knob_row *k);
/* Fails if the table does not allow the variable's text: "VITRINE_CUDA_PDL=off: expected 0 or
 * 1". */
vt_status vt_knob_check(const vt_knob_row *k, vt_err *err);
/* The value of a numeric knob, from its text or else its preset. It must have been checked. */
int64_t vt_knob_int(const vt_knob_row *k);

#endif
