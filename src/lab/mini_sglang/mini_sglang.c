/* The labs of the track mini-sglang: the kernels of a small engine. */
#include "lab/kit/tracks.h"
#include "lab/mini_sglang/mini_sglang.h"

const lab_def *const lab_mini_sglang[] = {
    &mini_check_env,     &mini_test_kernels,      &mini_profile_index,
    &mini_profile_store, &mini_profile_attention, &mini_profile_comm,
    &mini_full_pipeline, &mini_profile_radix,     NULL,
};
