/* Settings of a config.json, read for a test. */
#ifndef VT_TEST_READ_CONFIG_H
#define VT_TEST_READ_CONFIG_H

#include "model/hf_config.h"
#include "model/model.h"

#define SHAPE                                                                       \
    "\"hidden_size\": 128, \"intermediate_size\": 12, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 2, \"head_dim\": 64, \"max_position_embeddings\": 32, "

/* Makes a model with the settings of `config`; ends the test if that fails. */
vt_model *read_config(const char *config);
/* The same, and what it says beside the model. */
vt_model *read_config_with(const char *config, hf_extra *extra);
/* Ends the test unless `config` is refused with a message that holds these words. */
void expect_refused(const char *config, const char *words);

#endif
