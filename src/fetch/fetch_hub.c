/* The listing of a Hugging Face style hub, and which of its files a model needs.
 *
 *   GET hub/api/models/ORG/NAME/revision/main?blobs=true
 *       {"siblings": [{"rfilename", "size", "blobId": git SHA-1, "lfs": {"sha256", "size"}}, ...]}
 *   GET hub/ORG/NAME/resolve/main/FILE
 *
 * A folder of safetensors is fetched with its JSON and tokenizer files; a repository of GGUF files
 * needs a choice where there are several. The parts of a split GGUF count as one file.
 *
 * The listing is written by a stranger. Names become paths here, so every one is checked; sizes and
 * hashes must have their form; the text is at most 4 MiB, which the flat parser holds in about
 * 50 MB at worst. (A listing of 2,000 files, the most that are taken, has less
 * than 1 MB.)
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fetch/fetch.h"
#include "files/gguf_split.h"
#include "files/json_flat.h"

enum { MAX_FILES = 2000, MAX_LISTING = 4 << 20, MAX_NAME = 255, MAX_PATH_NAME = 1000 };

/* A listing and what is asked of it. */
typedef struct listing {
    const char *hub, *repo, *dir;
    int n_repo;       /* bytes of `repo` that are ORG/NAME */
    const char *file; /* the one file that is wanted, or NULL */
    size_t n_prefix;  /* bytes of `file` that all parts of its split share; 0: it is no part */
    bool safetensors; /* the repository is a folder of safetensors */
    const vt_flat_doc *doc;
    const vt_flat_node *siblings;
    fetch_list *out;
    vt_err *err;
} listing;

/* ---- names ---- */

/* A relative path of plain components: none is empty, hidden, "." or ".."; printable ASCII that
 * means the same in a path and in a URL. */
static bool safe_name(const char *name, size_t len)
{
    size_t begin = 0;
    if (len == 0 || len > MAX_PATH_NAME)
        return false;
    for (size_t i = 0; i <= len; i++) {
        unsigned char c = i < len ? (unsigned char)name[i] : '/';
        if (c != '/') {
            if (c <= 0x20 || c >= 0x7f || strchr("\\%?#", c))
                return false;
            continue;
        }
        size_t n = i - begin;
        if (n == 0 || n > MAX_NAME || name[begin] == '.')
            return false; /* what begins with a dot: "..", ".", hidden files */
        begin = i + 1;
    }
    return true;
}

