/* The labs of each track, in their order; each list ends with NULL. */
#ifndef VT_LAB_KIT_TRACKS_H
#define VT_LAB_KIT_TRACKS_H

#include "lab/kit/lab.h"

extern const lab_def *const lab_sglang[];
extern const lab_def *const lab_mini_sglang[];
extern const lab_def *const lab_flashinfer[];
extern const lab_def *const lab_experiments[];

#endif
