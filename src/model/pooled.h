/* Reads what a model's files say about making vectors: sentence-transformers folders and GGUF keys.
 *
 *   modules.json                       the pipeline: Transformer, Pooling, then perhaps Dense
 *                                      (model/dense.h) and Normalize
 *   1_Pooling/config.json              which states are pooled
 *   config_sentence_transformers.json  texts to put in front of a text, by name
 *   <architecture>.pooling_type        1 mean, 2 cls, 3 last */
#ifndef VT_MODEL_POOLED_H
#define VT_MODEL_POOLED_H

#include <jansson.h>

#include "base/err.h"
#include "files/gguf.h"
#include "model/model.h"

/* Fills m->pooled from the files of a folder; changes nothing where there is no modules.json. A
 * module or a mode that is not computed here is refused by name. */
vt_status vt_pooled_read_folder(vt_model *m, const char *folder, vt_err *err);
/* The folders of the pipeline's modules, which are names without a slash. */
enum { VT_POOLED_FOLDER = 64 };
typedef struct vt_pooled_folders {
    char pooling[VT_POOLED_FOLDER], dense[VT_DENSE_MOST][VT_POOLED_FOLDER];
    int32_t n_dense;
} vt_pooled_folders;
/* Each of the files as text; for vt_pooled_read_folder and the fuzz test. */
vt_status vt_pooled_modules(vt_model *m, const char *path, const json_t *root,
                            vt_pooled_folders *out, vt_err *err);
vt_status vt_pooled_config(vt_model *m, const char *path, const json_t *root, vt_err *err);
vt_status vt_pooled_prompts(vt_model *m, const char *path, const json_t *root, vt_err *err);

vt_status vt_pooled_read_gguf(vt_model *m, const gguf_file *f, const char *architecture,
                              vt_err *err);

/* Returns VT_POOLING_... of its name; NONE for any other text. */
vt_pooling vt_pooling_of(const char *name);

#endif
