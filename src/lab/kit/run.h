/* Running one lab, for the verb. */
#ifndef VT_LAB_KIT_RUN_H
#define VT_LAB_KIT_RUN_H

#include "lab/kit/lab.h"

typedef struct lab_ask {
    const vt_options *options;
    const char *model, *folder; /* folder: of the lab's results */
    int32_t ordinal, threads;
    bool quick;
    bool talk; /* lines on stderr, and questions on a terminal */
} lab_ask;

/* Runs the lab. *result (json_decref it) is complete where VT_OK is returned; *failed says that a
 * check failed. An error is a lab that could not run. */
vt_status lab_run(const lab_ask *ask, const lab_def *def, json_t **result, bool *failed,
                  vt_err *err);

#endif
