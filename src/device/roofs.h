/* Roofs: the measured maximum of what this machine can do. Every share that a story or a bench
 * prints is a share of one of these.
 *
 *   memory   all threads read a working set far larger than the caches
 *   near     all threads read a working set of a given size again and again: a model that fits into
 *            the last-level cache streams from there and must not be reported at "112 % of DRAM"
 *   fp32, bf16, int8   all threads multiply and add in registers, with the level's widest
 *                      instructions
 *
 * Roofs are measured when first needed (about a second) and kept in a file named after CPU, level
 * and number of threads. A GPU has the same roofs (except that int8 is not measured) and two more.
 */
#ifndef VT_DEVICE_ROOFS_H
#define VT_DEVICE_ROOFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cpu.h"
#include "vitrine.h"

typedef struct vt_roofs {
    char name[96];     /* the CPU's model, the GPU's name, or a name of device/hardware.h */
    char level[16];    /* instruction set; "" for named hardware */
    int32_t threads;   /* 0 for named hardware */
    bool measured;     /* true: measured on this machine; false: of device/hardware.h */
    int64_t far_bytes; /* the working set that memory_bytes_per_s was measured with */
    double memory_bytes_per_s;
    int64_t near_bytes; /* the working set that near_bytes_per_s is for; 0: none was asked for */
    double near_bytes_per_s;
    double fp32_per_s, bf16_per_s, fp8_per_s, int8_per_s; /* operations; 0: no such unit */
    const char *fp32_how, *bf16_how, *int8_how;           /* "avx512 fma"; static, NULL: none */
    /* Only for a GPU: the rate of reading a working set that its L2 holds, and the time of an empty
     * kernel between others in a graph. */
    int64_t l2_bytes; /* 0: a CPU */
    double l2_bytes_per_s, kernel_s;
} vt_roofs;

/* The roofs of this machine with `threads` threads and the level in use, from the cache file or
 * measured now. working_set: bytes that are read again and again (a model's weights); 0: near_*
 * stay zero. It is no error if the cache cannot be read or written. */
vt_status vt_roofs_get(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* The same, but always measured now. A figure in the file that is higher is kept. For a machine
 * that was busy when its roofs were first measured. */
vt_status vt_roofs_again(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* The roofs of GPU `ordinal`, from the cache file (named after the GPU, its driver and its clocks)
 * or measured now; `again`: always measured now, as in vt_roofs_again. */
vt_status vt_roofs_cuda(int32_t ordinal, int64_t working_set, bool again, vt_roofs *out,
                        vt_err *err);

/* The bandwidth that a pass over the working set can reach: near_bytes_per_s if it was measured,
 * else memory_bytes_per_s. */
double vt_roofs_bandwidth(const vt_roofs *r);

/* The kernels of one instruction set (roofs_*.c). They return a checksum (read) or their number of
 * operations (the others), so that no compiler may drop the work. NULL: the instruction set has no
 * such unit. */
typedef struct roofs_kernels {
    uint64_t (*read)(const void *p, size_t bytes);
    double (*fp32)(int64_t rounds);
    double (*bf16)(int64_t rounds);
    double (*int8)(int64_t rounds);
    const char *fp32_how, *bf16_how, *int8_how;
} roofs_kernels;

extern const roofs_kernels roofs_avx2, roofs_avx512, roofs_amx;

#endif
