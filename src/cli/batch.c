/* vitrine run --batch IN.jsonl -o OUT.jsonl: offline batches that survive interruption.
 *
 *   IN:  one request a line        OUT: one result a line, in the order they finish
 *
 *   1. IN is read through once and checked: a mistake in its last line shows up now, not hours
 *      later. OUT is opened, and tells which requests are done (cli/batch_out.h).
 *   2. IN is read again, and up to AHEAD requests are kept submitted. Where the engine's queue is
 *      full, one request waits here until a step has made room.
 *   3. Results are appended to OUT after each step, and are on the disk before the next one.
 *
 * Neither file has to fit into memory; the ids do. A request without a seed gets one from its
 * custom_id, so that a batch gives the same answers when it is interrupted and resumed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/plain_file.h"
#include "base/random.h"
#include "cli/batch_out.h"
#include "cli/term/lines.h"
#include "cli/term/telling.h"
#include "engine/constraint/grammar.h"
#include "openai/batch.h"
#include "text/template/template.h"

enum {
    AHEAD = 256,           /* requests submitted and not finished: enough to fill any batch */
    READY_BYTES = 1 << 20, /* results of wrong lines are written when they take this much */
    READY_MAX = 64 << 20   /* and any results, even in the middle of a step, at this much */
};

typedef struct batch {
    const cli *c;
    cli_session s;
    vt_openai_defaults defaults;
    const char *in_path;
    int in_fd;
    cli_lines in;
    batch_out out;
    id_set seen; /* custom_ids of IN so far */
    int32_t n_lines, n_found, n_done, n_failed, n_open;
    int64_t n_tokens;
    struct work *waiting; /* the queue was full for it */
    vt_buf ready;         /* results to be written */
    vt_status status;     /* the first failure inside a callback */
    vt_err *err;
} batch;

/* One prompt of a line: an engine request. */
typedef struct part {
    struct work *w;
    int32_t prompt;
    vt_request_id id;
} part;

/* A line of IN on its way to a result. */
typedef struct work {
    batch *b;
    vt_openai_line line;
    vt_openai_request request;
    vt_openai_reply reply;
    vt_grammar *grammar; /* prepared; NULL: the request has none */
    part *part;          /* [request.n_prompts] */
    int32_t n_submitted; /* parts */
} work;

/* ---- IN ---- */

/* Opens IN. It is read twice, so what cannot be (a pipe) is copied to a temporary file first. */
static vt_status open_in(batch *b, struct stat *st, vt_err *err)
{
    FILE *f = NULL;
    int fd = -1;
    if (strcmp(b->in_path, "-") == 0) {
        fd = dup(0);
        b->in_path = "stdin";
    } else {
        TRY(vt_open_to_read(b->in_path, &f, err));
        fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 0);
        fclose(f);
    }
    b->in_fd = fd;
    if (fd < 0 || fstat(fd, st) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", b->in_path, strerror(errno));
    if (S_ISREG(st->st_mode))
        return VT_OK;
    FILE *copy = tmpfile();
    vt_status status = copy ? VT_OK : vt_fail(err, VT_ERR_IO, "tmpfile: %s", strerror(errno));
    char chunk[1 << 14];
    ssize_t n = 0;
    while (status == VT_OK && (n = read(fd, chunk, sizeof chunk)) != 0 && !cli_interrupted())
        if (n > 0 ? fwrite(chunk, 1, (size_t)n, copy) != (size_t)n : errno != EINTR)
            status = vt_fail(err, VT_ERR_IO, "%s: %s", b->in_path, strerror(errno));
    if (status == VT_OK && cli_interrupted())
        status = vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    if (copy && status == VT_OK && (fflush(copy) != 0 || dup2(fileno(copy), fd) < 0))
        status = vt_fail(err, VT_ERR_IO, "%s: %s", b->in_path, strerror(errno));
    if (copy)
        fclose(copy);
    return status;
}

static bool is_blank(const vt_buf *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (!line->data[i] || !strchr(" \t\r", line->data[i]))
            return false;
    return true;
}

/* The next line that is not blank. */
static vt_status next_line(batch *b, bool *got, vt_err *err)
{
    do
        TRY(cli_lines_next(&b->in, got, err));
    while (*got && is_blank(&b->in.line));
    return VT_OK;
}

