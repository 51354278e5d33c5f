/* How many CTAs of a kernel an SM holds at once, and what limits that, by NVIDIA's rules for each
 * compute capability. Needs no GPU and no privilege. */
#ifndef VT_DEVICE_CUDA_OCCUPANCY_H
#define VT_DEVICE_CUDA_OCCUPANCY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum vt_occupancy_limit {
    VT_LIMIT_NONE, /* the SM's warps are all used */
    VT_LIMIT_REGISTERS,
    VT_LIMIT_SHARED,
    VT_LIMIT_CTAS /* the most CTAs that an SM holds */
} vt_occupancy_limit;

typedef struct vt_occupancy_input {
    int32_t cc;           /* 80, 86, 87, 89, 90, 100 or 120 */
    int32_t threads;      /* of a CTA, 1 to 1024 */
    int32_t registers;    /* of a thread */
    int64_t shared_bytes; /* of a CTA, static and dynamic */
    int64_t grid;         /* CTAs of the launch; 0: not known */
    int32_t sm_count;     /* 0: not known */
} vt_occupancy_input;

typedef struct vt_occupancy {
    int32_t ctas;             /* an SM holds at once; 0: the kernel cannot run */
    int32_t warps, max_warps; /* of the SM: in use, and there */
    double share;             /* warps / max_warps */
    vt_occupancy_limit limit;
    double waves; /* of the launch: grid / (ctas * SMs); 0: not known */
    double tail;  /* share of all CTA places over these waves that stay empty in the last one */
    /* An SM would hold one CTA more with at most so many registers a thread, or so many bytes of
     * shared memory, with everything else as it is. -1: that alone would not do it. */
    int32_t fewer_registers;
    int64_t less_shared;
} vt_occupancy;

/* False: the compute capability or a number is not known or out of range. */
bool vt_occupancy_of(const vt_occupancy_input *in, vt_occupancy *out);
const char *vt_occupancy_limit_name(vt_occupancy_limit l);

#endif
