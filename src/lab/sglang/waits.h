/* Tells what the hardware did in each kernel of a model's steps, and why its warps waited, as
 * NVIDIA's ncu reads it (sglang/waits.c). */
#ifndef VT_LAB_SGLANG_WAITS_H
#define VT_LAB_SGLANG_WAITS_H

#include "lab/profilers/ncu_csv.h"
#include "lab/sglang/inside.h"

/* With --ncu on a GPU: runs a prompt of n_prompt tokens and some decode steps under ncu, and tells
 * the item "waits". `story`: of such a request; it names the calls that the kernels belong to.
 * Else the item is missing with the reason. */
void sglang_waits(lab *l, const json_t *story, int32_t n_prompt);
/* Tells it of one launch of each call that the report has, as the item "waits"; returns of how many
 * calls. 0: of none, and nothing was told. */
int32_t sglang_tell_launches(lab *l, const json_t *story, const ncu_report *r);

#endif
