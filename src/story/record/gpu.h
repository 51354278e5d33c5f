/* The parts of a story that only a GPU has. */
#ifndef VT_STORY_GPU_H
#define VT_STORY_GPU_H

#include "base/json_write.h"
#include "device/cuda/occupancy.h"
#include "story/findings/findings.h"

/* "gpu": a stream's device, and how it was watched. Null where `g` is NULL. */
void story_gpu_engine(vt_json *w, const story_source *g, const vt_roofs *roofs);
/* "gpu" of a phase on a stream: graphs and padding, kernels, bytes to the device, idle time; null
 * where `g` is NULL. */
void story_gpu_phase(vt_json *w, const phase *p, const phase_lane *g);
/* "kernels" of an op kind: the instances that its calls launched. */
void story_gpu_kernels(vt_json *w, const phase *p, const op_sum *o);
/* Gives what NVIDIA's rules say of a kernel's newest launch. False: no launch was kept, or the
 * rules do not know the GPU. */
bool story_gpu_occupancy(const story_source *g, const vt_kernel_facts *k,
                         vt_occupancy_input *launch, vt_occupancy *out);
/* Writes a sentence on what would let an SM hold one CTA more. False: nothing that alone would
 * do. */
enum { STORY_CTA_MORE = 224 };
bool story_gpu_cta_more(const vt_kernel_facts *k, const vt_occupancy *o, char out[STORY_CTA_MORE]);
/* Says how the phase's steps ran, for a person: "in the graph for 8 sequences, 5 used"; "" where
 * `g` is NULL. */
void story_gpu_how(const phase *p, const phase_lane *g, char *out, size_t size);
/* The members of "observer" where only some steps are timed: what timing their calls costs. */
void story_gpu_observer(vt_json *w, const phase *decode, const phase_lane *g);
/* Elements of "not_measured", from the streams that the phases took longest on. */
void story_gpu_not_measured(vt_json *w, const phase phases[STORY_PHASES]);

#endif
