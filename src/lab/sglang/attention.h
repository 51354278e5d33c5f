/* The part of lab sglang 05 that wraps ncu. */
#ifndef VT_LAB_SGLANG_ATTENTION_H
#define VT_LAB_SGLANG_ATTENTION_H

#include "lab/kit/lab.h"

/* The items stalls and counters: with --ncu, runs the op on this shape under ncu where that is
 * installed, and reads its CSV. k: what the lab measured; may be NULL. */
void sglang_ncu(lab *l, const char *op, const char *shape, const lab_kernel *k);

#endif
