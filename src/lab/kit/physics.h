/* Published numbers that physics does not allow, each recomputed in one line. */
#ifndef VT_LAB_KIT_PHYSICS_H
#define VT_LAB_KIT_PHYSICS_H

#include "lab/kit/lab.h"

/* The two sides of the division. */
typedef enum lab_claim_kind {
    LAB_CLAIM_MEMORY,  /* a bytes in b seconds, as a share of the data sheet's memory bandwidth */
    LAB_CLAIM_MATRIX,  /* a FLOPs in b seconds, as a share of the data sheet's bf16 peak */
    LAB_CLAIM_LINK,    /* a bytes in b seconds, as a share of c bytes a second */
    LAB_CLAIM_TIME,    /* a bytes at b bytes a second: a time */
    LAB_CLAIM_NEEDS,   /* a bytes at the data sheet's memory bandwidth: the least time */
    LAB_CLAIM_SHARE,   /* a of b, as a share */
    LAB_CLAIM_SECONDS, /* a times b seconds */
    LAB_CLAIM_LEVEL,   /* the level of kernels that this GPU runs, against a */
    LAB_CLAIM_BLOCKS   /* blocks of a bytes of shared memory in an SM, b warps each, of c warps */
} lab_claim_kind;

typedef struct lab_claim {
    const char *claim;    /* as it was published */
    const char *hardware; /* a name of device/hardware.h */
    lab_claim_kind kind;
    double a, b, c;
    const char *from;    /* how a is computed from the stated shape */
    const char *verdict; /* what follows */
    const char *lab;     /* which lab measures it: "mini-sglang 02" */
    bool beside;         /* the lab's first prediction is of the same call */
} lab_claim;

extern const lab_claim lab_claims[]; /* ends with claim NULL */

/* "1.05 MB / 10.0 us = 105 GB/s = 5.1 % of 2.04 TB/s" */
void lab_claim_recompute(const lab_claim *c, vt_buf *out);
/* labs/physics.md; the same bytes on every machine. */
void lab_physics_page(vt_buf *out);

#endif
