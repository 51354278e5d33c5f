/* A roofline: what a machine allows at each arithmetic intensity, and where measured calls lie.
 * (Williams, Waterman and Patterson, 2009, doi:10.1145/1498765.1498785.)
 *
 *     FLOP/s
 *       236 G │             ┌──────────────  fp32
 *             │          ╱     B
 *             │       ╱  A
 *             └────────────────────────────
 *               0.25    1     4     16   FLOP/byte */
#ifndef VT_LAB_KIT_ROOFLINE_H
#define VT_LAB_KIT_ROOFLINE_H

#include "lab/kit/lab.h"

enum { ROOFLINE_POINTS = 16 };

typedef struct roofline_point {
    const char *name;    /* "512 tokens, 32 heads" */
    double bytes, flops; /* of a call; from the card */
    double seconds;      /* measured; NAN: not known, and the point is left out */
} roofline_point;

/* The roof of one unit: bytes and operations a second, and their names in the legend. */
typedef struct roofline_roof {
    double bytes_per_s, flops_per_s;
    const char *memory, *unit; /* "memory read", "fp32" */
} roofline_roof;

/* The roof that attention and row kernels have on this device: memory, and fp32 on a CPU or bf16 on
 * a GPU where `matrix`. */
roofline_roof lab_roof(const lab *l, bool matrix);
/* The intensity above which the unit limits and not memory; NAN: a roof is not known. */
double roofline_ridge(const roofline_roof *r);
/* Draws the points (the first ROOFLINE_POINTS of them) under their roof as the item `key`, at most
 * 100 columns wide. Where the roof is not known, the item is missing. */
void lab_roofline(lab *l, const char *key, const char *title, const roofline_roof *roof,
                  const roofline_point *point, int32_t n);

#endif
