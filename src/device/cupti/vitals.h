/* The vitals: the few counters that tell of any kernel how busy the GPU was, and with what. All of
 * them are counted in one pass, so that nothing has to run twice.
 *
 * What a chip can count in one pass is CUPTI's to say. So each vital is asked for by itself, beside
 * those already taken; one that the GPU does not lend, or that would need a second pass, is left
 * out and says why. */
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

typedef struct vt_vital_set {
    const char *metric[VT_VITALS]; /* those that are counted, without gaps */
    vt_vital is[VT_VITALS];        /* metric[i] is this vital */
    int32_t n;
    char why_not[VT_VITALS][160]; /* by vital; "": it is counted */
    vt_cupti_config config;
} vt_vital_set;

/* Chooses the vitals of a chip. `availability`: of vt_cupti_availability; NULL: all that the chip
 * has, which can be asked without a GPU. VT_ERR_UNSUPPORTED: not one can be counted. */
vt_status vt_vitals_choose(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_set *out, vt_err *err);
void vt_vitals_release(const vt_cupti *c, vt_vital_set *set);

#endif
