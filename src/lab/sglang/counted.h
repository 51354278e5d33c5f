/* Tells what a GPU's hardware did in each call of a step (sglang/counted.c). */
#ifndef VT_LAB_SGLANG_COUNTED_H
#define VT_LAB_SGLANG_COUNTED_H

#include "lab/sglang/inside.h"

/* Runs a bench of n_prompt tokens in a process of its own, with the GPU's counters, and tells the
 * items "counted" and "hardware". On a CPU, and where no counter could be read, both are missing
 * with the reason. */
void sglang_counted(lab *l, int32_t n_prompt);
/* Tells them of a story that was recorded. */
void sglang_tell_counted(lab *l, const json_t *story, int32_t n_layers);

#endif
