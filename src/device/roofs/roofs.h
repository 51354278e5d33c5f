/* Roofs: the measured maximum of what this machine can do. Every share that a story or a bench
 * prints is a share of one of these.
 *
 *   memory   all threads read a working set far larger than the caches
 *   weights  all threads read a working set of a given size again and again: a model that fits into
 *            the last-level cache streams from there and must not be reported at "112 % of DRAM"
 *   copy     all threads copy memory of the first size: bytes read and bytes written
 *   l2, l3   all threads read a working set that these caches hold
 *   fp32, bf16, int8, fp8   all threads multiply and add in registers, with the level's widest
 *            instructions
 *   meeting  all threads meet at a barrier: what a call costs that has nothing to do
 *
 * A GPU has no L3 and no meeting. Its launch takes their place (an empty kernel between others in a
 * graph, with and without programmatic dependent launch), and it has the rate of the link to pinned
 * host memory in both directions.
 *
 * Roofs are measured when first needed and kept in a file named after CPU, level and number of
 * threads. Each figure is measured again and again until two undisturbed runs agree
 * (roofs/roofs_sample.h); all figures together get at most 3 s. A figure whose runs do not agree
 * is tagged `disturbed`. It is used, because it is the best there is, but it is kept for a minute
 * only (VITRINE_DISTURBED_LIMIT): whoever needs it later measures it again. Without that minute
 * each run on a busy machine would take 3 s longer. */
#ifndef VT_DEVICE_ROOFS_ROOFS_H
#define VT_DEVICE_ROOFS_ROOFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cpu.h"
#include "vitrine.h"

typedef enum vt_roof_kind {
    VT_ROOF_MEMORY,
    VT_ROOF_WEIGHTS,
    VT_ROOF_COPY,
    VT_ROOF_L2,
    VT_ROOF_L3,
    VT_ROOF_FP32,
    VT_ROOF_BF16,
    VT_ROOF_FP8,
    VT_ROOF_INT8,
    VT_ROOF_MEETING,
    VT_ROOF_KERNEL,
    VT_ROOF_KERNEL_PDL,
    VT_ROOF_TO_DEVICE,
    VT_ROOF_FROM_DEVICE,
    VT_ROOFS
} vt_roof_kind;

typedef enum vt_roof_tag {
    VT_ROOF_ABSENT, /* there is no such unit, or nobody knows its rate */
    VT_ROOF_MEASURED,
    VT_ROOF_DISTURBED, /* measured, but other programs were in the way */
    VT_ROOF_DATASHEET,
    VT_ROOF_TAGS
} vt_roof_tag;

/* Where a figure comes from. */
typedef struct vt_roof_mark {
    vt_roof_tag tag;
    int64_t when; /* seconds since 1970; 0: not known */
} vt_roof_mark;

/* Figures are bytes or operations a second, or seconds; 0: not known. */
typedef struct vt_roofs {
    char name[96];   /* the CPU's model, the GPU's name, or a name of device/hardware.h */
    char level[16];  /* instruction set; "" for named hardware */
    int32_t threads; /* 0 for a GPU and for named hardware */
    bool is_gpu;
    bool measured;     /* true: measured on this machine; false: of device/hardware.h or a file */
    int64_t far_bytes; /* the working set that memory_bytes_per_s was measured with */
    double memory_bytes_per_s;
    int64_t near_bytes; /* the working set that near_bytes_per_s is for; 0: none was asked for */
    double near_bytes_per_s;
    int64_t copy_bytes; /* read and written */
    double copy_bytes_per_s;
    int64_t l2_bytes, l3_bytes; /* working sets; on a CPU of all threads together */
    double l2_bytes_per_s, l3_bytes_per_s;
    /* what these caches hold: on a CPU the L2s of all threads together */
    int64_t l2_size, l3_size;
    double fp32_per_s, bf16_per_s, fp8_per_s, int8_per_s;
    const char *fp32_how, *bf16_how, *fp8_how, *int8_how; /* "avx512 fma"; static, NULL: none */
    double meeting_s;                                     /* CPU */
    double kernel_s, kernel_pdl_s;                        /* GPU */
    int64_t link_bytes;
    double to_device_bytes_per_s, from_device_bytes_per_s;
    vt_roof_mark mark[VT_ROOFS];
    char key[192]; /* names this device's files in the cache; "" for named hardware */
} vt_roofs;

