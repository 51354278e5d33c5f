/* vitrine run --batch IN.jsonl -o OUT.jsonl: offline batches that survive everything.
 *
 *   IN:  one request a line        OUT: one result a line, in the order they finish
 *
 * OUT is only ever appended to, a whole line with one write, and synchronised before the line
 * counts as done. So whatever happens, power failure included, OUT holds whole lines and at most
 * one torn one at its end. A later run cuts that one off, reads which custom_ids are there, and
 * does the rest: no finished line is lost, none is done twice. A lock on OUT keeps two runs from
 * doing it at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "cli/batch_line.h"

enum { AHEAD = 256 }; /* lines submitted and not finished: enough to fill any batch */

typedef struct id_set { /* open addressing; the strings belong to the set */
    char **slot;
    size_t cap, n;
} id_set;

typedef struct batch {
    const cli *c;
    cli_session s;
    const char *in_path, *out_path;
    vt_buf in;
    size_t at;    /* next byte of `in` to read */
    int32_t line; /* its number, from 1 */
    int32_t n_lines, n_found, n_done, n_failed, n_open;
    int64_t n_tokens;
    id_set there, seen; /* custom_ids in OUT when it was opened; in IN so far */
    int out;            /* file descriptor of OUT */
    vt_buf ready;       /* results to be written */
    vt_status status;   /* the first failure inside a callback */
    vt_err *err;
} batch;

/* ---- sets of ids ---- */

static size_t id_place(const id_set *s, const char *id)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    size_t i = (size_t)(h ^ h >> 32) & (s->cap - 1);
    while (s->slot[i] && strcmp(s->slot[i], id) != 0)
        i = (i + 1) & (s->cap - 1);
    return i;
}

static bool id_has(const id_set *s, const char *id)
{
    return s->cap > 0 && s->slot[id_place(s, id)];
}

static vt_status id_add(id_set *s, const char *id, vt_err *err)
{
    if (2 * s->n >= s->cap) {
        id_set grown = {.cap = s->cap ? 2 * s->cap : 1024};
        grown.slot = vt_calloc(grown.cap, sizeof *grown.slot);
        if (!grown.slot)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu ids", s->n);
        for (size_t i = 0; i < s->cap; i++)
            if (s->slot[i])
                grown.slot[id_place(&grown, s->slot[i])] = s->slot[i];
        grown.n = s->n;
        free(s->slot);
        *s = grown;
    }
    size_t i = id_place(s, id);
    if (s->slot[i])
        return VT_OK;
    s->slot[i] = strdup(id);
    s->n++;
    return s->slot[i] ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu ids", s->n);
}

static void id_release(id_set *s)
{
    for (size_t i = 0; i < s->cap; i++)
        free(s->slot[i]);
    free(s->slot);
}

/* ---- OUT ---- */

static vt_status out_error(const batch *b, vt_err *err)
{
    return vt_fail(err, VT_ERR_IO, "%s: %s", b->out_path, strerror(errno));
}

/* Reads the ids of whole lines; *whole is where the last of them ends. */
static vt_status read_results(batch *b, const vt_buf *text, size_t *whole, vt_err *err)
{
    int32_t number = 1;
    *whole = 0;
    for (;; number++) {
        const char *line = text->data + *whole;
        const char *end = text->len > *whole ? memchr(line, '\n', text->len - *whole) : NULL;
        if (!end)
            return VT_OK;
        json_t *j = json_loadb(line, (size_t)(end - line), 0, NULL);
        const char *id = json_string_value(json_object_get(j, "custom_id"));
        vt_status status = id ? id_add(&b->there, id, err)
                              : vt_fail(err, VT_ERR_FORMAT,
                                        "%s: line %d is no batch result; give another file",
                                        b->out_path, number);
        json_decref(j);
        TRY(status);
        *whole += (size_t)(end - line) + 1;
    }
}

