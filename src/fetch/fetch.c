/* Fetching files: a handful of transfers on one curl multi handle, driven by the calling thread.
 *
 *   waiting --start--> running --ends--> complete? --hash--> renamed: done
 *      ^                  |                  |  no                |  wrong
 *      +---- later, from where it stopped ---+                    |
 *      +---- from the beginning (at most twice) ------------------+
 *
 * Nothing a server says is believed: the size and hash come from the listing and are checked on the
 * bytes in the .part file; a range that was not asked for, more bytes than announced and a 416 all
 * begin the file again. A try that brings the file beyond the most bytes it ever had is progress;
 * tries without progress are counted, wait longer each time, and end after MAX_TRIES. (Counting
 * every byte as progress would never end with a server that ignores ranges and always sends the
 * first half.) The .part file is locked, so two programs cannot write it at once, it is not opened
 * through a link, and it is hashed through the descriptor that was written.
 */
#include "fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/clock.h"
#include "base/mem.h"
#include "fetch/fetch_curl.h"
#include "fetch/fetch_url.h"

enum { MAX_PATH = 4096, MAX_TRIES = 6, MAX_RESTARTS = 2, POLL_MS = 100 };

typedef enum state { WAITING = 0, RUNNING, DONE } state;

typedef struct transfer {
    const curl_api *api;
    const fetch_file *file;
    state state;
    curl_easy *easy;
    int fd;
    char part[MAX_PATH];
    char shown[FETCH_URL_SHOWN]; /* the URL, for messages */
    int64_t max;                 /* no more bytes than these are taken */
    int64_t have;                /* bytes in the .part file */
    int64_t most;                /* the most bytes it had at the end of any try */
    int64_t announced;   /* the size by Content-Length, used to show progress only; -1: unknown */
    int64_t range_begin; /* as Content-Range says; -1: it does not */
    int64_t not_before_ns;
    int tries, restarts;
    bool body, discard, too_long, wrong_range;
    int write_errno;
    char etag[HASH_HEX]; /* a hash the headers gave: 64 or 40 digits */
    char error_text[CURL_ERROR_SIZE];
} transfer;

typedef struct fetcher {
    curl_api api;
    curl_multi *multi;
    struct curl_list *headers;
    const fetch_options *o;
    transfer *t;
    int32_t n, n_done, n_running;
    vt_err *err;
} fetcher;

/* ---- files ---- */

static vt_status open_part(transfer *t, vt_err *err)
{
    struct stat st;
    if (strlen(t->file->path) + 8 > sizeof t->part) /* room for ".part" */
        return vt_fail(err, VT_ERR_IO, "the path %.200s... is longer than %d bytes", t->file->path,
                       MAX_PATH - 8);
    TRY(vt_make_folders_above(t->file->path, err));
    snprintf(t->part, sizeof t->part, "%s.part", t->file->path);
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (t->fd < 0 || fstat(t->fd, &st) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", t->part,
                       errno == ELOOP ? "it is a link" : strerror(errno));
    if (!S_ISREG(st.st_mode))
        return vt_fail(err, VT_ERR_IO, "%s: not a regular file", t->part);
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0)
        return vt_fail(err, VT_ERR_BUSY, "%s: another program is fetching it", t->part);
    t->have = t->most = st.st_size;
    return VT_OK;
}

/* Drops what was fetched, to fetch it from the first byte. False if that was tried too often. */
static bool begin_again(transfer *t)
{
    t->have = t->most = 0;
    t->tries = 0;
    return ftruncate(t->fd, 0) == 0 && ++t->restarts <= MAX_RESTARTS;
}

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdefABCDEF") == n;
}

/* Checks whether the bytes of open file `fd`, called `name` in messages, are the expected ones.
 * Without any hash they are taken as they are. */
