/* Models of which only the words are wanted: vocabulary and chat template. */
#ifndef VT_CLI_MODELS_METADATA_H
#define VT_CLI_MODELS_METADATA_H

#include "cli/cli.h"
#include "text/tokenizer/tokenizer.h"

/* Option model without its weights: a GGUF (a vocabulary alone will do), a folder, a name,
 * dummy:NAME. */
vt_status cli_open_metadata(const cli *c, vt_model **out, vt_err *err);

#endif
