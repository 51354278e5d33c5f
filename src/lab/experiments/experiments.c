/* The experiments: the server, seen from outside. */
#include "lab/experiments/experiments.h"
#include "lab/kit/tracks.h"

const lab_def *const lab_experiments[] = {&lab_experiment_1,
                                          &lab_experiment_2,
                                          &lab_experiment_3,
                                          &lab_experiment_4,
                                          &lab_experiment_5,
                                          &lab_experiment_6,
                                          NULL};