/* Takes repo apart: ORG/NAME[/FILE], each checked. */
static vt_status split_repo(listing *l)
{
    const char *repo = l->repo;
    const char *slash = strchr(repo, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    gguf_split_name split;
    if (!slash || !safe_name(repo, strlen(repo)) ||
        strspn(repo, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") !=
            strlen(repo))
        return vt_fail(l->err, VT_ERR_USAGE, "'%.200s' is no ORG/NAME or ORG/NAME/FILE", repo);
    l->n_repo = (int)(second ? second - repo : (ptrdiff_t)strlen(repo));
    l->file = second ? second + 1 : NULL;
    if (l->file && gguf_split_parse(l->file, strlen(l->file), &split))
        l->n_prefix = split.prefix;
    return VT_OK;
}

static bool equals(const vt_flat_node *name, const char *s) { return vt_flat_is(name, s); }

static bool ends_with(const vt_flat_node *name, const char *end)
{
    size_t k = strlen(end);
    return name->len >= k && memcmp(name->s + name->len - k, end, k) == 0;
}

static bool in_subfolder(const vt_flat_node *name)
{
    return memchr(name->s, '/', name->len) != NULL;
}

/* Returns true if we read a file of that name in a Hugging Face folder. */
static bool belongs_to_folder(const vt_flat_node *name)
{
    static const char *const names[] = {"tokenizer.model", "tiktoken.model", "merges.txt",
                                        "vocab.txt", "chat_template.jinja"};
    if (in_subfolder(name))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (equals(name, names[i]))
            return true;
    return ends_with(name, ".safetensors") || ends_with(name, ".json");
}

/* Returns true if `name` is a part of the split GGUF whose first bytes are prefix[0..n). */
static bool is_part_of(const vt_flat_node *name, const char *prefix, size_t n)
{
    gguf_split_name split;
    return gguf_split_parse(name->s, name->len, &split) && split.prefix == n &&
           memcmp(name->s, prefix, n) == 0;
}

static bool is_wanted(const listing *l, const vt_flat_node *name)
{
    if (l->file && l->n_prefix)
        return is_part_of(name, l->file, l->n_prefix);
    if (l->file)
        return equals(name, l->file);
    return l->safetensors ? belongs_to_folder(name)
                          : ends_with(name, ".gguf") && !in_subfolder(name);
}

/* ---- what kind of repository it is ---- */

/* Looks at all names. Without a file that is named there must be safetensors, or one GGUF model. */
static vt_status survey(listing *l)
{
    vt_buf names;
    int n_gguf = 0, index = 0;
    vt_buf_init(&names, 1 << 20);
    for (const vt_flat_node *s = vt_flat_first(l->siblings); s;
         s = vt_flat_after(l->doc, l->siblings, s), index++) {
        const vt_flat_node *name = vt_flat_get(l->doc, s, "rfilename");
        gguf_split_name split;
        if (!name || name->type != VT_FLAT_STRING) {
            vt_buf_release(&names);
            return vt_fail(l->err, VT_ERR_FORMAT, "file %d of the hub's listing has no rfilename",
                           index);
        }
        if (in_subfolder(name))
            continue;
        l->safetensors |= ends_with(name, ".safetensors");
        bool later = gguf_split_parse(name->s, name->len, &split) && split.part > 1;
        if (ends_with(name, ".gguf") && !later)
            vt_buf_printf(&names, "%s%.*s", n_gguf++ ? ", " : "",
                          (int)(name->len < 100 ? name->len : 100), name->s);
    }
    vt_status status = VT_OK;
    if (!l->file && !l->safetensors && n_gguf == 0)
        status = vt_fail(l->err, VT_ERR_MODEL,
                         "the hub lists neither safetensors nor a GGUF file in %.*s", l->n_repo,
                         l->repo);
    else if (!l->file && !l->safetensors && n_gguf > 1)
        status = vt_fail(l->err, VT_ERR_USAGE,
                         "there are %d GGUF files; name one as ORG/NAME/FILE: %.300s", n_gguf,
                         names.data ? names.data : "");
    vt_buf_release(&names);
    return status;
}

/* ---- one file ---- */

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

static bool is_hex(const vt_flat_node *v, size_t digits)
{
    if (!v || v->type != VT_FLAT_STRING || v->len != digits)
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!v->s[i] || !strchr("0123456789abcdefABCDEF", v->s[i]))
            return false;
    return true;
}

/* The size as the listing gives it (the LFS entry's first), -1 where it gives none. */
static vt_status read_size(const listing *l, const vt_flat_node *s, const char *name, int64_t *size)
{
    const vt_flat_node *lfs = vt_flat_get(l->doc, s, "lfs");
    const vt_flat_node *v = vt_flat_get(l->doc, lfs, "size");
    v = v ? v : vt_flat_get(l->doc, s, "size");
    *size = -1;
    if (!v)
        return VT_OK;
    if (v->type != VT_FLAT_NUMBER || !(v->number >= 0 && v->number <= (double)FETCH_MAX_BYTES))
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "the hub's listing gives %.100s a size that is no number from 0 to %lld",
                       name, (long long)FETCH_MAX_BYTES);
    *size = (int64_t)v->number;
    return VT_OK;
}

/* The SHA-256 of a large file, or the git SHA-1 of a small one. A large file's must have its form;
 * a blobId that is no SHA-1 is some hub's own name for the file. */
static vt_status read_hash(const listing *l, const vt_flat_node *s, const char *name, fetch_file *f)
{
    const vt_flat_node *lfs = vt_flat_get(l->doc, s, "lfs");
    const vt_flat_node *sha256 = vt_flat_get(l->doc, lfs, "sha256");
    const vt_flat_node *blob = vt_flat_get(l->doc, s, "blobId");
    if (sha256 && !is_hex(sha256, 64))
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "the hub's listing gives %.100s a sha256 that is not 64 hexadecimal digits",
                       name);
    if (sha256)
        memcpy(f->sha256, sha256->s, 64);
    else if (is_hex(blob, 40) && !lfs)
        memcpy(f->git_sha1, blob->s, 40);
    return VT_OK;
}

