/* Helpers for vt_impl.describe: they fill in what follows from a row's own numbers. */
#ifndef VT_OPS_CUT_H
#define VT_OPS_CUT_H

#include "device/cuda/cuda.h"
#include "ops/op.h"

/* Formats out->shape like printf; cuts it off if it is too long. */
__attribute__((format(printf, 2, 3))) void vt_cut_shape(vt_cut *out, const char *format, ...);
/* Sets out->roles and out->merge. NULL leaves one empty. */
void vt_cut_roles(vt_cut *out, const char *roles, const char *merge);

/* CPU: `items` pieces are dealt out to the target's workers. vector_bytes 0: no vectors. */
void vt_cut_cpu(vt_cut *out, const vt_target *t, int64_t items, int32_t vector_bytes);

/* CUDA: `items` pieces of work for the CTAs of launch `l`. `resident` is the number that threads
 * and shared memory allow. A kernel with many registers has fewer, which is known only once it is
 * compiled. */
void vt_cut_cuda(vt_cut *out, const vt_target *t, int64_t items, const cuda_launch *l,
                 int32_t vector_bytes);
/* The same if every CTA works on one piece. */
void vt_cut_grid(vt_cut *out, const vt_target *t, const cuda_launch *l, int32_t vector_bytes);
/* Counts the items that the plan of a batch has, `filled`, instead of those that describe tells of:
 * those that it has `room` for. Does nothing where the cut's items are no multiple of `room`. */
void vt_cut_planned(vt_cut *out, int32_t filled, int32_t room);
int64_t vt_cut_ctas(const cuda_launch *l);

#endif
