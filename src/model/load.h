/* Loading: a path or a name to a vt_model. Weights stay mapped; nothing is converted here. */
#ifndef VT_MODEL_LOAD_H
#define VT_MODEL_LOAD_H

#include "files/gguf.h"
#include "model/model.h"

/* A .gguf file, a Hugging Face folder, a name in the cache, or dummy:NAME. */
vt_status vt_model_load(const char *name_or_path, vt_model **out, vt_err *err);
/* The same without weights: metadata, tokenizer and template (a vocabulary-only GGUF works). */
vt_status vt_model_load_words(const char *name_or_path, vt_model **out, vt_err *err);
/* A model, or an EAGLE-3 head (model/eagle.h), which the function above refuses. */
vt_status vt_model_load_drafter(const char *name_or_path, vt_model **out, vt_err *err);
/* The MTP head of a model that was loaded, as a model of its own (model/mtp.h). VT_ERR_MODEL says
 * which tensor its files do not have, VT_ERR_UNSUPPORTED which kind of head is not known here. */
vt_status vt_model_load_mtp(const vt_model *of, vt_model **out, vt_err *err);
/* Each of the forms; `weights` false as in vt_model_load_words. */
vt_status vt_model_load_gguf(const char *path, bool weights, vt_model **out, vt_err *err);
vt_status vt_model_load_folder(const char *path, bool weights, vt_model **out, vt_err *err);
vt_status vt_model_load_dummy(const char *name, vt_model **out, vt_err *err);

vt_status vt_model_load_gguf_mtp(const char *path, vt_model **out, vt_err *err);
vt_status vt_model_load_folder_mtp(const char *path, vt_model **out, vt_err *err);
vt_status vt_model_load_dummy_mtp(const char *name, vt_model **out, vt_err *err);

/* A model of an open file. The file belongs to the model then, and is closed if this fails. */
vt_status vt_model_from_gguf(gguf_file *file, bool weights, vt_model **out, vt_err *err);

/* Makes sure that the weights are in host memory until vt_model_host_weights_done. A dummy model
 * generates its weights here, and a folder makes blocks of packed 4-bit matrices (int4/int4.h), in
 * parallel, unless they are there; for other models it does nothing. To be called before weights
 * are read on the CPU. */
vt_status vt_model_host_weights(const vt_model *m, vt_err *err);
/* Ends what a vt_model_host_weights that succeeded began: weights that a folder made are given up
 * when nobody reads them any more. keep: they will be read where they lie until the model ends. */
void vt_model_host_weights_done(const vt_model *m, bool keep);

/* A tied head that a file has all the same, with other numbers than the embedding's, is no tied
 * one, whatever its configuration says: so transformers has it. `head` and `embed` may be NULL. */
void model_untie(vt_model *m, const vt_tensor *head, const vt_tensor *embed);

/* Where models are cached: $VITRINE_CACHE/models or ~/.cache/vitrine/models. */
vt_status vt_cache_dir(char *out, size_t size, vt_err *err);
/* Resolves a name to a path in the cache ("smollm2-135m" is known by its file name). */
vt_status vt_model_find(const char *name, char *path, size_t size, vt_err *err);
/* The name that is known for a file of the cache, or NULL. */
const char *vt_model_known_name(const char *file);
/* Returns true if it is a bare name: no slash, no .gguf, no dot in front. Those are looked up in
 * the cache first. */
bool vt_model_is_name(const char *name);
/* The path that a name or path stands for, by the rules at the top of load.c; *in_cache: it was
 * found in the cache. Not for dummy:NAME. */
vt_status vt_model_resolve(const char *name, char *path, size_t size, bool *in_cache, vt_err *err);

#endif
