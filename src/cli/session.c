/* What the verbs share: messages, JSON, Ctrl-C, files, and one request driven to its end.
 *
 * Requests run by vt_engine_step on this thread, so nothing has to be locked and Ctrl-C needs no
 * more than a flag: it is looked at between two steps, the request is aborted, and its last event
 * ends the loop. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"

enum { MAX_FILE_BYTES = 256 << 20 };

/* A signal handler can reach nothing but this. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    if (interrupted)
        _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a read is to end */
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) { return interrupted != 0; }

void cli_clear_interrupt(void) { interrupted = 0; }

bool cli_stop_asked(void *unused)
{
    (void)unused;
    return interrupted != 0;
}

int cli_fail(const vt_err *err)
{
    fflush(stdout);
    fprintf(stderr, "vitrine: %s\n", err->message);
    return err->status == VT_ERR_USAGE       ? CLI_USAGE
           : err->status == VT_ERR_CANCELLED ? CLI_INTERRUPTED
                                             : CLI_FAILED;
}

void cli_note(const cli *c, const char *fmt, ...)
{
    va_list args;
    if (c->quiet)
        return;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_print_json(json_t *object)
{
    int failed = !object || json_dumpf(object, stdout, JSON_REAL_PRECISION(9) | JSON_COMPACT) != 0;
    json_decref(object);
    if (failed) {
        fputs("vitrine: the JSON result could not be written\n", stderr);
        return CLI_FAILED;
    }
    fputc('\n', stdout);
    return CLI_DONE;
}

json_t *cli_json_number(double v, int digits)
{
    double scale = pow(10, digits);
    return isfinite(v) ? json_real(round(v * scale) / scale) : json_null();
}

json_t *cli_json_text(const char *text, size_t len)
{
    json_t *j = json_stringn(text, len);
    if (j)
        return j;
    vt_buf b = {0}; /* not UTF-8: keep the ASCII, mark the rest */
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x80)
            vt_buf_putc(&b, text[i]);
        else
            vt_buf_puts(&b, "\xef\xbf\xbd");
    j = json_stringn(b.data ? b.data : "", b.len);
    vt_buf_release(&b);
    return j;
}

const char *cli_finish_name(vt_finish f)
{
    static const char *const name[] = {"none", "stop", "length", "abort", "error"};
    return (unsigned)f < sizeof name / sizeof name[0] ? name[f] : "unknown";
}

vt_status cli_read_file(const char *path, vt_buf *out, vt_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "stdin" : path;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f)
        return vt_fail(err, VT_ERR_IO, "%s: %s", name, strerror(errno));
    vt_buf_init(out, MAX_FILE_BYTES);
    char chunk[1 << 16];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0 && vt_buf_add(out, chunk, n))
        ;
    int failed = ferror(f) ? errno : 0;
    if (!is_stdin)
        fclose(f);
    vt_status status = VT_OK;
    if (cli_interrupted())
        status = vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    else if (failed)
        status = vt_fail(err, VT_ERR_IO, "%s: %s", name, strerror(failed));
    else if (out->failed)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: more than %d MiB", name, MAX_FILE_BYTES >> 20);
    if (status != VT_OK)
        vt_buf_release(out);
    return status;
}

/* What on_alarm writes: all that it can reach. */
static char loading[64];

static void on_alarm(int signal)
{
    (void)signal;
    if (write(2, loading, strlen(loading)) < 0)
        return; /* nobody reads it */
}

/* A line on a terminal where loading takes more than a second; what programs read has no chatter
 * that depends on how fast a machine is. Loading has no steps to count, so there is no bar. */
static void announce_loading(const cli *c, bool on)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    char device[16];
    if (c->quiet || !isatty(2))
        return;
    if (on) {
        vt_options_device(c->options, device, sizeof device);
        snprintf(loading, sizeof loading, "loading the model on %s ...\n",
                 strcmp(device, "cpu") == 0 ? "the CPU" : device);
    }
    sigaction(SIGALRM, &action, NULL);
    alarm(on ? 1 : 0);
}