static vt_status check_hash(const transfer *t, int fd, const char *name, bool *right, vt_err *err)
{
    const fetch_file *f = t->file;
    const char *sha256 = f->sha256, *git = f->git_sha1;
    char hex[HASH_HEX];
    *right = true;
    if (!*sha256 && !*git) {
        sha256 = is_hex(t->etag, 64) ? t->etag : "";
        git = is_hex(t->etag, 40) ? t->etag : "";
    }
    if (*sha256) {
        TRY(hash_fd(fd, name, HASH_SHA256, false, hex, err));
        *right = strcasecmp(hex, sha256) == 0;
    } else if (*git) {
        TRY(hash_fd(fd, name, HASH_SHA1, true, hex, err));
        *right = strcasecmp(hex, git) == 0;
    }
    if (!*right)
        vt_fail(err, VT_ERR_FORMAT, "%s: its %s is %s, expected %s", f->path,
                *sha256 ? "SHA-256" : "git SHA-1", hex, *sha256 ? sha256 : git);
    return VT_OK;
}

/* Finds out whether the file exists already, with the size and hash it should have. */
static vt_status already_there(const transfer *t, bool *there, vt_err *err)
{
    const fetch_file *f = t->file;
    struct stat st;
    vt_status status = VT_OK;
    *there = false;
    bool known = f->size >= 0 || *f->sha256 || *f->git_sha1;
    int fd = known ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return VT_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (f->size < 0 || st.st_size == f->size))
        status = check_hash(t, fd, f->path, there, err);
    close(fd);
    return status;
}

/* Checks that the disk has room for the bytes that are still to come, where sizes are known. */
static vt_status check_space(const fetcher *f)
{
    struct statvfs fs;
    int64_t need = 0;
    for (int32_t i = 0; i < f->n; i++)
        if (f->t[i].state != DONE && f->t[i].file->size > f->t[i].have)
            if (__builtin_add_overflow(need, f->t[i].file->size - f->t[i].have, &need))
                need = INT64_MAX;
    for (int32_t i = 0; i < f->n && need > 0; i++) {
        if (f->t[i].state == DONE || fstatvfs(f->t[i].fd, &fs) != 0)
            continue;
        if ((uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)need)
            return vt_fail(
                f->err, VT_ERR_IO, "%s: %" PRId64 " MB are needed and %" PRIu64 " MB are free",
                f->t[i].part, need / 1000000, (uint64_t)fs.f_bavail * fs.f_frsize / 1000000);
        break;
    }
    return VT_OK;
}

/* ---- what curl calls ---- */

static size_t on_body(const char *bytes, size_t size, size_t count, void *user)
{
    transfer *t = user;
    size_t n = size * count, done = 0;
    if (!t->body) {
        long code = 0;
        t->api->easy_getinfo(t->easy, CURL_INFO_RESPONSE_CODE, &code);
        t->body = true;
        t->discard = code != 200 && code != 206; /* an error's page */
        t->wrong_range = code == 206 && t->range_begin != t->have;
        if (code == 200 && t->have > 0) { /* the server does not resume: from the beginning then */
            t->have = 0;
            if (ftruncate(t->fd, 0) != 0)
                t->write_errno = errno;
        }
    }
    if (t->discard)
        return n;
    t->too_long = (int64_t)n > t->max - t->have;
    if (t->wrong_range || t->write_errno || t->too_long)
        return 0; /* ends the transfer */
    while (done < n) {
        ssize_t k = pwrite(t->fd, bytes + done, n - done, t->have);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            t->write_errno = k < 0 ? errno : ENOSPC;
            return 0;
        }
        done += (size_t)k;
        t->have += k;
    }
    return n;
}

/* The value of header `name` in a line, or NULL. */
static const char *header_value(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static size_t on_header(const char *bytes, size_t size, size_t count, void *user)
{
    transfer *t = user;
    char line[512];
    size_t n = size * count, len = n < sizeof line ? n : sizeof line - 1;
    memcpy(line, bytes, len);
    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) /* the next answer, after a redirect: with its own range */
        t->range_begin = -1;
    const char *range = header_value(line, "content-range"),
               *linked = header_value(line, "x-linked-etag");
    const char *etag = linked ? linked : header_value(line, "etag");
    const char *length = header_value(line, "content-length");
    if (range && strncasecmp(range, "bytes ", 6) == 0)
        t->range_begin = strtoll(range + 6, NULL, 10);
    if (length) {
        long long told = strtoll(length, NULL, 10);
        t->announced = told >= 0 && told <= FETCH_MAX_BYTES ? t->have + told : -1;
    }
    if (etag) {
        char hex[HASH_HEX];
        etag += strncmp(etag, "W/", 2) == 0 ? 2 : 0;
        etag += *etag == '"';
        snprintf(hex, sizeof hex, "%.*s",
                 (int)(strcspn(etag, "\"") < 64 ? strcspn(etag, "\"") : 64), etag);
        if ((is_hex(hex, 64) || is_hex(hex, 40)) && (linked || !*t->etag))
            memcpy(t->etag, hex, sizeof t->etag);
    }
    return n;
}

