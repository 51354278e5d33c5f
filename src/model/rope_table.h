/* The cos/sin table of a model's rotary position embedding: a weight that is computed. */
#ifndef VT_MODEL_ROPE_TABLE_H
#define VT_MODEL_ROPE_TABLE_H

#include "model/model.h"

/* Fills cos_sin for `positions` positions from `first` on. Angles and scaling are computed in
 * double. llama3, linear and yarn (with its attention factor) follow Hugging Face's
 * modeling_rope_utils. */
void vt_rope_table(const vt_rope_params *p, int64_t first, int64_t positions,
                   float *cos_sin /* [positions, dims] */);

#endif
