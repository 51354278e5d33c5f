/* Lab sglang 03 compares these. */
#ifndef VT_LAB_SGLANG_BACKENDS_H
#define VT_LAB_SGLANG_BACKENDS_H

#include "lab/kit/lab.h"

enum { MAX_BACKENDS = 4, MAX_SHAPES = 4, BACKEND_NAME = 32 };

/* Splits --backends; without it: what a user of this device would compare. VT_ERR_USAGE: no row of
 * attention has one of these names on any device, or there are too many. */
vt_status sglang_read_backends(const lab *l, char names[MAX_BACKENDS][BACKEND_NAME], int *n,
                               vt_err *err);

typedef struct backend_shape {
    char text[160], name[48];
    bool decode;
} backend_shape;

/* A request through an engine of one implementation. */
typedef struct engine_run {
    bool ran;
    lab_request r;
    json_t *story;
} engine_run;

typedef struct comparison {
    char name[MAX_BACKENDS][BACKEND_NAME], missing[MAX_BACKENDS][512]; /* why it did not run */
    int32_t n_names, n_shapes, prompt, gen;
    backend_shape shape[MAX_SHAPES];
    lab_kernel kernel[MAX_SHAPES][MAX_BACKENDS];
    bool ran[MAX_SHAPES][MAX_BACKENDS];
    engine_run engine[MAX_BACKENDS];
} comparison;

/* Runs a request through an engine that chooses for itself. Makes the prediction, and tells the
 * items chosen and plan_cost. */
vt_status sglang_run_auto(lab *l, int32_t prompt, int32_t gen, vt_err *err);
/* Tells the item whole_engine: `bench latency` in processes of their own, with other levels of the
 * instruction set or of the kernels. */
vt_status sglang_whole_engines(lab *l, int32_t prompt, int32_t gen, vt_err *err);

#endif
