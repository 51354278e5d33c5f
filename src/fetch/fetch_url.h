/* Parts of a URL that are needed before it is fetched: its scheme and host, and how to show it
 * without the password it may hold. */
#ifndef VT_FETCH_URL_H
#define VT_FETCH_URL_H

#include <stdbool.h>

#include "base/err.h"

/* Hugging Face's hub: messages name it as an example, and the token of HF_TOKEN is for it alone. */
#define FETCH_HF_HOST "huggingface.co"
#define FETCH_HF "https://" FETCH_HF_HOST

enum { FETCH_URL_SHOWN = 512 };

typedef struct fetch_url {
    bool https;
    bool default_port; /* none is given, or the scheme's own */
    char host[256];    /* in lower case, without user, password and port */
} fetch_url;

/* http:// or https://, a host, and no character that programs read differently (spaces, control
 * characters, backslashes): code that decides by the host must see the host that curl connects
 * to. */
vt_status fetch_url_parse(const char *url, fetch_url *out, vt_err *err);

/* `url` for messages: user and password become "***", and what does not fit is cut. Returns out. */
const char *fetch_url_show(const char *url, char out[FETCH_URL_SHOWN]);

#endif
