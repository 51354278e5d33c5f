/* A configuration: the metrics that one of CUPTI's profilers shall count, and the object of the
 * host's side that made it and later evaluates what was counted. */
#ifndef VT_DEVICE_CUPTI_CONFIG_H
#define VT_DEVICE_CUPTI_CONFIG_H

#include "device/cupti/cupti.h"

typedef struct vt_cupti_config {
    cupti_host host;
    uint8_t *image;
    size_t bytes;
} vt_cupti_config;

/* Makes the configuration of n metrics for profiler `type` (CUPTI_TYPE_...), in place of the one
 * that was in *out. `availability`: what this process may read; NULL: all that the chip has.
 * *passes gets how often the work would have to run. After an error *out can only be released, or
 * made again. */
vt_status vt_cupti_configure(const vt_cupti *c, int type, const char *chip,
                             const uint8_t *availability, const char **metric, int32_t n,
                             vt_cupti_config *out, size_t *passes, vt_err *err);
void vt_cupti_config_release(const vt_cupti *c, vt_cupti_config *k);

#endif
