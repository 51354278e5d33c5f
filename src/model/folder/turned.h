/* Experts that a folder holds transposed, in one of the forms of vt_transposed: they are copied
 * into matrices [out, in], which the engine takes. */
#ifndef VT_MODEL_FOLDER_TURNED_H
#define VT_MODEL_FOLDER_TURNED_H

#include "base/err.h"
#include "model/model.h"

/* A model that is being loaded, and how its tensors are reached. */
typedef struct folder_turner {
    vt_model *m;
    void *of; /* the first argument of take and add */
    /* Returns the tensor that a text model with a head calls `name`, which then counts as taken;
     * NULL: the folder has none. */
    const vt_tensor *(*take)(void *of, const char *name);
    vt_status (*add)(void *of, const char *name, vt_tensor t);
    vt_err *err;
} folder_turner;

/* Makes the tensors of a layer's experts. *turned: it did; if not, the folder does not hold them
 * transposed. */
vt_status folder_turn_experts(const folder_turner *u, int32_t layer, bool *turned);

#endif
