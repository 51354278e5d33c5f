/* The functions of libcurl that are used here. They are found by dlopen and declared here, so that
 * the build needs neither curl's headers nor its library. */
#ifndef VT_FETCH_CURL_H
#define VT_FETCH_CURL_H

#include <stddef.h>

#include "base/err.h"

typedef struct curl_easy curl_easy;   /* opaque: CURL */
typedef struct curl_multi curl_multi; /* opaque: CURLM */
struct curl_list;                     /* opaque: struct curl_slist */

/* Numbers from curl's ABI, which are fixed for libcurl.so.4. */
enum {
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_RANGE = 10007,
    CURL_ERRORBUFFER = 10010,
    CURL_USERAGENT = 10018,
    CURL_HTTPHEADER = 10023,
    CURL_HEADERDATA = 10029,
    CURL_PRIVATE = 10103,
    CURL_WRITEFUNCTION = 20011,
    CURL_HEADERFUNCTION = 20079,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_FOLLOWLOCATION = 52,
    CURL_MAXREDIRS = 68,
    CURL_CONNECTTIMEOUT = 78,
    CURL_NOSIGNAL = 99,
    CURL_PROTOCOLS = 181,
    CURL_REDIR_PROTOCOLS = 182,
    CURL_INFO_PRIVATE = 0x100015,
    CURL_INFO_RESPONSE_CODE = 0x200002,
    CURL_HTTP = 1,
    CURL_HTTPS = 2, /* bits of the two PROTOCOLS */
    CURL_ERROR_SIZE = 256,
    CURL_MESSAGE_DONE = 1
};

typedef struct curl_message {
    int kind;
    curl_easy *easy;
    union {
        void *whatever;
        int result; /* 0: done without fault */
    };
} curl_message;

typedef struct curl_api {
    void *library;
    int (*global_init)(long flags);
    curl_easy *(*easy_init)(void);
    void (*easy_cleanup)(curl_easy *);
    int (*easy_setopt)(curl_easy *, int option, ...);
    int (*easy_getinfo)(curl_easy *, int info, ...);
    int (*easy_perform)(curl_easy *);
    const char *(*easy_strerror)(int);
    struct curl_list *(*slist_append)(struct curl_list *, const char *);
    void (*slist_free_all)(struct curl_list *);
    curl_multi *(*multi_init)(void);
    int (*multi_cleanup)(curl_multi *);
    int (*multi_add_handle)(curl_multi *, curl_easy *);
    int (*multi_remove_handle)(curl_multi *, curl_easy *);
    int (*multi_perform)(curl_multi *, int *running);
    int (*multi_wait)(curl_multi *, void *fds, unsigned n_fds, int timeout_ms, int *n_ready);
    curl_message *(*multi_info_read)(curl_multi *, int *left);
} curl_api;

/* VT_ERR_UNSUPPORTED where there is no libcurl. */
vt_status curl_open(curl_api *api, vt_err *err);
/* The settings every request has: redirects (https never to http), time limits, no other protocol.
 */
void curl_prepare(const curl_api *api, curl_easy *easy, const char *url, struct curl_list *headers,
                  char *error_text);
/* A header list with "Authorization: Bearer <token>", or NULL without a token. curl does not send
 * it to another host after a redirect. */
struct curl_list *curl_headers(const curl_api *api, const char *token);

#endif
