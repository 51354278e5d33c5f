#include "emulated_ops.h"

#include <stdio.h>

#include "emulated_gpu.h"

on_cuda_gpu gpu;

int emulated_ops_open(void **state, const on_cuda_options *o)
{
    vt_err err = {0};
    if (emulated_gpu_open(state) != 0)
        return -1;
    if (on_cuda_open(0, o, &gpu, &err) == VT_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

int emulated_ops_close(void **state)
{
    (void)state;
    on_cuda_close(&gpu);
    return 0;
}
