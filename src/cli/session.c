/* Serves all verbs: Ctrl-C, a model with its engine, and one request driven to its end.
 *
 * Requests run by vt_engine_step on this thread, so nothing has to be locked and Ctrl-C needs no
 * more than a flag: it is looked at between two steps, the request is aborted, and its last event
 * ends the loop. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/models/model_name.h"
#include "device/cpu.h"
#include "device/cuda/cuda.h"
#include "model/lora/lora.h"

/* A signal handler can reach nothing but these. */
static volatile sig_atomic_t interrupted, loading_now, at_prompt;
static pthread_t catcher; /* the thread that waits for keys and steps the engine */

/* The kernel gives Ctrl-C to any thread that lets SIGINT in. The thread that waits for keys holds
 * it back between its look at the flag and its wait: it would sleep on if another thread set the
 * flag there. */
static void on_interrupt(int signal)
{
    static const char said[] = "vitrine: interrupted\n";
    if (!pthread_equal(pthread_self(), catcher)) {
        pthread_kill(catcher, signal);
        return;
    }
    /* Loading looks at no flag, and nothing is lost by ending it: files are replaced whole. */
    if (loading_now && write(2, said, sizeof said - 1) < 0)
        _exit(CLI_INTERRUPTED);
    if ((interrupted && !at_prompt) || loading_now)
        _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a read is to end */
    catcher = pthread_self();
    sigaction(SIGINT, &action, NULL);
}

void cli_set_at_prompt(bool on) { at_prompt = on; }

bool cli_interrupted(void) { return interrupted != 0; }

void cli_clear_interrupt(void) { interrupted = 0; }

bool cli_stop_asked(void *unused)
{
    (void)unused;
    return interrupted != 0;
}

/* on_alarm can reach nothing but this. */
static char loading[64];

