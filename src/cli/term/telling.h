/* --story and /story: a request's story to the terminal or to a file. */
#ifndef VT_CLI_TERM_TELLING_H
#define VT_CLI_TERM_TELLING_H

#include "cli/cli.h"

/* Checks the value of --story, before anything is loaded. */
vt_status cli_prepare_story(const cli *c, vt_err *err);
/* The story of a finished request as --story asks for it. */
vt_status cli_tell_story(const cli *c, const cli_session *s, vt_request_id id, vt_err *err);

/* The story of everything that the session's engine recorded, as --story asks for it; nothing where
 * it was not given. */
vt_status cli_tell_recording(const cli *c, const cli_session *s, vt_err *err);

#endif
