/* API keys. A presented key is compared with every key in the same time, whatever it is. */
#ifndef VT_SERVER_API_KEYS_H
#define VT_SERVER_API_KEYS_H

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
 * A file that others may read is refused, and so are a file and a variable that hold no key: the
 * server would be open to everybody. */
vt_status server_keys_load(server_keys *k, const char *path, const char *variable, vt_err *err);
void server_keys_release(server_keys *k);

/* Who may use a server, and who may end it and see everything. */
typedef struct server_key_sets {
    server_keys users, admins;
} server_key_sets;

/* The keys of the options api-key-file and admin-key-file, and of VITRINE_API_KEY and
 * VITRINE_ADMIN_KEY. A file is read once, so that it may be a pipe. */
vt_status server_key_sets_load(server_key_sets *k, const vt_options *o, vt_err *err);
void server_key_sets_release(server_key_sets *k);

/* The index of `presented` (NULL: none), or -1 if it is not one of them. */
int32_t server_keys_find(const server_keys *k, const char *presented);

#endif
