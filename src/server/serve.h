/* vitrine serve: an engine behind HTTP. */
#ifndef VT_SERVER_SERVE_H
#define VT_SERVER_SERVE_H

#include "server/api/keys.h"
#include "vitrine.h"

typedef struct vt_serve_words {
    void (*say)(void *user, const char *line); /* lines for the person who started the server */
    void *user;
    double load_s; /* what loading the model took, for the first line; NAN: not known */
} vt_serve_words;

/* Serves the engine, whose loop must not run yet, until SIGTERM or SIGINT: then answers under way
 * are finished (option drain-timeout); a second signal ends at once. Addresses and limits are the
 * options of `vitrine serve`; the keys are the caller's, who releases them afterwards. Returns
 * VT_OK after a drain, VT_ERR_CANCELLED where requests were cut off, VT_ERR_DEVICE where the engine
 * ended. */
vt_status vt_serve(const vt_model *m, vt_engine *e, const vt_options *o,
                   const server_key_sets *keys, const vt_serve_words *words, vt_err *err);

#endif
