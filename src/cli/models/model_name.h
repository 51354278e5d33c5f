/* Telling which file a model's name stands for. */
#ifndef VT_CLI_MODELS_MODEL_NAME_H
#define VT_CLI_MODELS_MODEL_NAME_H

#include "cli/cli.h"

/* Says on a terminal which file of the cache a bare name (option model) means. Where the current
 * folder has something of that name too, it is said everywhere, because a person could expect that
 * one. Nothing with --quiet. */
void cli_tell_model(const cli *c);

#endif
