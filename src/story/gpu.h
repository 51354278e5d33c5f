/* What a story says of a GPU, beside what it says of every device. */
#ifndef VT_STORY_GPU_H
#define VT_STORY_GPU_H

#include <jansson.h>

#include "story/findings.h"

/* "gpu" of the engine: the device, and how it was watched. Null where the engine has a CPU. */
json_t *story_gpu_json(const story_input *in);
/* "gpu" of a phase: graphs and padding, kernels, bytes to the device, idle time. */
json_t *story_gpu_phase(const story_input *in, const phase *p);
/* "kernels" of an op kind: the instances its calls launched. */
json_t *story_gpu_kernels(const story_input *in, const phase *p, const op_sum *o);
/* How the phase's steps ran, for a person: "in the graph for 8 sequences, 5.0 used". */
void story_gpu_how(const phase *p, char *out, size_t size);
/* What timing calls one by one costs; sets f->recorder_s. */
json_t *story_gpu_observer(const story_input *in, const phase *decode, story_facts *f);
/* Appends to a list of {"what", "why"}. */
void story_gpu_not_measured(const story_input *in, const phase phases[STORY_PHASES], json_t *list);

#endif
