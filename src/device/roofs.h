/* Roofs: what this machine can do at most, measured. Every share that a story or a bench prints is
 * a share of one of these.
 *
 *   memory   reading, by all threads, a working set far beyond the caches
 *   near     the same over a working set of a given size, again and again: a model that fits into
 *            the last-level cache streams from there, and must not be praised for "112 % of DRAM"
 *   fp32, bf16, int8   multiply-add in registers, all threads, the widest instructions of the level
 *
 * Measured on first need (about a second) and kept in a file named after CPU, level and threads. A
 * GPU has the same roofs (int8 is not measured), and two of its own. */
#ifndef VT_DEVICE_ROOFS_H
#define VT_DEVICE_ROOFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cpu.h"
#include "vitrine.h"

typedef struct vt_roofs {
    char name[96];     /* the CPU's model, or the table's name */
    char level[16];    /* instruction set; "" for named hardware */
    int32_t threads;   /* 0 for named hardware */
    bool measured;     /* on this machine; false: figures of the table */
    int64_t far_bytes; /* the working set behind memory_bytes_per_s */
    double memory_bytes_per_s;
    int64_t near_bytes; /* the working set that was asked for; 0: none */
    double near_bytes_per_s;
    double fp32_per_s, bf16_per_s, fp8_per_s, int8_per_s; /* operations; 0: no such unit */
    const char *fp32_how, *bf16_how, *int8_how;           /* "avx512 fma"; static, NULL: none */
    /* a GPU's: reading a working set that its L2 holds; an empty kernel among others in a graph */
    int64_t l2_bytes; /* 0: a CPU */
    double l2_bytes_per_s, kernel_s;
} vt_roofs;

/* The roofs of this machine at `threads` threads and the level in use, from the cache file or
 * measured now. working_set: bytes read again and again (a model's weights); 0: near_* stay zero. A
 * cache that cannot be read or written is no error. */
vt_status vt_roofs_get(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* The same, measured now in any case; what was known already and is higher stays. For a machine
 * that was busy when its roofs were first measured. */
vt_status vt_roofs_again(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* The roofs of GPU `ordinal`, from the cache file (named after the GPU, its driver and its clocks)
 * or measured now; `again` as above. */
vt_status vt_roofs_cuda(int32_t ordinal, int64_t working_set, bool again, vt_roofs *out,
                        vt_err *err);

/* Figures of named hardware, such as "h200"; VT_ERR_USAGE lists the names. */
vt_status vt_roofs_named(const char *name, vt_roofs *out, vt_err *err);

/* The bandwidth that a pass over the working set can reach. */
double vt_roofs_bandwidth(const vt_roofs *r);

/* One instruction set's kernels (roofs*.c). They return the operations or a checksum so that no
 * compiler may drop the work; NULL where the set has no such unit. */
typedef struct roofs_kernels {
    uint64_t (*read)(const void *p, size_t bytes);
    double (*fp32)(int64_t rounds);
    double (*bf16)(int64_t rounds);
    double (*int8)(int64_t rounds);
    const char *fp32_how, *bf16_how, *int8_how;
} roofs_kernels;

extern const roofs_kernels roofs_avx2, roofs_avx512, roofs_amx;

#endif