/* ---- one try ---- */

static vt_status start(fetcher *f, transfer *t)
{
    char range[40];
    t->easy = f->api.easy_init();
    if (!t->easy)
        return vt_fail(f->err, VT_ERR_MEMORY, "libcurl: out of memory");
    curl_prepare(&f->api, t->easy, t->file->url, f->headers, t->error_text);
    f->api.easy_setopt(t->easy, CURL_WRITEFUNCTION, on_body);
    f->api.easy_setopt(t->easy, CURL_WRITEDATA, t);
    f->api.easy_setopt(t->easy, CURL_HEADERFUNCTION, on_header);
    f->api.easy_setopt(t->easy, CURL_HEADERDATA, t);
    f->api.easy_setopt(t->easy, CURL_PRIVATE, t);
    if (t->have > 0) {
        snprintf(range, sizeof range, "%" PRId64 "-", t->have);
        f->api.easy_setopt(t->easy, CURL_RANGE, range);
    }
    t->body = t->discard = t->too_long = t->wrong_range = false;
    t->range_begin = -1;
    t->error_text[0] = '\0';
    if (f->api.multi_add_handle(f->multi, t->easy) != 0)
        return vt_fail(f->err, VT_ERR_MEMORY, "libcurl: the transfer could not be started");
    t->state = RUNNING;
    f->n_running++;
    return VT_OK;
}

static void stop(fetcher *f, transfer *t)
{
    if (!t->easy)
        return;
    f->api.multi_remove_handle(f->multi, t->easy);
    f->api.easy_cleanup(t->easy);
    t->easy = NULL;
    t->state = WAITING;
    f->n_running--;
}

/* Tries again a little later. `why` is the message's reason when there were too many tries. */
static vt_status retry(fetcher *f, transfer *t, const char *why)
{
    int64_t patience = f->o->patience_ms > 0 ? f->o->patience_ms : 5000;
    if (t->have > t->most) {
        t->most = t->have;
        t->tries = 0;
    }
    if (++t->tries > MAX_TRIES)
        return vt_fail(f->err, VT_ERR_IO,
                       "%s: %s, %d times in a row, after %" PRId64 " bytes; what is there is kept: "
                       "run again to go on",
                       t->shown, why, MAX_TRIES, t->most);
    int64_t wait = (int64_t)100 << t->tries;
    t->not_before_ns = vt_now_ns() + (wait < patience ? wait : patience) * 1000000;
    return VT_OK;
}

static vt_status restart(fetcher *f, transfer *t, const char *why)
{
    if (begin_again(t))
        return VT_OK;
    return vt_fail(f->err, VT_ERR_FORMAT, "%s: %s, and again after a new beginning", t->shown, why);
}

static vt_status finish(fetcher *f, transfer *t)
{
    bool right;
    vt_err why = {0};
    TRY(check_hash(t, t->fd, t->part, &right, &why) == VT_OK
            ? VT_OK
            : vt_fail(f->err, why.status, "%s", why.message));
    if (!right) {
        if (begin_again(t))
            return VT_OK;
        unlink(t->part);
        return vt_fail(f->err, why.status, "%s, and again after a new beginning", why.message);
    }
    if (fsync(t->fd) != 0 || rename(t->part, t->file->path) != 0)
        return vt_fail(f->err, VT_ERR_IO, "%s: %s", t->file->path, strerror(errno));
    close(t->fd);
    t->fd = -1;
    t->state = DONE;
    f->n_done++;
    return VT_OK;
}

static vt_status refused(fetcher *f, const transfer *t, long code)
{
    if (code == 401 || code == 403)
        return vt_fail(f->err, VT_ERR_IO, "%s: the server refuses it (HTTP %ld)%s", t->shown, code,
                       f->o->token ? " with the token that was given" : ": a token may be needed");
    return vt_fail(f->err, VT_ERR_IO, "%s: the server answers HTTP %ld", t->shown, code);
}

