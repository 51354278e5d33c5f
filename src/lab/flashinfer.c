/* The labs of the track flashinfer. */
#include "lab/flashinfer.h"

#include "lab/tracks.h"

const lab_def *const lab_flashinfer[] = {
    &lab_flashinfer_env,
    &lab_flashinfer_prefill,
    &lab_flashinfer_jit,
    NULL,
};
