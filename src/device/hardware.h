/* GPUs known by name: what a program can be described and costed for without having one. */
#ifndef VT_DEVICE_HARDWARE_H
#define VT_DEVICE_HARDWARE_H

#include "device/roofs.h"

typedef struct vt_hardware {
    vt_roofs roofs;       /* roofs.name is the name */
    const char *source;   /* where the roofs come from, for people */
    int64_t memory_bytes; /* by the vendor's data sheet */
    int32_t kernel_level; /* 80 or 90, as vt_cuda.level */
    int32_t sm_count;
    int32_t max_shared_bytes; /* that a CTA may ask for */
} vt_hardware;

/* The GPU of this name, in any case of letters. NULL: there is none; *err (VT_ERR_USAGE) lists the
 * names. */
const vt_hardware *vt_hardware_find(const char *name, vt_err *err);

#endif