static vt_status open_out(batch *b, vt_err *err)
{
    vt_buf text = {0};
    size_t whole;
    struct stat st;
    b->out = open(b->out_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (b->out < 0)
        return out_error(b, err);
    if (flock(b->out, LOCK_EX | LOCK_NB) != 0)
        return vt_fail(err, VT_ERR_BUSY, "%s: another run is writing it", b->out_path);
    if (fstat(b->out, &st) != 0)
        return out_error(b, err);
    if (!S_ISREG(st.st_mode))
        return vt_fail(err, VT_ERR_USAGE, "%s: expected a regular file, which can be resumed",
                       b->out_path);
    TRY(cli_read_file(b->out_path, &text, err));
    vt_status status = read_results(b, &text, &whole, err);
    if (status == VT_OK && whole < text.len) {
        cli_note(b->c, "%s: a torn last line of %zu bytes is cut off", b->out_path,
                 text.len - whole);
        if (ftruncate(b->out, (off_t)whole) != 0)
            status = out_error(b, err);
    }
    vt_buf_release(&text);
    return status;
}

/* Appends what is ready and makes it last. */
static vt_status flush_ready(batch *b, vt_err *err)
{
    size_t done = 0;
    if (b->ready.len == 0)
        return VT_OK;
    while (done < b->ready.len) {
        ssize_t n = write(b->out, b->ready.data + done, b->ready.len - done);
        if (n < 0 && errno != EINTR)
            return out_error(b, err);
        done += n > 0 ? (size_t)n : 0;
    }
    vt_buf_clear(&b->ready);
    return fdatasync(b->out) == 0 ? VT_OK : out_error(b, err);
}

/* ---- IN ---- */

/* The next line that is not blank; false at the end. */
static bool next_line(batch *b, const char **line, size_t *len)
{
    while (b->at < b->in.len) {
        const char *begin = b->in.data + b->at, *end = memchr(begin, '\n', b->in.len - b->at);
        *len = end ? (size_t)(end - begin) : b->in.len - b->at;
        *line = begin;
        b->at += *len + (end != NULL);
        b->line++;
        for (size_t i = 0; i < *len; i++)
            if (!strchr(" \t\r", begin[i]))
                return true;
    }
    return false;
}

/* All of IN is read before anything is run: a mistake in its last line shows up now, not hours
 * later. */
static vt_status check_in(batch *b, vt_err *err)
{
    const char *text;
    size_t len;
    while (next_line(b, &text, &len)) {
        batch_line l;
        vt_err why;
        if (batch_line_read(text, len, &l, &why) != VT_OK)
            return vt_fail(err, VT_ERR_FORMAT, "%s: line %d: %s", b->in_path, b->line, why.message);
        bool twice = id_has(&b->seen, l.custom_id);
        vt_status status = twice ? vt_fail(err, VT_ERR_FORMAT,
                                           "%s: line %d: custom_id '%.80s' is there twice",
                                           b->in_path, b->line, l.custom_id)
                                 : id_add(&b->seen, l.custom_id, err);
        b->n_lines++;
        b->n_found += id_has(&b->there, l.custom_id);
        batch_line_release(&l);
        TRY(status);
    }
    b->at = 0;
    b->line = 0;
    return VT_OK;
}

/* ---- running ---- */

/* A line has its result. */
static void finish_line(batch *b, batch_line *l)
{
    if (b->status == VT_OK)
        b->status = batch_line_result(l, b->s.model, &b->ready, b->err);
    b->n_failed += l->error.status != VT_OK;
    b->n_done++;
    batch_line_release(l);
    free(l);
}

static void on_event(void *user, const vt_event *e)
{
    batch_line *l = user;
    batch *b = l->batch;
    b->n_tokens += e->n_tokens;
    batch_line_event(l, e);
    if (l->n_open > 0)
        return;
    b->n_open--;
    if (e->finish != VT_FINISH_ABORT) {
        finish_line(b, l);
        return;
    }
    batch_line_release(l); /* interrupted: a later run does it */
    free(l);
}

static vt_status start_line(batch *b, const char *text, size_t len, vt_err *err)
{
    batch_line *l = vt_calloc(1, sizeof *l);
    if (!l)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for line %d", b->line);
    vt_status status = batch_line_read(text, len, l, err);
    if (status != VT_OK || id_has(&b->there, l->custom_id)) {
        batch_line_release(l);
        free(l);
        return status;
    }
    if (l->body)
        batch_line_params(b->c, b->s.model, l);
    l->batch = b;
    l->p.callback = on_event;
    l->p.user = l;
    if (l->error.status == VT_OK)
        l->error.status = vt_engine_submit(b->s.engine, &l->p, &l->id, &l->error);
    if (l->error.status == VT_OK)
        b->n_open++;
    else
        finish_line(b, l);
    return b->status;
}

static void show_progress(const batch *b, int64_t begin_ns, int64_t *last_ns)
{
    bool tty = b->c->log.tty;
    int64_t now = vt_now_ns();
    if (b->c->quiet || now - *last_ns < (tty ? INT64_C(200000000) : INT64_C(10000000000)))
        return;
    *last_ns = now;
    vt_buf text = {0};
    vt_text_progress(&text, "requests", b->n_done, b->n_lines - b->n_found,
                     (double)(now - begin_ns) * 1e-9, " requests");
    fprintf(stderr, tty ? "\r%s\033[K" : "%s\n", text.data ? text.data : "");
    vt_buf_release(&text);
}

static vt_status run_lines(batch *b, vt_err *err)
{
    const char *text;
    size_t len;
    bool idle = true, more = true;
    int64_t begin = vt_now_ns(), shown = begin;
    while ((more || b->n_open > 0 || !idle) && !cli_interrupted()) {
        while (more && b->n_open < AHEAD && !cli_interrupted()) {
            more = next_line(b, &text, &len);
            if (more)
                TRY(start_line(b, text, len, err));
        }
        TRY(vt_engine_step(b->s.engine, &idle, err));
        TRY(b->status);
        TRY(flush_ready(b, err));
        show_progress(b, begin, &shown);
    }
    if (b->c->log.tty && !b->c->quiet)
        fputs("\r\033[K", stderr);
    double s = (double)(vt_now_ns() - begin) * 1e-9;
    cli_note(b->c, "%d of %d lines done in %.1f s (%d were there, %d failed), %.1f tokens/s",
             b->n_done + b->n_found, b->n_lines, s, b->n_found, b->n_failed,
             s > 0 ? (double)b->n_tokens / s : 0);
    return cli_interrupted()
               ? vt_fail(err, VT_ERR_CANCELLED, "interrupted; the same command goes on from here")
               : VT_OK;
}

static vt_status check_usage(const cli *c, vt_err *err)
{
    if (!vt_options_given(c->options, "output-file"))
        return vt_fail(err, VT_ERR_USAGE, "--batch: needs -o OUT.jsonl for the results");
    static const char *const alone[] = {"tokens", "raw", "system", "stop", "story", "json"};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (vt_options_given(c->options, alone[i]))
            return vt_fail(err, VT_ERR_USAGE,
                           "--%s: does not go with --batch, whose lines say what they want",
                           alone[i]);
    return c->n_args > 0 ? vt_fail(err, VT_ERR_USAGE, "--batch: takes the place of the prompt")
                         : VT_OK;
}

int cli_run_batch(cli *c)
{
    vt_err err = {0};
    batch b = {.c = c, .out = -1, .err = &err};
    b.in_path = vt_options_get(c->options, "batch-file");
    b.out_path = vt_options_get(c->options, "output-file");
    vt_status status = check_usage(c, &err);
    if (status == VT_OK)
        status = cli_read_file(b.in_path, &b.in, &err);
    if (status == VT_OK)
        status = open_out(&b, &err);
    if (status == VT_OK)
        status = check_in(&b, &err);
    if (status == VT_OK && b.n_found < b.n_lines)
        status = cli_open(c, &b.s, &err);
    if (status == VT_OK && b.s.engine)
        status = run_lines(&b, &err);
    else if (status == VT_OK)
        cli_note(c, "%s: all %d lines are done already", b.out_path, b.n_lines);
    cli_close(&b.s); /* aborts what is open; its lines are released in on_event */
    vt_err late;
    if (status == VT_ERR_CANCELLED)
        (void)flush_ready(&b, &late);
    if (b.out >= 0)
        close(b.out);
    vt_buf_release(&b.in);
    vt_buf_release(&b.ready);
    id_release(&b.there);
    id_release(&b.seen);
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
