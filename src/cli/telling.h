/* --story and /story: a request's story to the terminal or to a file. */
#ifndef VT_CLI_TELLING_H
#define VT_CLI_TELLING_H

#include "cli/cli.h"

/* Checks the value of --story (before anything is loaded) and switches recording on where it is
 * given. */
vt_status cli_prepare_story(const cli *c, vt_err *err);
/* The story of a finished request as --story asks for it. With `again`, the parameters it was
 * submitted with, the request is run a second time, on an engine that does not record, to measure
 * what recording costs: the session has another engine afterwards. */
vt_status cli_tell_story(const cli *c, cli_session *s, const cli_reply *reply,
                         const vt_request_params *again, vt_err *err);

/* The story of everything that the session's engine recorded, as --story asks for it; nothing where
 * it was not given. */
vt_status cli_tell_recording(const cli *c, const cli_session *s, vt_err *err);

#endif