/* From the front of IN. */
static vt_status rewind_in(batch *b, vt_err *err)
{
    cli_lines_close(&b->in);
    return cli_lines_open(&b->in, b->in_fd, b->in_path, VT_OPENAI_MAX_TEXT + 64, err);
}

static vt_status check_line(batch *b, vt_err *err)
{
    vt_openai_line l;
    vt_err why;
    vt_status status = vt_openai_line_read(b->in.line.data, b->in.line.len, &l, &why);
    if (status != VT_OK)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: line %lld: %s", b->in_path,
                         (long long)b->in.number, why.message);
    else if (id_set_find(&b->seen, l.custom_id))
        status = vt_fail(err, VT_ERR_FORMAT, "%s: line %lld: custom_id '%.80s' is there twice",
                         b->in_path, (long long)b->in.number, l.custom_id);
    else
        status = id_set_put(&b->seen, l.custom_id, 0, err);
    if (status == VT_OK) {
        const id_entry *there = id_set_find(&b->out.there, l.custom_id);
        b->n_lines++;
        b->n_found += there != NULL;
        b->n_failed += there && there->http != 200;
    }
    vt_openai_line_release(&l);
    return status;
}

static vt_status check_in(batch *b, vt_err *err)
{
    bool got = true;
    TRY(rewind_in(b, err));
    for (;;) {
        if (cli_interrupted())
            return vt_fail(err, VT_ERR_CANCELLED, "interrupted");
        TRY(next_line(b, &got, err));
        if (!got)
            break;
        TRY(check_line(b, err));
    }
    id_set_release(&b->seen);
    return rewind_in(b, err);
}

/* ---- running ---- */

static void free_work(work *w)
{
    vt_openai_line_release(&w->line);
    vt_openai_request_release(&w->request);
    vt_openai_reply_release(&w->reply);
    vt_grammar_unref(w->grammar);
    free(w->part);
    free(w);
}

static vt_status flush_ready(batch *b, vt_err *err)
{
    TRY(batch_out_append(&b->out, &b->ready, err));
    vt_buf_clear(&b->ready);
    return VT_OK;
}

/* Results are written once a step, or earlier where they take much memory. */
static vt_status keep_result(batch *b, const char *id, const vt_buf *result, vt_err *err)
{
    if (b->ready.len + result->len > READY_MAX)
        TRY(flush_ready(b, err));
    return vt_buf_add(&b->ready, result->data, result->len)
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "out of memory for the result of %.80s", id);
}

/* The line has its result: `error`, or where that is none, its reply. */
static void finish_work(work *w, const vt_openai_error *error)
{
    batch *b = w->b;
    const char *id = w->line.custom_id;
    vt_buf result = {0};
    vt_openai_error large;
    vt_err why;
    vt_status status = vt_openai_result_write(id, &w->reply, &w->request, error, &result, &why);
    if (status != VT_OK) { /* the answer does not fit into memory: the result says that */
        vt_buf_release(&result);
        vt_openai_refuse(&large, 500, NULL, "%s", why.message);
        error = &large;
        status = vt_openai_result_write(id, NULL, NULL, error, &result, &why);
    }
    if (status == VT_OK)
        status = keep_result(b, id, &result, &why);
    if (status != VT_OK && b->status == VT_OK) {
        b->status = status;
        *b->err = why;
    }
    vt_buf_release(&result);
    b->n_failed += error->http != 0;
    b->n_done++;
    free_work(w);
}

static void on_event(void *user, const vt_event *e)
{
    part *p = user;
    work *w = p->w;
    batch *b = w->b;
    b->n_tokens += e->n_tokens;
    vt_openai_reply_event(&w->reply, p->prompt, e);
    if (w->reply.n_open > 0)
        return;
    b->n_open--;
    if (w->reply.aborted && !w->reply.error.http)
        free_work(w); /* interrupted: a later run does it */
    else
        finish_work(w, &w->reply.error);
}

/* Reads the current line of IN into b->waiting, which stays NULL where there is nothing to do for
 * the engine: the request is done already, or is wrong. */
