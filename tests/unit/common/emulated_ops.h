/* Calls of ops on the emulated GPU: setup and teardown functions of a group of tests. */
#ifndef VT_TESTS_EMULATED_OPS_H
#define VT_TESTS_EMULATED_OPS_H

#include "ops/calls/on_cuda.h"

extern on_cuda_gpu gpu;

/* Opens `gpu` with these options. */
int emulated_ops_open(void **state, const on_cuda_options *o);
int emulated_ops_close(void **state);

#endif
