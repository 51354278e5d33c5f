/* Samples of the program counter, by CUPTI's PC sampling: at equal intervals each SM notes where
 * one of its warps is in its program, and why it did not go on (stalls.h). Kernels run as
 * always.
 *
 *   vt_pc_begin    from here on the hardware takes samples
 *     ...          kernels run, and the host waits for their end
 *   vt_pc_end      all that was sampled, instruction by instruction
 *   vt_cupti_line  the line of an instruction, in a cubin of a JIT with lines (vt_jit_set_lines)
 *
 * While it samples, nothing else of CUPTI can count on this GPU. */
#ifndef VT_DEVICE_CUPTI_PC_H
#define VT_DEVICE_CUPTI_PC_H

#include "base/trace.h"
#include "device/cupti/cupti.h"

/* An instruction, and the samples in which a warp was at it. */
typedef struct vt_pc_place {
    const char *function; /* "rmsnorm" */
    uint64_t pc;          /* bytes from its begin */
    uint64_t cubin_sum;   /* of vt_cupti_cubin_sum; 0: not known */
    uint64_t samples;
    uint64_t stalled[VT_STALLS]; /* of the samples, those with this reason */
} vt_pc_place;

typedef struct vt_pc_totals {
    uint64_t samples; /* of all kernels, those of other processes and of the driver too */
    uint64_t dropped; /* lost by the hardware */
    bool whole;       /* every instruction was told */
} vt_pc_totals;

typedef struct vt_pc vt_pc;

/* The error says why nothing can be sampled. `gpu` stays open while the result is used. */
vt_status vt_pc_open(const vt_cuda *gpu, vt_pc **out, vt_err *err);
void vt_pc_close(vt_pc *p);

/* The GPU's context is current, and it has nothing to do. Permissions show here. */
vt_status vt_pc_begin(vt_pc *p, vt_err *err);
/* Tells `seen` of each instruction; the GPU has nothing to do any more. Does nothing if it was not
 * begun. */
typedef void vt_pc_seen(void *user, const vt_pc_place *place);
vt_status vt_pc_end(vt_pc *p, vt_pc_seen *seen, void *user, vt_pc_totals *totals, vt_err *err);

/* The library that samples. */
const vt_cupti *vt_pc_library(const vt_pc *p);
/* CUPTI's sum of a cubin; 0: not known. Needs no GPU. */
uint64_t vt_cupti_cubin_sum(const vt_cupti *c, const void *cubin, size_t bytes);
/* Writes the name of the file, without its folder, and returns the line; 0: the cubin does not say.
 * Needs no GPU. */
int32_t vt_cupti_line(const vt_cupti *c, const void *cubin, size_t bytes, const char *function,
                      uint64_t pc, char *file, size_t size);

#endif
