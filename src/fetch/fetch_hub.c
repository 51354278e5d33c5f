/* The listing of a Hugging Face style hub, and which of its files a model needs.
 *
 *   GET hub/api/models/ORG/NAME/revision/main?blobs=true
 *       {"siblings": [{"rfilename", "size", "blobId": git SHA-1, "lfs": {"sha256", "size"}}, ...]}
 *   GET hub/ORG/NAME/resolve/main/FILE
 *
 * A folder of safetensors is fetched with its JSON and tokenizer files; a repository of GGUF files
 * needs a choice where there are several. Names come from the server and become paths here: every
 * one is checked.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fetch/fetch.h"

enum { MAX_FILES = 2000, MAX_LISTING = 32 << 20, MAX_NAME = 255 };

/* A relative path of plain components: none empty or hidden, "." or ".."; printable ASCII that
 * means the same in a path and in a URL. */
static bool safe_name(const char *name)
{
    size_t len = strlen(name), begin = 0;
    if (len == 0 || len > 1000)
        return false;
    for (size_t i = 0; i <= len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c != '/' && c != '\0') {
            if (c <= 0x20 || c >= 0x7f || strchr("\\%?#", c))
                return false;
            continue;
        }
        size_t n = i - begin;
        if (n == 0 || n > MAX_NAME || name[begin] == '.')
            return false; /* also what begins with a dot: .. and hidden files */
        begin = i + 1;
    }
    return true;
}

/* ORG/NAME[/FILE]: each checked; *file is NULL or points into `repo`. */
static vt_status split_repo(const char *repo, int *n_repo, const char **file, vt_err *err)
{
    const char *slash = strchr(repo, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    if (!slash || !safe_name(repo) ||
        strspn(repo, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") !=
            strlen(repo))
        return vt_fail(err, VT_ERR_USAGE, "'%.200s' is no ORG/NAME or ORG/NAME/FILE", repo);
    *n_repo = (int)(second ? second - repo : (ptrdiff_t)strlen(repo));
    *file = second ? second + 1 : NULL;
    return VT_OK;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Files of a Hugging Face folder that we read. */
static bool belongs_to_folder(const char *name)
{
    static const char *const names[] = {"tokenizer.model", "merges.txt", "vocab.txt",
                                        "chat_template.jinja"};
    if (strchr(name, '/'))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return ends_with(name, ".safetensors") || ends_with(name, ".json");
}

typedef struct wanted {
    const char *file; /* that one alone, or NULL */
    bool safetensors; /* a folder of them */
    int n_gguf;
    vt_buf gguf_names;
} wanted;

static const char *name_of(const json_t *sibling)
{
    return json_string_value(json_object_get(sibling, "rfilename"));
}

static bool is_wanted(const wanted *w, const char *name)
{
    if (w->file)
        return strcmp(name, w->file) == 0;
    return w->safetensors ? belongs_to_folder(name)
                          : ends_with(name, ".gguf") && !strchr(name, '/');
}

/* What kind of repository it is, and that all its names are harmless. */
static vt_status survey(const char *url, const json_t *siblings, wanted *w, vt_err *err)
{
    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *name = name_of(json_array_get(siblings, i));
        if (!name)
            return vt_fail(err, VT_ERR_FORMAT, "%s: file %zu of the listing has no rfilename", url,
                           i);
        w->safetensors |= ends_with(name, ".safetensors") && !strchr(name, '/');
        if (ends_with(name, ".gguf") && !strchr(name, '/'))
            vt_buf_printf(&w->gguf_names, "%s%.100s", w->n_gguf++ ? ", " : "", name);
    }
    if (w->file || w->safetensors || w->n_gguf == 1)
        return VT_OK;
    if (w->n_gguf == 0)
        return vt_fail(err, VT_ERR_MODEL, "%s: neither safetensors nor a GGUF file is listed", url);
    return vt_fail(err, VT_ERR_USAGE, "there are %d GGUF files; name one as ORG/NAME/FILE: %.300s",
                   w->n_gguf, w->gguf_names.data ? w->gguf_names.data : "");
}

/* A printf into memory of its own; NULL: out of memory. */
static char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *fmt, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&out, fmt, args);
    va_end(args);
    return n < 0 ? NULL : out;
}

