/* API keys. A presented key is compared with every key in the same time, whatever it is. */
#ifndef VT_SERVER_KEYS_H
#define VT_SERVER_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

enum { SERVER_MAX_KEYS = 1024, SERVER_MAX_KEY = 255 };

typedef struct server_keys {
    char (*key)[SERVER_MAX_KEY + 1]; /* [n], padded with zeros */
    int32_t n;                       /* 0: no key is asked for */
} server_keys;

/* From a file with one key a line (blank lines and lines that begin with '#' are skipped) and from
 * the environment variable `variable` (keys separated by commas). Either may be NULL or not there.
 * A file that holds no key, or that others may read, is refused. */
vt_status server_keys_load(server_keys *k, const char *path, const char *variable, vt_err *err);
void server_keys_release(server_keys *k);
/* Whether `presented` (NULL: none) is one of them. */
bool server_keys_match(const server_keys *k, const char *presented);

#endif