static vt_status start_line(batch *b, vt_err *err)
{
    work *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for line %lld", (long long)b->in.number);
    w->b = b;
    vt_status status = vt_openai_line_read(b->in.line.data, b->in.line.len, &w->line, err);
    if (status != VT_OK || id_set_find(&b->out.there, w->line.custom_id)) {
        free_work(w);
        return status;
    }
    const char *id = w->line.custom_id;
    vt_openai_defaults d = b->defaults;
    d.seed ^= vt_fnv1a(VT_FNV_OFFSET, id, strlen(id));
    vt_openai_error *e = &w->line.error;
    if (w->line.body)
        (void)vt_openai_request_read_as(w->line.body, w->line.form, b->s.model, &d, &w->request, e);
    vt_err why;
    if (!e->http && w->line.body &&
        vt_engine_prepare(b->s.engine, &w->request.p, &w->grammar, &why) != VT_OK)
        (void)vt_openai_refuse_grammar(e, &why, &w->request, b->s.model);
    if (!e->http) {
        w->part = vt_calloc((size_t)w->request.n_prompts, sizeof *w->part);
        status = w->part ? vt_openai_reply_init(&w->reply, &w->request, b->s.model, id, err)
                         : vt_fail(err, VT_ERR_MEMORY, "out of memory for %.80s", id);
    }
    json_decref(w->line.body); /* the request has copies */
    w->line.body = NULL;
    if (status != VT_OK)
        free_work(w);
    else if (e->http)
        finish_work(w, e);
    else
        b->waiting = w;
    return status;
}

/* The parts that were not submitted will not be. The last event of the others ends the line; where
 * there are none, the caller has to. */
static void forget_rest(work *w)
{
    w->reply.n_open -= w->reply.n_each * (w->request.n_prompts - w->n_submitted);
}

/* A part cannot run: the line has failed. */
static void fail_part(work *w, const vt_err *why)
{
    batch *b = w->b;
    vt_openai_refuse_submit(&w->reply.error, why, w->line.form, &w->request, b->s.model);
    if (w->n_submitted == 0) {
        finish_work(w, &w->reply.error);
        return;
    }
    forget_rest(w);
    if (w->reply.n_open == 0) { /* the others have ended already */
        b->n_open--;
        finish_work(w, &w->reply.error);
        return;
    }
    for (int32_t i = 0; i < w->n_submitted; i++)
        vt_engine_abort(b->s.engine, w->part[i].id);
}

/* Submits b->waiting, which stays waiting where the queue is full before its last part. */
static void submit(batch *b)
{
    work *w = b->waiting;
    vt_request_params *p = &w->request.p;
    vt_err why;
    while (w->n_submitted < w->request.n_prompts) {
        part *next = &w->part[w->n_submitted];
        *next = (part){.w = w, .prompt = w->n_submitted};
        vt_openai_request_select(&w->request, next->prompt);
        p->callback = on_event;
        p->user = next;
        vt_status status = vt_engine_submit_prepared(b->s.engine, p, w->grammar, &next->id, &why);
        if (status == VT_ERR_BUSY && b->n_open > 0)
            return;
        if (status != VT_OK) {
            b->waiting = NULL;
            fail_part(w, &why);
            return;
        }
        b->n_open += w->n_submitted++ == 0;
    }
    b->waiting = NULL;
}

