/* The labs of the track sglang. */
#include "lab/tracks.h"

const lab_def *const lab_sglang[] = {NULL};
