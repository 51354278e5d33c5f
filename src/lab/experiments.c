/* The labs of the track experiments. */
#include "lab/tracks.h"

const lab_def *const lab_experiments[] = {NULL};