/* How a figure is printed and kept (roofs_table.c). */
typedef struct vt_roof_row {
    const char *key;  /* "memory_bytes_per_s": its name in files and in JSON */
    const char *name; /* "memory read" */
    const char *unit; /* "B", "FLOP", "OP"; NULL: a time */
    const char *how;  /* "pinned memory"; NULL: the how of the roofs, if they have one */
} vt_roof_row;

extern const vt_roof_row vt_roof_rows[VT_ROOFS];
extern const char *const vt_roof_tag_name[VT_ROOF_TAGS]; /* "n/a", "measured" ... */

double vt_roof_get(const vt_roofs *r, vt_roof_kind kind);
void vt_roof_set(vt_roofs *r, vt_roof_kind kind, double value, vt_roof_tag tag, int64_t when);
/* The working set that the figure was measured with; NULL: it has none. */
int64_t *vt_roof_working_set(vt_roofs *r, vt_roof_kind kind);
/* "avx512 fma"; NULL: there is nothing to say. */
const char *vt_roof_how(const vt_roofs *r, vt_roof_kind kind);
/* Keeps whichever is better, the figure of `r` or this one: a roof is a maximum. Equal figures keep
 * their mark, and so does a measured one that a disturbed one beats by less than 3 %. */
void vt_roof_better(vt_roofs *r, vt_roof_kind kind, double value, vt_roof_tag tag, int64_t when);
/* True in a build with a sanitizer: its loops are slower, so that its roofs say nothing of the
 * machine. */
bool vt_roofs_sanitized(void);
/* Returns true if a figure of `r` that its machine could have measured was disturbed. */
bool vt_roofs_disturbed(const vt_roofs *r);

/* The roofs of this machine with `threads` threads and the level in use, from the cache file or
 * measured now. working_set: bytes that are read again and again (a model's weights); 0: near_*
 * stay zero. It is no error if the cache cannot be read or written. */
vt_status vt_roofs_get(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* The same, but always measured now. A figure in the file that is higher is kept. */
vt_status vt_roofs_again(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err);

/* Measures what all threads read from memory at this moment, as VT_ROOF_MEMORY, in about 0.1 s.
 * Another guest of the same host can take part of the memory's bandwidth, and no clock or counter
 * of this machine tells that. A figure above the one in the file takes its place there: that one
 * was measured at such a time. */
vt_status vt_roofs_memory_now(int32_t threads, double *bytes_per_s, vt_err *err);

/* The roofs of GPU `ordinal`, from the cache file (named after the GPU, its driver and its clocks)
 * or measured now; `again`: always measured now, as in vt_roofs_again. */
vt_status vt_roofs_cuda(int32_t ordinal, int64_t working_set, bool again, vt_roofs *out,
                        vt_err *err);

/* The bandwidth that a pass over the working set can reach: near_bytes_per_s if it was measured,
 * else memory_bytes_per_s. */
double vt_roofs_bandwidth(const vt_roofs *r);

/* The least time of a call that has nothing to do: the meeting of a CPU's threads, or a GPU's
 * launch in a graph. `pdl`: kernels are launched with programmatic dependent launch. 0: not known,
 * or measured only disturbed, because such a time is too long to be a least one. */
double vt_roofs_launch_s(const vt_roofs *r, bool pdl);

/* The bytes that VT_ROOF_MEMORY and VT_ROOF_COPY are measured with on such a machine: several times
 * what all its caches hold. */
int64_t roofs_far_bytes(const vt_cpu *cpu);

enum { ROOFS_READS = 6 };

/* The kernels of one instruction set (roofs_*.c). They return a checksum (read) or their number of
 * operations (the others), so that no compiler may drop the work. NULL: the instruction set has no
 * such unit. Which way of reading is the fastest differs between machines, caches and memory, so
 * that a read roof is the best of all. */
typedef struct roofs_kernels {
    uint64_t (*read[ROOFS_READS])(const void *p, size_t bytes); /* several ways; NULL ends them */
    double (*fp32)(int64_t rounds);
    double (*bf16)(int64_t rounds);
    double (*int8)(int64_t rounds);
    const char *fp32_how, *bf16_how, *int8_how;
} roofs_kernels;

extern const roofs_kernels roofs_avx2, roofs_avxvnni, roofs_avx512, roofs_amx;

#endif
