/* From what a person typed to token ids. */
#ifndef VT_CLI_PROMPT_H
#define VT_CLI_PROMPT_H

#include "cli/cli.h"

typedef struct cli_ids {
    int32_t *id; /* [n]; vt_free */
    int32_t n;
} cli_ids;

/* The first argument, or all of stdin where there is none or it is "-". */
vt_status cli_read_prompt(const cli *c, vt_buf *text, vt_err *err);
vt_status cli_encode(const vt_model *m, const char *text, size_t len, unsigned flags, cli_ids *ids,
                     vt_err *err);
/* A list of {"role", "content"} through the model's chat template, the assistant's turn open.
 * Option literal-content says whether special tokens in the contents stay text. */
vt_status cli_encode_messages(const cli *c, const vt_model *m, json_t *messages, cli_ids *ids,
                              vt_err *err);
/* Appends a message; fails where the text is not UTF-8, which JSON cannot hold. */
vt_status cli_add_message(json_t *messages, const char *role, const char *text, size_t len,
                          vt_err *err);

#endif