/* A try has ended with curl's `result`. */
static vt_status ended(fetcher *f, transfer *t, int result)
{
    long code = 0;
    char why[CURL_ERROR_SIZE + 80];
    f->api.easy_getinfo(t->easy, CURL_INFO_RESPONSE_CODE, &code);
    stop(f, t);
    if (t->write_errno)
        return vt_fail(f->err, VT_ERR_IO, "%s: %s", t->part, strerror(t->write_errno));
    if (t->wrong_range)
        return restart(f, t, "the server sent another range than was asked for");
    if (t->too_long && t->file->size < 0)
        return vt_fail(f->err, VT_ERR_FORMAT,
                       "%s: its size is not known, and it is longer than %" PRId64
                       " bytes, the most that is taken then",
                       t->shown, t->max);
    if (t->too_long)
        return restart(f, t, "the server sent more bytes than were announced");
    if (code == 416 && t->have > 0 && t->file->size < 0 && *t->file->sha256)
        return finish(f, t); /* there is no more: the hash tells whether it is whole */
    if (code == 416 && t->have > 0 && t->have != t->file->size)
        return restart(f, t, "the server does not go on where it stopped (HTTP 416)");
    if (code >= 400 && code != 408 && code != 416 && code != 429 && code < 500)
        return refused(f, t, code);
    bool whole = t->file->size >= 0 ? t->have == t->file->size : result == 0 && code < 300;
    if (whole)
        return finish(f, t);
    if (code >= 400)
        snprintf(why, sizeof why, "the server answers HTTP %ld", code);
    else if (result == 0)
        snprintf(why, sizeof why, "the answer ends too early, of %" PRId64 " bytes", t->file->size);
    else
        snprintf(why, sizeof why, "%s",
                 *t->error_text ? t->error_text : f->api.easy_strerror(result));
    return retry(f, t, why);
}

/* ---- all of them ---- */

static vt_status collect(fetcher *f)
{
    curl_message *m;
    int left;
    while ((m = f->api.multi_info_read(f->multi, &left))) {
        transfer *t = NULL;
        if (m->kind != CURL_MESSAGE_DONE)
            continue;
        int result = m->result; /* the message goes with its handle */
        f->api.easy_getinfo(m->easy, CURL_INFO_PRIVATE, &t);
        TRY(ended(f, t, result));
    }
    return VT_OK;
}

static void report(const fetcher *f)
{
    int64_t done = 0, total = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const transfer *t = &f->t[i];
        done += t->state == DONE && t->file->size >= 0 ? t->file->size : t->have;
        int64_t size = t->file->size >= 0 ? t->file->size : t->announced;
        if (size < 0 || total < 0 || __builtin_add_overflow(total, size, &total))
            total = -1;
    }
    if (f->o->progress)
        f->o->progress(f->o->user, done, total);
}

static vt_status run(fetcher *f)
{
    int32_t connections = f->o->connections > 0 ? f->o->connections : 4;
    while (f->n_done < f->n) {
        int running, ready;
        if (f->o->cancelled && f->o->cancelled(f->o->user))
            return vt_fail(f->err, VT_ERR_CANCELLED,
                           "interrupted; what is there is kept: run again to go on");
        for (int32_t i = 0; i < f->n && f->n_running < connections; i++)
            if (f->t[i].state == WAITING && vt_now_ns() >= f->t[i].not_before_ns)
                TRY(start(f, &f->t[i]));
        f->api.multi_perform(f->multi, &running);
        TRY(collect(f));
        report(f);
        f->api.multi_wait(f->multi, NULL, 0, f->n_running > 0 ? POLL_MS : 0, &ready);
        if (f->n_running == 0 && f->n_done < f->n)
            usleep(10000); /* all wait for their next try */
    }
    return VT_OK;
}

