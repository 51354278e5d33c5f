/* The common part of families with DeepSeek's latent attention. */
#ifndef VT_MODEL_FAMILIES_DEEPSEEK_H
#define VT_MODEL_FAMILIES_DEEPSEEK_H

#include "model/family.h"

enum { DEEPSEEK_ROLES = 4 };
/* The shared expert's weights and the bias for the choice of experts; without the last: one fewer.
 */
extern const vt_family_role deepseek_roles[DEEPSEEK_ROLES];

/* Reads the keys of latent attention, after which all layers have it, and YaRN's part of the
 * factor of scores. */
vt_status deepseek_read_latents(hf_reader *c);
/* The same of a GGUF file, with its experts. */
vt_status deepseek_read_gguf(gguf_reader *r);

/* The members of a family whose experts are DeepSeek's. */
#define DEEPSEEK_FAMILY                                                                     \
    .experts = true, .latent = true, .rope_interleaved = true, .hf_rope_interleaved = true, \
    .kv_heads_optional = true, .mtp = VT_MTP_NEXT_LAYER, .skips = glm4_moe_skips,           \
    .skipped = "multi-token prediction"

#endif
