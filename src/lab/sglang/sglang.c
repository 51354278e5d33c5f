/* The labs of the track sglang: a serving system. */
#include "lab/kit/tracks.h"
#include "lab/sglang/inside.h"

const lab_def *const lab_sglang[] = {
    &sglang_check_env, &sglang_baseline,  &sglang_radix, &sglang_backends,
    &sglang_timeline,  &sglang_attention, &sglang_ranks, NULL};