static vt_status add_file(const char *hub, const char *repo, int n_repo, const char *dir,
                          const json_t *s, fetch_list *l, vt_err *err)
{
    fetch_file *f = &l->file[l->n];
    const char *name = name_of(s);
    const json_t *lfs = json_object_get(s, "lfs"), *size = json_object_get(s, "size");
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const char *blob = json_string_value(json_object_get(s, "blobId"));
    if (!safe_name(name))
        return vt_fail(
            err, VT_ERR_FORMAT,
            "the hub lists a file named '%.100s', which is refused: it could leave its folder",
            name);
    if (json_is_integer(json_object_get(lfs, "size")))
        size = json_object_get(lfs, "size");
    *f = (fetch_file){.size = json_is_integer(size) ? json_integer_value(size) : -1};
    if (sha256)
        snprintf(f->sha256, sizeof f->sha256, "%.64s", sha256);
    else if (blob && !lfs)
        snprintf(f->git_sha1, sizeof f->git_sha1, "%.40s", blob);
    l->name[l->n] = strdup(name);
    f->url = text("%s/%.*s/resolve/main/%s", hub, n_repo, repo, name);
    f->path = text("%s/%.*s/%s", dir, n_repo, repo, name);
    l->n++;
    return l->name[l->n - 1] && f->url && f->path
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of files");
}

static vt_status choose(const char *url, const char *hub, const char *repo, int n_repo,
                        const char *dir, wanted *w, const json_t *siblings, fetch_list *l,
                        vt_err *err)
{
    size_t n = json_array_size(siblings);
    if (!json_is_array(siblings) || n > MAX_FILES)
        return vt_fail(err, VT_ERR_FORMAT, "%s: expected a list of at most %d siblings", url,
                       MAX_FILES);
    TRY(survey(url, siblings, w, err));
    l->file = vt_calloc(n + 1, sizeof *l->file);
    l->name = vt_calloc(n + 1, sizeof *l->name);
    l->folder = text("%s/%.*s", dir, n_repo, repo);
    if (!l->file || !l->name || !l->folder)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of files");
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(siblings, i);
        if (is_wanted(w, name_of(s)))
            TRY(add_file(hub, repo, n_repo, dir, s, l, err));
    }
    if (l->n == 0)
        return vt_fail(err, VT_ERR_IO, "%.*s has no file '%.200s'", n_repo, repo, w->file);
    return VT_OK;
}

vt_status fetch_hub_list(const char *hub, const char *repo, const char *dir, const fetch_options *o,
                         fetch_list *out, vt_err *err)
{
    int n_repo = 0;
    vt_buf body = {0};
    json_error_t why;
    wanted w = {0};
    fetch_list l = {0};
    TRY(split_repo(repo, &n_repo, &w.file, err));
    size_t n_hub = strlen(hub);
    while (n_hub > 0 && hub[n_hub - 1] == '/')
        n_hub--;
    char *base = strndup(hub, n_hub);
    char *url = base ? text("%s/api/models/%.*s/revision/main?blobs=true", base, n_repo, repo)
                     : NULL;
    vt_status status = url ? fetch_text(url, "such model", MAX_LISTING, o, &body, err)
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of files");
    json_t *root = status == VT_OK ? json_loadb(body.data ? body.data : "", body.len, 0, &why)
                                   : NULL;
    if (status == VT_OK && !root)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: the listing is no JSON: %.100s", url, why.text);
    if (status == VT_OK)
        status = choose(url, base, repo, n_repo, dir, &w, json_object_get(root, "siblings"), &l,
                        err);
    json_decref(root);
    vt_buf_release(&body);
    vt_buf_release(&w.gguf_names);
    free(url);
    free(base);
    if (status != VT_OK) {
        fetch_list_release(&l);
        return status;
    }
    *out = l;
    return VT_OK;
}

void fetch_list_release(fetch_list *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        free(l->file[i].url);
        free(l->file[i].path);
        free(l->name[i]);
    }
    free(l->file);
    free(l->name);
    free(l->folder);
    *l = (fetch_list){0};
}
