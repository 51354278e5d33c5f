/* The labs of the track flashinfer. */
#include "lab/flashinfer/flashinfer.h"

#include "lab/kit/tracks.h"

const lab_def *const lab_flashinfer[] = {
    &lab_flashinfer_env,  &lab_flashinfer_test, &lab_flashinfer_prefill, &lab_flashinfer_decode,
    &lab_flashinfer_norm, &lab_flashinfer_rope, &lab_flashinfer_jit,     NULL,
};
