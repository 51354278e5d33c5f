/* The vitals: the counters that tell of any kernel how busy the GPU was, with what, and what its
 * warps waited for.
 *
 * A GPU counts only so much in one pass, and running the work again for a second pass would change
 * what is told of it. So vitals come in sets of one pass each, and whoever counts takes another set
 * for another step or call:
 *
 *   set 0      the ten that matter most, the cycles of all warps, the wait for memory
 *   set 1 ...  the time, the cycles of all warps, and what fits beside these: two stall reasons
 *
 * What a chip can count in one pass is CUPTI's to say. So each vital is asked for by itself, beside
 * those already taken; one that needs a second pass goes into the next set. One that the GPU does
 * not lend, or that needs several passes alone, is left out and says why. */
#ifndef VT_DEVICE_CUPTI_VITALS_H
#define VT_DEVICE_CUPTI_VITALS_H

#include "base/trace.h"
#include "device/cupti/config.h"

typedef struct vt_vital_row {
    const char *key;       /* "sm", in a story */
    const char *what;      /* for people */
    const char *metric[2]; /* CUPTI's names, the better one first; NULL: there is no other */
    bool percent;          /* CUPTI counts it in percent; a story holds shares */
} vt_vital_row;

extern const vt_vital_row vt_vitals[VT_VITALS];

/* Counters that are counted in one pass. */
typedef struct vt_vital_set {
    const char *metric[VT_VITALS]; /* without gaps */
    vt_vital is[VT_VITALS];        /* metric[i] is this vital */
    int32_t n;
    vt_cupti_config config;
} vt_vital_set;

enum { VT_VITAL_SETS = 16 };

typedef struct vt_vital_sets {
    vt_vital_set set[VT_VITAL_SETS];
    int32_t n;
    char why_not[VT_VITALS][160]; /* by vital; "": it is in some set */
} vt_vital_sets;

/* Chooses the vitals of a chip. `availability`: of vt_cupti_availability; NULL: all that the chip
 * has, which can be asked without a GPU. VT_ERR_UNSUPPORTED: not one can be counted. */
vt_status vt_vitals_choose(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_sets *out, vt_err *err);
void vt_vitals_release(const vt_cupti *c, vt_vital_sets *sets);

#endif
