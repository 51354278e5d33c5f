/* The tokenizer and the chat template of a Hugging Face folder: tokenizer.json,
 * tokenizer_config.json (which may be long, so it is read by the flat parser) and
 * chat_template.jinja. */
#ifndef VT_MODEL_FOLDER_TEXT_H
#define VT_MODEL_FOLDER_TEXT_H

#include "model/model.h"

/* Sets m->tokenizer and m->chat_template to what the folder has; NULL stays where it has none. */
vt_status model_load_text(vt_model *m, const char *folder, vt_err *err);

#endif