static vt_status add_file(listing *l, const vt_flat_node *s)
{
    fetch_file *f = &l->out->file[l->out->n];
    const vt_flat_node *listed = vt_flat_get(l->doc, s, "rfilename");
    if (!safe_name(listed->s, listed->len))
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "the hub lists a file named '%.*s', which is refused: it could leave its "
                       "folder",
                       (int)(listed->len < 100 ? listed->len : 100), listed->s);
    char *name = strndup(listed->s, listed->len);
    *f = (fetch_file){.size = -1};
    l->out->name[l->out->n++] = name;
    if (!name)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the list of files");
    TRY(read_size(l, s, name, &f->size));
    TRY(read_hash(l, s, name, f));
    f->url = text("%s/%.*s/resolve/main/%s", l->hub, l->n_repo, l->repo, name);
    f->path = text("%s/%.*s/%s", l->dir, l->n_repo, l->repo, name);
    return f->url && f->path
               ? VT_OK
               : vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the list of files");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Two transfers into one file would be refused as two programs at work on it. */
static vt_status refuse_equal_names(const listing *l)
{
    int32_t n = l->out->n;
    char **sorted = vt_calloc((size_t)n + 1, sizeof *sorted);
    vt_status status = VT_OK;
    if (!sorted)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the list of files");
    memcpy(sorted, l->out->name, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int32_t i = 1; i < n && status == VT_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = vt_fail(l->err, VT_ERR_FORMAT, "the hub lists file %.100s twice", sorted[i]);
    free(sorted);
    return status;
}

/* ---- the listing ---- */

/* Fills l->out with the wanted files. */
static vt_status choose(listing *l)
{
    if (!l->siblings || l->siblings->type != VT_FLAT_ARRAY || l->siblings->len > MAX_FILES)
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "the hub's listing of %.*s: expected a list of at most %d siblings",
                       l->n_repo, l->repo, MAX_FILES);
    size_t n = l->siblings->len;
    TRY(survey(l));
    l->out->file = vt_calloc(n + 1, sizeof *l->out->file);
    l->out->name = vt_calloc(n + 1, sizeof *l->out->name);
    l->out->folder = text("%s/%.*s", l->dir, l->n_repo, l->repo);
    if (!l->out->file || !l->out->name || !l->out->folder)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the list of files");
    for (const vt_flat_node *s = vt_flat_first(l->siblings); s;
         s = vt_flat_after(l->doc, l->siblings, s))
        if (is_wanted(l, vt_flat_get(l->doc, s, "rfilename")))
            TRY(add_file(l, s));
    if (l->out->n == 0)
        return vt_fail(l->err, VT_ERR_IO, "%.*s has no file '%.200s'", l->n_repo, l->repo,
                       l->file ? l->file : "");
    return refuse_equal_names(l);
}

vt_status fetch_hub_parse(const char *hub, const char *repo, const char *dir, const char *json,
                          size_t len, fetch_list *out, vt_err *err)
{
    vt_flat_doc doc;
    fetch_list files = {0};
    listing l = {.hub = hub, .repo = repo, .dir = dir, .doc = &doc, .out = &files, .err = err};
    TRY(split_repo(&l));
    if (len > MAX_LISTING)
        return vt_fail(err, VT_ERR_FORMAT, "the hub's listing has %zu bytes (at most %d allowed)",
                       len, MAX_LISTING);
    TRY(vt_flat_parse("the hub's listing", json, len, &doc, err));
    l.siblings = vt_flat_get(&doc, doc.node, "siblings");
    vt_status status = choose(&l);
    vt_flat_release(&doc);
    if (status != VT_OK) {
        fetch_list_release(&files);
        return status;
    }
    *out = files;
    return VT_OK;
}

vt_status fetch_hub_list(const char *hub, const char *repo, const char *dir, const fetch_options *o,
                         fetch_list *out, vt_err *err)
{
    vt_buf body = {0};
    listing l = {.repo = repo, .err = err};
    TRY(split_repo(&l));
    size_t n_hub = strlen(hub);
    while (n_hub > 0 && hub[n_hub - 1] == '/')
        n_hub--;
    char *base = strndup(hub, n_hub);
    char *url = base ? text("%s/api/models/%.*s/revision/main?blobs=true", base, l.n_repo, repo)
                     : NULL;
    vt_status status = url ? fetch_text(url, "such model", MAX_LISTING, o, &body, err)
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of files");
    if (status == VT_OK)
        status = fetch_hub_parse(base, repo, dir, body.data ? body.data : "", body.len, out, err);
    vt_buf_release(&body);
    free(url);
    free(base);
    return status;
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