static void on_alarm(int signal)
{
    (void)signal;
    if (write(2, loading, strlen(loading)) < 0)
        return; /* stderr is closed */
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

/* More threads than CPUs wait for each other at every barrier: hundreds of times slower. */
static void warn_of_threads(const cli *c)
{
    int64_t n = vt_options_int(c->options, "threads");
    if (n > vt_cpu_get()->n_cpus && vt_options_cuda(c->options) < 0)
        cli_note(c, "note: %lld threads share %d CPU%s and will wait for each other (--threads)",
                 (long long)n, vt_cpu_get()->n_cpus, vt_cpu_get()->n_cpus == 1 ? "" : "s");
}

static void on_notice(void *user, const char *sentence) { cli_note(user, "note: %s", sentence); }

vt_status cli_open(const cli *c, cli_session *s, vt_err *err)
{
    return cli_open_as(c, s, NULL, err);
}

vt_status cli_fit_running(const cli *c, int32_t n, vt_err *err)
{
    char text[16];
    if (vt_options_cuda(c->options) < 0 || vt_options_given(c->options, "max-running"))
        return VT_OK;
    snprintf(text, sizeof text, "%d", n);
    return vt_options_set(c->options, "max-running", text, err);
}

/* The GPU, opened while the model is read; the engine opens it once more, which takes no time. */
typedef struct early_gpu {
    const vt_options *options;
    pthread_t thread;
    bool started;
    vt_cuda *gpu; /* NULL: none */
} early_gpu;

static void *open_early(void *arg)
{
    early_gpu *e = arg;
    int32_t ordinal = vt_options_cuda(e->options);
    if (ordinal >= 0 && vt_cuda_open(ordinal, &e->gpu, NULL) != VT_OK)
        e->gpu = NULL; /* the engine says why */
    return NULL;
}

static void early_begin(early_gpu *e, const vt_options *o)
{
    *e = (early_gpu){.options = o};
    if (strcmp(vt_options_get(o, "device"), "cpu") != 0)
        e->started = pthread_create(&e->thread, NULL, open_early, e) == 0;
}

static void early_end(early_gpu *e)
{
    if (e->started)
        pthread_join(e->thread, NULL);
    vt_cuda_close(e->gpu);
}

vt_status cli_open_as(const cli *c, cli_session *s, cli_settle settle, vt_err *err)
{
    *s = (cli_session){0};
    TRY(vt_options_set_notice(c->options, on_notice, (void *)(uintptr_t)c, err));
    int64_t begin = vt_now_ns();
    warn_of_threads(c);
    cli_tell_model(c);
    announce_loading(c, true);
    loading_now = 1;
    early_gpu early;
    early_begin(&early, c->options);
    vt_status status = interrupted ? vt_fail(err, VT_ERR_CANCELLED, "interrupted") : VT_OK;
    if (status == VT_OK)
        status = vt_model_open(c->options, &s->model, err);
    if (status == VT_OK && settle)
        status = settle(c, s->model, err);
    if (status == VT_OK)
        status = vt_engine_new(s->model, c->options, &s->engine, err);
    early_end(&early);
    loading_now = 0;
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

vt_status cli_use_adapter(const cli_session *s, vt_request_params *p, vt_err *err)
{
    const vt_lora *lora = s->model->lora;
    if (lora && lora->n > 1)
        return vt_fail(err, VT_ERR_USAGE,
                       "--lora names %d adapters, and this uses one; expected one", lora->n);
    p->adapter = lora ? lora->name[0] : NULL;
    return VT_OK;
}

vt_status cli_run_request(cli_session *s, vt_request_id id, const vt_finish *finish, vt_err *err)
{
    bool idle = false, aborted = false;
    while (*finish == VT_FINISH_NONE && !idle) {
        if (cli_interrupted() && !aborted) {
            vt_engine_abort(s->engine, id);
            aborted = true;
        }
        TRY(vt_engine_step(s->engine, &idle, err));
    }
    return *finish == VT_FINISH_ABORT ? vt_fail(err, VT_ERR_CANCELLED, "interrupted") : VT_OK;
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

/* The chosen token's log-probability and those of the likeliest, as rows of 1 + n_top. */
static bool keep_logprobs(cli_reply *r, const vt_event *e)
{
    bool ok = true;
    r->n_top = e->top_logprobs ? e->n_top : 0;
    for (int32_t i = 0; e->logprobs && i < e->n_tokens && ok; i++) {
        ok = vt_buf_add(&r->logprobs, &e->logprobs[i], sizeof *e->logprobs);
        if (ok && r->n_top)
            ok = vt_buf_add(&r->logprobs, e->top_logprobs + (int64_t)i * r->n_top,
                            (size_t)r->n_top * sizeof *e->top_logprobs);
    }
    return ok;
}

/* Writes an event's text, and what is left after the last one. */
static void write_text(cli_reply *r, const vt_event *e)
{
    bool last = e->finish != VT_FINISH_NONE;
    if (e->text_len == 0 && !last)
        return;
    int64_t begin = vt_now_ns();
    if (e->text_len) {
        cli_put(r->stream, &r->shown, e->text, e->text_len);
        fflush(r->stream);
    }
    if (last)
        cli_put_end(r->stream, &r->shown);
    r->write_begin_ns = r->write_begin_ns ? r->write_begin_ns : begin;
    r->write_end_ns = vt_now_ns();
    r->write_ns += r->write_end_ns - begin;
}

static void on_event(void *user, const vt_event *e)
{
    cli_reply *first = user, *r = e->sample > 0 ? &first->other[e->sample - 1] : first;
    if (e->n_tokens > 0) {
        r->last_ns = e->made_ns;
        if (r->n_tokens == 0)
            r->first_ns = r->last_ns;
    }
    if (!keep_tokens(r, e->tokens, e->n_tokens, r->last_ns) || !keep_logprobs(r, e) ||
        (e->text_len && !vt_buf_add(&r->text, e->text, e->text_len)))
        first->out_of_memory = true;
    if (r->stream)
        write_text(r, e);
    if (e->finish == VT_FINISH_NONE)
        return;
    r->finish = e->finish;
    r->end_reason = e->end_reason;
    first->n_open--;
    first->prompt_tokens = e->prompt_tokens;
    first->completion_tokens += e->completion_tokens;
    first->draft_tokens += e->draft_tokens;
    first->draft_accepted += e->draft_accepted;
    if (r == first)
        first->cached_tokens = e->cached_tokens;
    if (e->finish == VT_FINISH_ERROR)
        vt_fail(&first->error, VT_ERR_DEVICE, "%s",
                e->error ? e->error : "the engine ended the request");
}

vt_status cli_generate(cli_session *s, vt_request_params *p, cli_reply *r, vt_err *err)
{
    bool aborted = false, idle = false;
    p->callback = on_event;
    p->user = r;
    r->n_open = p->n;
    r->n_other = p->n - 1;
    r->other = r->n_other ? calloc((size_t)r->n_other, sizeof *r->other) : NULL;
    if (r->n_other && !r->other)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d answers", p->n);
    r->begin_ns = r->begin_ns ? r->begin_ns : vt_now_ns();
    TRY(vt_engine_submit(s->engine, p, &r->id, err));
    while (r->n_open > 0 && !idle) {
        if ((cli_interrupted() || r->out_of_memory) && !aborted) {
            vt_engine_abort(s->engine, r->id);
            aborted = true;
        }
        TRY(vt_engine_step(s->engine, &idle, err));
    }
    if (r->out_of_memory)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the answer");
    if (r->write_begin_ns)
        vt_engine_wrote(s->engine, r->id, r->write_begin_ns, r->write_end_ns, r->write_ns,
                        (int64_t)r->text.len);
    if (r->error.status != VT_OK) {
        *err = r->error;
        return err->status;
    }
    if (r->n_open > 0)
        return vt_fail(err, VT_ERR_DEVICE, "the engine went idle before the request ended");
    return VT_OK;
}

double cli_tokens_per_s(const cli_reply *r)
{
    enum { FEWEST = 4 }; /* a story's headline has the same rule */
    int64_t ns = r->n_tokens >= FEWEST ? r->last_ns - r->first_ns : 0;
    return ns > 0 ? (r->n_tokens - 1) * 1e9 / (double)ns : NAN;
}

void cli_reply_release(cli_reply *r)
{
    for (int32_t i = 0; i < r->n_other; i++)
        cli_reply_release(&r->other[i]);
    free(r->other);
    r->other = NULL;
    r->n_other = 0;
    vt_buf_release(&r->text);
    vt_buf_release(&r->logprobs);
    free(r->token);
    free(r->token_ns);
    r->token = NULL;
    r->token_ns = NULL;
}
