/* The common part of GLM-4.5's experts and DeepSeek's, which they follow. */
#ifndef VT_MODEL_FAMILIES_GLM4_MOE_H
#define VT_MODEL_FAMILIES_GLM4_MOE_H

#include "model/family.h"

/* Numbers of a config.json that does not hold them: those of the family's configuration class in
 * transformers. */
typedef struct glm4_moe_defaults {
    int32_t dense, shared, groups, groups_used;
    double scale;
} glm4_moe_defaults;

/* Sets what files say of the layers with experts: how many layers before them are dense, how many
 * shared experts there are, and the factor of the routed ones' weights. */
vt_status glm4_moe_set_up(vt_model *m, int32_t dense, int32_t shared, double scale, vt_err *err);
/* Read the keys of experts, after which the caller decides how they are chosen. The number of
 * layers of a GGUF file counts those of multi-token prediction, which are taken off. */
vt_status glm4_moe_read_gguf(gguf_reader *r);
vt_status glm4_moe_read_config(hf_reader *c, glm4_moe_defaults d);
/* Returns how many of the first layers are dense by the list "mlp_layer_types"; 1 without one. -1:
 * other layers are dense too, and *c->err says so. */
int32_t glm4_moe_dense_layers(hf_reader *c);
/* Returns true for the tensors of layers behind the last one: those of multi-token prediction. */
bool glm4_moe_skips(const vt_model *m, const char *tensor);

#endif
