/* A lab runs on these: a CPU team or a GPU, and the machine's roofs. */
#ifndef VT_LAB_KIT_DEVICES_H
#define VT_LAB_KIT_DEVICES_H

#include "base/team.h"
#include "lab/kit/lab.h"
#include "ops/calls/on_cuda.h"

typedef struct lab_devices {
    vt_team *team; /* CPU; made when first needed */
    on_cuda_gpu gpu;
    bool gpu_open;
    vt_model *model; /* opened by the first lab_engine_open */
} lab_devices;

/* Measures or reads the roofs, and finds out whether the GPU is emulated. */
vt_status lab_devices_open(lab *l, vt_err *err);
void lab_devices_close(lab *l);
vt_status lab_team(lab *l, vt_team **out, vt_err *err);
vt_status lab_gpu(lab *l, on_cuda_gpu **out, vt_err *err);
/* {"memory_bytes_per_s": {"value", "tag"}, ...} */
json_t *lab_roofs_json(const vt_roofs *r);

#endif