/* Opens the .part files of what is not there yet. */
static vt_status prepare(fetcher *f, const fetch_file *file)
{
    for (int32_t i = 0; i < f->n; i++) {
        transfer *t = &f->t[i];
        bool there;
        vt_err ignored;
        t->api = &f->api;
        t->file = &file[i];
        t->fd = -1;
        t->announced = -1;
        t->max = f->o->max_unknown > 0 ? f->o->max_unknown : FETCH_MAX_BYTES;
        fetch_url_show(t->file->url, t->shown);
        if (t->file->size > FETCH_MAX_BYTES)
            return vt_fail(f->err, VT_ERR_FORMAT,
                           "%s: %" PRId64 " bytes are announced, at most %" PRId64 " are believed",
                           t->shown, t->file->size, FETCH_MAX_BYTES);
        if (t->file->size >= 0)
            t->max = t->file->size;
        TRY(already_there(t, &there, &ignored));
        if (there) {
            t->state = DONE;
            f->n_done++;
            continue;
        }
        TRY(open_part(t, f->err));
        if (t->file->size >= 0 && t->have == t->file->size)
            TRY(finish(f, t)); /* only its name was missing */
    }
    return check_space(f);
}

vt_status fetch_files(const fetch_file *file, int32_t n, const fetch_options *o, vt_err *err)
{
    fetcher f = {.o = o, .n = n, .err = err};
    TRY(curl_open(&f.api, err));
    f.t = vt_calloc((size_t)n + 1, sizeof *f.t);
    f.multi = f.api.multi_init();
    f.headers = curl_headers(&f.api, o->token);
    vt_status status = f.t && f.multi
                           ? VT_OK
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d transfers", n);
    for (int32_t i = 0; f.t && i < n; i++)
        f.t[i].fd = -1;
    if (status == VT_OK)
        status = prepare(&f, file);
    if (status == VT_OK)
        status = run(&f);
    for (int32_t i = 0; f.t && i < n; i++) {
        stop(&f, &f.t[i]);
        if (f.t[i].fd >= 0)
            close(f.t[i].fd);
    }
    if (f.multi)
        f.api.multi_cleanup(f.multi);
    f.api.slist_free_all(f.headers);
    free(f.t);
    return status;
}

/* ---- a small answer ---- */

static size_t on_text(const char *bytes, size_t size, size_t count, void *user)
{
    return vt_buf_add(user, bytes, size * count) ? size * count : 0;
}

static vt_status fetch_once(const curl_api *api, const char *url, const char *what,
                            struct curl_list *headers, vt_buf *out, bool *again, vt_err *err)
{
    char text[CURL_ERROR_SIZE] = "", shown[FETCH_URL_SHOWN];
    long code = 0;
    fetch_url_show(url, shown);
    curl_easy *easy = api->easy_init();
    if (!easy)
        return vt_fail(err, VT_ERR_MEMORY, "libcurl: out of memory");
    curl_prepare(api, easy, url, headers, text);
    api->easy_setopt(easy, CURL_WRITEFUNCTION, on_text);
    api->easy_setopt(easy, CURL_WRITEDATA, out);
    int result = api->easy_perform(easy);
    api->easy_getinfo(easy, CURL_INFO_RESPONSE_CODE, &code);
    api->easy_cleanup(easy);
    *again = !out->failed && (result != 0 || code >= 500 || code == 429);
    if (out->failed)
        return vt_fail(err, VT_ERR_MEMORY, "%s: the answer is longer than %zu bytes", shown,
                       out->max);
    if (result != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", shown, *text ? text : api->easy_strerror(result));
    if (code == 404)
        return vt_fail(err, VT_ERR_IO, "%s: there is no %s (HTTP 404)", shown, what);
    if (code >= 400)
        return vt_fail(err, VT_ERR_IO, "%s: the server refuses %s (HTTP %ld)%s", shown, what, code,
                       headers || code >= 404 ? "" : ": a token may be needed");
    return VT_OK;
}

vt_status fetch_text(const char *url, const char *what, size_t max_bytes, const fetch_options *o,
                     vt_buf *out, vt_err *err)
{
    curl_api api;
    vt_status status = VT_OK;
    bool again = true;
    TRY(curl_open(&api, err));
    struct curl_list *headers = curl_headers(&api, o->token);
    for (int i = 0; i < 4 && again; i++) {
        if (i > 0)
            usleep((useconds_t)(100000 << i));
        vt_buf_init(out, max_bytes);
        status = fetch_once(&api, url, what, headers, out, &again, err);
        if (status != VT_OK)
            vt_buf_release(out);
        again &= !(o->cancelled && o->cancelled(o->user));
    }
    api.slist_free_all(headers);
    return status;
}
