/* Knobs: environment variables for measuring and for odd machines, no options of a verb. Each is
 * declared once, in knob.c; --help, `bench --json` and the checks read that table. */
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
    VT_KNOB_CUDA_SHARED,
    VT_KNOB_CUBLASLT,
    VT_KNOB_NVRTC,
    VT_N_KNOBS
} vt_knob;

typedef struct vt_knob_row {
    const char *env;      /* "VITRINE_CUDA_PDL" */
    const char *choices;  /* "0|1"; NULL: any */
    bool number;          /* from 0 to `most` */
    bool path;            /* a path is a value too; without choices: whatever dlopen takes */
    int64_t most, preset; /* `preset` holds where the variable is not set */
    const char *expected; /* for the message of a wrong value: "0 or 1" */
    const char *help;     /* one line, no full stop */
} vt_knob_row;

extern const vt_knob_row vt_knobs[VT_N_KNOBS];

/* The variable's text; NULL where it is not set, or empty. */
const char *vt_knob_text(vt_knob k);
/* Fails where the text is none that the row allows: "VITRINE_CUDA_PDL=off: expected 0 or 1". */
vt_status vt_knob_check(vt_knob k, vt_err *err);
vt_status vt_knob_check_all(vt_err *err);
/* The number of a knob that was checked: of its text, or its preset. */
int64_t vt_knob_int(vt_knob k);

#endif
