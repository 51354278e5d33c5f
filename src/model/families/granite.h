/* The four factors of all Granite models: of the embedding, of attention's scores, of what a block
 * adds to the residual stream, and of the logits. */
#ifndef VT_MODEL_FAMILIES_GRANITE_H
#define VT_MODEL_FAMILIES_GRANITE_H

#include "model/family.h"

vt_status granite_from_gguf(gguf_reader *r);
vt_status granite_from_config(hf_reader *c);

#endif
