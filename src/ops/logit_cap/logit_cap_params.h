/* Parameters of logit_cap.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_LOGIT_CAP_LOGIT_CAP_PARAMS_H
#define VT_OPS_LOGIT_CAP_LOGIT_CAP_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct logit_cap_params {
    float *y;
    int64_t n; /* of a row */
    int64_t stride;
    float cap;
} logit_cap_params;

#endif