vt_status cli_open(const cli *c, cli_session *s, vt_err *err)
{
    *s = (cli_session){0};
    int64_t begin = vt_now_ns();
    announce_loading(c, true);
    vt_status status = vt_model_open(c->options, &s->model, err);
    if (status == VT_OK)
        status = vt_engine_new(s->model, c->options, &s->engine, err);
    announce_loading(c, false);
    if (status == VT_OK && cli_interrupted())
        status = vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    if (status != VT_OK)
        cli_close(s);
    s->load_ms = (double)(vt_now_ns() - begin) * 1e-6;
    return status;
}

void cli_close(cli_session *s)
{
    vt_engine_free(s->engine);
    vt_model_free(s->model);
    s->engine = NULL;
    s->model = NULL;
}

void cli_sampling(const cli *c, vt_request_params *p)
{
    p->max_tokens = (int32_t)vt_options_int(c->options, "max-tokens");
    p->temperature = (float)vt_options_float(c->options, "temperature");
    p->top_p = (float)vt_options_float(c->options, "top-p");
    p->top_k = (int32_t)vt_options_int(c->options, "top-k");
    p->min_p = (float)vt_options_float(c->options, "min-p");
    p->seed = (uint64_t)vt_options_int(c->options, "seed");
    p->has_seed = true;
    p->stop = vt_options_list(c->options, "stop", &p->n_stop);
}

static bool keep_tokens(cli_reply *r, const int32_t *token, int32_t n, int64_t now_ns)
{
    if (n <= 0)
        return true;
    if (r->n_tokens + n > r->cap) {
        int32_t cap = 2 * r->cap + n + 64;
        int32_t *ids = realloc(r->token, (size_t)cap * sizeof *ids);
        r->token = ids ? ids : r->token;
        int64_t *times = realloc(r->token_ns, (size_t)cap * sizeof *times);
        r->token_ns = times ? times : r->token_ns;
        if (!ids || !times)
            return false;
        r->cap = cap;
    }
    for (int32_t i = 0; i < n; i++) {
        r->token[r->n_tokens] = token[i];
        r->token_ns[r->n_tokens++] = now_ns;
    }
    return true;
}

static void on_event(void *user, const vt_event *e)
{
    cli_reply *r = user;
    if (e->n_tokens > 0) {
        r->last_ns = e->made_ns;
        if (r->n_tokens == 0)
            r->first_ns = r->last_ns;
    }
    if (!keep_tokens(r, e->tokens, e->n_tokens, r->last_ns) ||
        (e->text_len && !vt_buf_add(&r->text, e->text, e->text_len)))
        r->out_of_memory = true;
    if (r->stream && e->text_len) {
        fwrite(e->text, 1, e->text_len, r->stream);
        fflush(r->stream);
    }
    if (e->finish == VT_FINISH_NONE)
        return;
    r->finish = e->finish;
    r->prompt_tokens = e->prompt_tokens;
    r->completion_tokens = e->completion_tokens;
    r->cached_tokens = e->cached_tokens;
    if (e->error)
        vt_fail(&r->error, VT_ERR_DEVICE, "%s", e->error);
}

vt_status cli_generate(cli_session *s, vt_request_params *p, cli_reply *r, vt_err *err)
{
    bool aborted = false, idle = false;
    p->callback = on_event;
    p->user = r;
    r->begin_ns = r->begin_ns ? r->begin_ns : vt_now_ns();
    TRY(vt_engine_submit(s->engine, p, &r->id, err));
    while (r->finish == VT_FINISH_NONE && !idle) {
        if ((cli_interrupted() || r->out_of_memory) && !aborted) {
            vt_engine_abort(s->engine, r->id);
            aborted = true;
        }
        TRY(vt_engine_step(s->engine, &idle, err));
    }
    if (r->out_of_memory)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the answer");
    if (r->finish == VT_FINISH_ERROR) {
        *err = r->error;
        return err->status;
    }
    if (r->finish == VT_FINISH_NONE)
        return vt_fail(err, VT_ERR_DEVICE, "the engine went idle before the request ended");
    return VT_OK;
}

void cli_reply_release(cli_reply *r)
{
    vt_buf_release(&r->text);
    free(r->token);
    free(r->token_ns);
    r->token = NULL;
    r->token_ns = NULL;
}
