/* Reads config.json of a Hugging Face folder into an architecture description (vt_arch). */
#ifndef VT_MODEL_HF_CONFIG_H
#define VT_MODEL_HF_CONFIG_H

#include <jansson.h>

#include "base/err.h"
#include "model/int4/int4.h"
#include "model/model.h"

/* Facts of the file that vt_arch has no place for. */
typedef struct hf_extra {
    bool
        nested; /* the text model is part of one that sees images: its weights stand among others */
    bool fp8;   /* matrices are in FP8, and tensors with their scales stand beside them */
    int4_form int4;                  /* matrices are packed integers of 4 bits */
    bool qkv_bias, o_bias, mlp_bias; /* the model has these biases: they must be in the weights */
    bool qk_norm;                    /* likewise norms of q and k */
} hf_extra;

/* Fills m->arch except vocab, which the embedding decides. Arrays come from m->arena. A family,
 * activation, rope type or quantisation that is not run here is refused by name. `path` is the
 * file's, for messages. */
vt_status hf_config_read(const char *path, const json_t *root, vt_model *m, hf_extra *extra,
                         vt_err *err);

#endif
