/* The cos/sin table of a model's rotary position embedding: a weight that is computed. */
#ifndef VT_MODEL_ROPE_TABLE_H
#define VT_MODEL_ROPE_TABLE_H

#include "model/model.h"

/* Returns the parameters for a table of `context` positions. One of longrope's two lists of factors
 * holds for all of it: the long one if the context is longer than the original one. (transformers
 * changes lists when a text grows beyond that, and then disagrees with keys that it cached.) */
vt_rope_params vt_rope_of_context(const vt_rope_params *p, int64_t context);

/* Fills cos_sin for `positions` positions from `first` on. Angles and scaling are computed in
 * double. llama3, linear, yarn and longrope (with their attention factors) follow Hugging Face's
 * modeling_rope_utils; of longrope the short factors are used (vt_rope_of_context). */
void vt_rope_table(const vt_rope_params *p, int64_t first, int64_t positions,
                   float *cos_sin /* [positions, dims] */);

#endif
