/* The numbers of Mamba-2's state spaces as both kinds of files give them. */
#ifndef VT_MODEL_STATE_SPACE_H
#define VT_MODEL_STATE_SPACE_H

#include "model/family.h"

/* Reads the keys "ssm." of a GGUF file into vt_arch.mamba and conv_taps. */
vt_status gguf_read_state_space(gguf_reader *r);
/* Sets the size of heads that have `inner` numbers together; `key` is where that was read. */
vt_status model_set_inner(vt_model *m, const char *key, int64_t inner, vt_err *err);
/* Refuses config.json's "time_step_limit" if it limits a token's step. */
vt_status hf_refuse_step_limit(hf_reader *c);
/* Refuses flags other than those of a convolution with a bias between projections without one. */
vt_status hf_refuse_state_space_biases(hf_reader *c, const char *conv, const char *projection);

#endif
