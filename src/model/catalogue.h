/* The models in the cache: found by walking its folder, and removed from it.
 *
 *   models/NAME.gguf                      a file
 *   models/ORG/NAME/FILE-00001-of-...     a file in parts: one model, counted together
 *   models/ORG/NAME/config.json           a Hugging Face folder */
#ifndef VT_MODEL_CATALOGUE_H
#define VT_MODEL_CATALOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct vt_cached_model {
    char *name; /* what -m takes: "smollm2-135m", "my-model", "org/name", "org/name/file" */
    char *path; /* of the file (a split model's first part) or the folder */
    int64_t bytes;
    char quant[32]; /* the type that most bytes of the matrices have; "" where it cannot be read */
    bool folder;
} vt_cached_model;

typedef struct vt_catalogue {
    vt_cached_model *model; /* [n], sorted by name */
    int32_t n, cap;
    char *folder; /* of the cache's models */
} vt_catalogue;

/* An absent cache holds no models. Links are not followed, folders below the fourth level and
 * hidden names are passed over. */
vt_status vt_catalogue_read(vt_catalogue *out, vt_err *err);
void vt_catalogue_release(vt_catalogue *c);

/* The model that `name` means in the cache, or NULL: its name, its file's name with or without
 * .gguf. */
const vt_cached_model *vt_catalogue_find(const vt_catalogue *c, const char *name);

/* Removes a model's files (all parts, or the folder), and folders above it that are empty then. */
vt_status vt_catalogue_remove(const vt_catalogue *c, const vt_cached_model *m, vt_err *err);

#endif
