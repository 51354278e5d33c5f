/* The CPU this process runs on: topology, caches, instruction sets. The description is read once
 * and is one of the two global variables of the program. */
#ifndef VT_DEVICE_CPU_H
#define VT_DEVICE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

/* Instruction-set levels, in rising order on x86: a level includes those before it.
 * VITRINE_ISA=name sets the highest level that is used. */
typedef enum vt_isa {
    VT_ISA_PORTABLE = 0,
    VT_ISA_AVX2,   /* avx2, fma, f16c, bmi2 */
    VT_ISA_AVX512, /* avx512 f, bw, dq, vl and vnni */
    VT_ISA_AMX,    /* amx tile, int8, bf16; the operating system must permit it */
    VT_ISA_NEON,   /* arm64 only */
    VT_ISA_COUNT
} vt_isa;

typedef struct vt_cpu {
    char model[96];
    int32_t n_cpus;                        /* CPUs that this process may run on */
    int32_t n_cores;                       /* physical cores, at most the control group's limit */
    int32_t n_nodes;                       /* NUMA nodes */
    int32_t n_l3;                          /* third-level caches of those CPUs; 1: not known */
    bool dotprod;                          /* arm64: sdot, of ARMv8.2 */
    bool avx_vnni;                         /* x86-64: vpdpbusd of 256 bits, without AVX-512 */
    bool uneven;                           /* some cores are faster than others by design */
    int64_t l1d_bytes, l2_bytes, l3_bytes; /* size of one cache of each level */
    int64_t memory_bytes;
    vt_isa best;  /* the highest level that the machine has */
    vt_isa level; /* the level in use: `best`, or VITRINE_ISA if that is set */
} vt_cpu;

const vt_cpu *vt_cpu_get(void);
const char *vt_isa_name(vt_isa isa);
/* Returns true if a machine whose best level is `best` can run code for level `want`. */
bool vt_isa_has(vt_isa best, vt_isa want);
/* Returns how many CPUs' time the control group mounted at `root` may use, rounded up; 0: no
 * limit. */
int32_t vt_cpu_quota(const char *root);
/* Reads a level's name. Fails if it is unknown or this machine does not have that level. */
vt_status vt_isa_parse(const char *name, vt_isa *out, vt_err *err);
/* Checks VITRINE_ISA. main calls it once, so that a wrong value is an error and not ignored. */
vt_status vt_cpu_init(vt_err *err);

#endif
