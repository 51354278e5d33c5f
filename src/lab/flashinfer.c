/* The labs of the track flashinfer. */
#include "lab/tracks.h"

const lab_def *const lab_flashinfer[] = {NULL};
