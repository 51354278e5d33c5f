/* The part of lab sglang 04 that wraps nsys. */
#ifndef VT_LAB_SGLANG_TIMELINE_H
#define VT_LAB_SGLANG_TIMELINE_H

#include "lab/kit/lab.h"

/* The item nsys: with --nsys, runs a request under nsys where that is installed, and has it
 * summarise its kernels. */
vt_status sglang_nsys(lab *l, vt_err *err);

#endif
