/* SHA-256 and SHA-1 of files that were fetched. Hubs give the SHA-256 of large files, and the SHA-1
 * by which git names small ones (blobs). The SHA-1 guards against damage, not against an
 * adversary. */
#ifndef VT_FETCH_HASH_H
#define VT_FETCH_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum hash_kind { HASH_SHA256 = 0, HASH_SHA1 } hash_kind;

enum { HASH_HEX = 65 }; /* bytes of the longest digest in hexadecimal, with its NUL */

typedef struct hash_state {
    hash_kind kind;
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
} hash_state;

void hash_init(hash_state *s, hash_kind kind);
void hash_add(hash_state *s, const void *bytes, size_t n);
/* The digest in lower-case hexadecimal. */
void hash_finish(hash_state *s, char hex[HASH_HEX]);

/* The digest of a whole file; git_blob puts "blob <size>\0" in front, as git does. */
vt_status hash_file(const char *path, hash_kind kind, bool git_blob, char hex[HASH_HEX],
                    vt_err *err);
/* The same of an open regular file, from its beginning; its offset stays. `name` is for
 * messages. */
vt_status hash_fd(int fd, const char *name, hash_kind kind, bool git_blob, char hex[HASH_HEX],
                  vt_err *err);

#endif
