/* The labs of the track mini-sglang. */
#include "lab/tracks.h"

const lab_def *const lab_mini_sglang[] = {NULL};
