/* The CPU this process runs on: topology, caches, instruction sets. Read once (the process-wide CPU
 * description is one of the two globals of the program). */
#ifndef VT_DEVICE_CPU_H
#define VT_DEVICE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

/* Levels in rising order on x86; a level includes those below it. VITRINE_ISA=name caps what is
 * used. */
typedef enum vt_isa {
    VT_ISA_PORTABLE = 0,
    VT_ISA_AVX2,   /* avx2, fma, f16c, bmi2 */
    VT_ISA_AVX512, /* avx512 f, bw, dq, vl and vnni */
    VT_ISA_AMX,    /* amx tile, int8, bf16 (permission asked of the kernel) */
    VT_ISA_NEON,   /* arm64 only */
    VT_ISA_COUNT
} vt_isa;

typedef struct vt_cpu {
    char model[96];
    int32_t n_cpus;                        /* this process may run on */
    int32_t n_cores;                       /* physical, at most what the control group allows */
    int32_t n_nodes;                       /* NUMA */
    int64_t l1d_bytes, l2_bytes, l3_bytes; /* of one instance */
    int64_t memory_bytes;
    vt_isa best;  /* what the machine has */
    vt_isa level; /* what is used: best, or VITRINE_ISA */
} vt_cpu;

const vt_cpu *vt_cpu_get(void);
const char *vt_isa_name(vt_isa isa);
/* CPUs' worth of time that the control group mounted at `root` is limited to, rounded up; 0: none.
 */
int32_t vt_cpu_quota(const char *root);
/* Fails on an unknown name, or one this machine does not have. */
vt_status vt_isa_parse(const char *name, vt_isa *out, vt_err *err);
/* Checks VITRINE_ISA; called once by main so that a wrong value is an error and not ignored. */
vt_status vt_cpu_init(vt_err *err);

#endif