/* At an interruption: the line that is waiting is dropped. */
static void drop_waiting(batch *b)
{
    work *w = b->waiting;
    b->waiting = NULL;
    if (!w)
        return;
    forget_rest(w);
    if (w->n_submitted > 0 && w->reply.n_open == 0)
        b->n_open--;
    if (w->n_submitted == 0 || w->reply.n_open == 0)
        free_work(w);
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

/* Submits lines until enough are open, the queue is full, or IN is at its end. */
static vt_status submit_ahead(batch *b, bool *more, vt_err *err)
{
    while (b->n_open < AHEAD && (*more || b->waiting) && !cli_interrupted()) {
        if (!b->waiting)
            TRY(next_line(b, more, err));
        if (!b->waiting && *more)
            TRY(start_line(b, err));
        if (b->waiting)
            submit(b);
        if (b->waiting || b->ready.len > READY_BYTES)
            break; /* the queue is full; or results of many wrong lines want to be written */
    }
    return b->status;
}

static vt_status run_lines(batch *b, vt_err *err)
{
    bool idle = true, more = true;
    int64_t begin = vt_now_ns(), shown = begin;
    while ((more || b->waiting || b->n_open > 0 || !idle) && !cli_interrupted()) {
        TRY(submit_ahead(b, &more, err));
        TRY(vt_engine_step(b->s.engine, &idle, err));
        cli_dump_if_asked(b->c, b->s.engine);
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

/* ---- the command ---- */

static vt_status check_usage(const cli *c, vt_err *err)
{
    if (!vt_options_given(c->options, "output-file"))
        return vt_fail(err, VT_ERR_USAGE, "--batch: needs -o OUT.jsonl for the results");
    static const char *const alone[] = {"tokens", "raw", "system", "stop"};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (vt_options_given(c->options, alone[i]))
            return vt_fail(err, VT_ERR_USAGE,
                           "--%s: does not go with --batch, whose lines say what they want",
                           alone[i]);
    if (c->n_args > 0)
        return vt_fail(err, VT_ERR_USAGE, "--batch: takes the place of the prompt");
    return cli_prepare_story(c, err);
}

/* Options that were given hold for lines that say nothing else; where neither does, OpenAI's
 * defaults hold. */
static void read_defaults(const cli *c, vt_openai_defaults *d)
{
    const vt_options *o = c->options;
    static const vt_template_limits limits = {.stop = cli_stop_asked};
    vt_openai_defaults_init(d);
    d->limits = &limits;
    if (vt_options_given(o, "temperature"))
        d->temperature = (float)vt_options_float(o, "temperature");
    if (vt_options_given(o, "max-tokens"))
        d->max_tokens = (int32_t)vt_options_int(o, "max-tokens");
    if (vt_options_given(o, "literal-content"))
        d->literal_content = vt_options_flag(o, "literal-content");
    d->top_p = (float)vt_options_float(o, "top-p");
    d->min_p = (float)vt_options_float(o, "min-p");
    d->top_k = (int32_t)vt_options_int(o, "top-k");
    d->ignore_eos = vt_options_flag(o, "ignore-eos");
    d->has_seed = true;
    d->seed = (uint64_t)vt_options_int(o, "seed");
    d->model_alias = vt_options_get(o, "model");
}

static int print_summary(const batch *b)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_int(&w, "lines", b->n_lines);
    vt_json_int(&w, "done", b->n_done + b->n_found);
    vt_json_int(&w, "done_before", b->n_found);
    vt_json_int(&w, "failed", b->n_failed);
    vt_json_int(&w, "output_tokens", b->n_tokens);
    return cli_object_print(&w);
}

/* The exit status: 0 only where every line has an answer. `status` is how far the run came. */
static int finish(const batch *b, vt_status status, vt_err *err)
{
    if (status != VT_OK)
        return cli_fail(err);
    if (!b->s.model && b->n_failed == 0)
        cli_note(b->c, "%s: all %d lines are done already", b->out.path, b->n_lines);
    if (b->c->json && print_summary(b) != CLI_DONE)
        return CLI_FAILED;
    if (b->n_failed == 0)
        return CLI_DONE;
    vt_fail(err, VT_ERR_FORMAT,
            "%d of %d lines failed; %s says why, and --retry-failed does them again", b->n_failed,
            b->n_lines, b->out.path);
    return cli_fail(err);
}

int cli_run_batch(cli *c)
{
    vt_err err = {0}, late;
    struct stat st;
    batch b = {.c = c, .in_fd = -1, .out.fd = -1, .err = &err};
    b.in_path = vt_options_get(c->options, "batch-file");
    read_defaults(c, &b.defaults);
    vt_status status = check_usage(c, &err);
    if (status == VT_OK)
        status = open_in(&b, &st, &err);
    if (status == VT_OK)
        status = batch_out_open(&b.out, c, vt_options_get(c->options, "output-file"), &st,
                                vt_options_flag(c->options, "retry-failed"), &err);
    if (status == VT_OK)
        status = check_in(&b, &err);
    if (status == VT_OK && b.n_found < b.n_lines)
        status = cli_open(c, &b.s, &err);
    if (status == VT_OK && b.s.engine)
        status = run_lines(&b, &err);
    if (status == VT_OK && b.s.engine)
        status = cli_tell_recording(c, &b.s, &err);
    bool opened = b.s.model != NULL;
    drop_waiting(&b);
    vt_engine_free(b.s.engine); /* aborts what is open; on_event releases it */
    b.s.engine = NULL;
    if (status == VT_ERR_CANCELLED && opened)
        (void)flush_ready(&b, &late);
    int code = finish(&b, status, &err);
    cli_close(&b.s);
    batch_out_close(&b.out);
    cli_lines_close(&b.in);
    if (b.in_fd >= 0)
        close(b.in_fd);
    vt_buf_release(&b.ready);
    id_set_release(&b.seen);
    return code;
}
