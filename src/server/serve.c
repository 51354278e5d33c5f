/* The server's life: options, start, drain, end. */
#include "server/serve.h"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "base/term/figure.h"
#include "base/term/term.h"
#include "model/catalogue.h"
#include "model/lora/lora.h"
#include "model/model.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "server/watch/metrics.h"
#include "server/watch/otlp.h"
#include "server/watch/step_log.h"
#include "server/watch/stories.h"

enum {
    HELPERS = 2,             /* threads that read requests */
    READS_QUEUED = 512,      /* requests that may wait to be read, */
    READS_BYTES = 256 << 20, /* and bytes of the large ones among them */
    BODIES = 64 /* of the largest size: what all bodies that are read may hold together */
};

static void say(const vt_server *s, const char *line)
{
    if (s->words && s->words->say)
        s->words->say(s->words->user, line);
}

/* ---- options ---- */

/* A new string: what `vitrine list` calls the model; NULL where it is not in the cache. */
static char *name_in_cache(const vt_model *m)
{
    vt_catalogue cache;
    char *name = NULL;
    if (!m->path || vt_catalogue_read(&cache, NULL) != VT_OK)
        return NULL;
    for (int32_t i = 0; i < cache.n && !name; i++)
        if (strcmp(cache.model[i].path, m->path) == 0)
            name = strdup(cache.model[i].name);
    vt_catalogue_release(&cache);
    return name;
}

static void read_defaults(vt_server *s)
{
    vt_openai_defaults *d = &s->defaults;
    const vt_model *m = s->model;
    vt_openai_defaults_init(d);
    d->may_stream = true;
    d->max_prompt = vt_engine_max_context(s->engine);
    int32_t most = vt_engine_max_sequences(s->engine);
    d->max_answers = most < VT_OPENAI_MAX_CHOICES ? most : VT_OPENAI_MAX_CHOICES;
    d->model_alias = vt_options_get(s->options, "model");
    d->list_name = s->list_name = name_in_cache(s->model);
    d->model_name = s->model_name;
    for (int form = VT_CALLS_NONE + 1; form < VT_CALL_FORMS; form++)
        if (strcmp(vt_options_get(s->options, "tool-parser"), vt_call_form_name(form)) == 0)
            d->call_form = (vt_call_form)form;
    const char *reasoning = vt_options_get(s->options, "reasoning-field");
    d->reasoning_names = strcmp(reasoning, "both") == 0 ? VT_REASONING_CONTENT | VT_REASONING_BARE
                         : strcmp(reasoning, "reasoning") == 0 ? VT_REASONING_BARE
                                                               : VT_REASONING_CONTENT;
    if (strcmp(vt_options_get(s->options, "sampling-defaults"), "model") != 0)
        return;
    if (isfinite(m->gen_temperature))
        d->temperature = m->gen_temperature;
    if (isfinite(m->gen_top_p))
        d->top_p = m->gen_top_p;
    if (isfinite(m->gen_min_p))
        d->min_p = m->gen_min_p;
    if (m->gen_top_k > 0)
        d->top_k = m->gen_top_k;
}

static void web_options(vt_server *s, vt_web_options *w)
{
    const vt_options *o = s->options;
    vt_web_options_init(w);
    w->limits.body = (size_t)vt_options_int(o, "max-body");
    w->max_connections = (int32_t)vt_options_int(o, "max-connections");
    w->tls_cert = vt_options_get(o, "tls-cert");
    w->tls_key = vt_options_get(o, "tls-key");
    w->cors_origin = s->sites.cors_origin;
    w->max_bodies = w->limits.body * BODIES;
    w->admit = server_route_admit;
    w->handler = server_route_request;
    w->ended = server_note_ended;
    w->user = s;
    w->error_body = server_error_body;
}

/* ---- start ---- */

static vt_status listen_on(vt_server *s, char *where, size_t size, vt_err *err)
{
    const vt_options *o = s->options;
    const char *path = vt_options_get(o, "uds"), *host = vt_options_get(o, "host");
    int port = (int)vt_options_int(o, "port");
    if (path) {
        TRY(vt_web_listen_unix(s->web, path, err));
        snprintf(where, size, "unix:%s", path);
        return VT_OK;
    }
    TRY(vt_web_listen(s->web, host, port, &port, err));
    snprintf(where, size, strchr(host, ':') ? "%s://[%s]:%d" : "%s://%s:%d", s->sites.scheme, host,
             port);
    return VT_OK;
}

static vt_status read_sites(vt_server *s, vt_err *err)
{
    const vt_options *o = s->options;
    server_sites *sites = &s->sites;
    sites->scheme = vt_options_get(o, "tls-cert") ? "https" : "http";
    sites->host = vt_options_get(o, "uds") ? NULL : vt_options_get(o, "host");
    sites->allowed = vt_options_list(o, "allowed-host", &sites->n_allowed);
    sites->cors_origin = vt_options_get(o, "cors-origin");
    return server_sites_check(sites, err);
}

/* Names are checked where a page could use the server by its place alone: on loopback without keys.
 * Unix sockets are out of a browser's reach. */
static void choose_host_check(vt_server *s)
{
    bool by_place = s->keys.n == 0 && vt_web_is_loopback(s->web);
    s->sites.check_host = s->sites.host && (by_place || s->sites.n_allowed > 0);
}

static void warn_of_strangers(const vt_server *s)
{
    char line[256];
    if (!s->sites.host || s->keys.n > 0 || vt_web_is_loopback(s->web))
        return;
    snprintf(line, sizeof line,
             "warning: everybody who reaches %s may use this server, as it asks for no key "
             "(--api-key-file, VITRINE_API_KEY)",
             s->sites.host);
    say(s, line);
}

/* Starts what requests are counted and logged in. */
static vt_status start_observing(vt_server *s, vt_err *err)
{
    const vt_options *o = s->options;
    const char *form = vt_options_get(o, "log-requests"), *to = vt_options_get(o, "otlp-endpoint"),
               *steps = vt_options_get(o, "log-steps");
    bool quiet = vt_options_flag(o, "quiet") && !vt_options_given(o, "log-requests");
    s->log_text = vt_options_flag(o, "log-text");
    s->log_form = quiet || strcmp(form, "off") == 0 ? SERVER_LOG_OFF
                  : strcmp(form, "json") == 0       ? SERVER_LOG_JSON
                                                    : SERVER_LOG_TEXT;
    s->metrics = vt_calloc(1, sizeof *s->metrics);
    s->stories = vt_calloc(1, sizeof *s->stories);
    if (!s->metrics || !s->stories)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for metrics");
    server_metrics_init(s->metrics);
    TRY(server_log_new(STDERR_FILENO, &s->log, err));
    TRY(server_dumps_new(s, &s->dumps, err));
    if (steps)
        TRY(server_step_log_new(s, steps, &s->step_log, err));
    return to ? server_otlp_new(to, s->log, &s->otlp, err) : VT_OK;
}

static vt_status start(vt_server *s, vt_err *err)
{
    vt_web_options w;
    TRY(start_observing(s, err));
    TRY(read_sites(s, err));
    web_options(s, &w);
    TRY(vt_web_new(&w, &s->web, err));
    const server_work_limits reads = {HELPERS, READS_QUEUED, READS_BYTES};
    TRY(server_work_new(s->web, &reads, &s->work, err));
    TRY(server_events_new(s->web, s->engine, &s->events, err));
    if (s->step_log)
        TRY(server_step_log_start(s->step_log, err));
    return vt_engine_start(s->engine, err);
}

/* "memory: 98.0 MB of weights, 512 MB of KV: 8 sequences of full context, 64 at a time", and on a
 * GPU "; 32 CUDA graphs take 34.0 MB of host memory" */
static void announce_memory(const vt_server *s, const vt_stats *st)
{
    const vt_executor *x = vt_engine_executor(s->engine);
    int32_t context = vt_engine_max_context(s->engine);
    const vt_sched_config *sched = &vt_engine_scheduler(s->engine)->config;
    double full = (double)st->pages / (double)vt_ceil_div(context, st->page_size);
    if (sched->n_windows > 0)
        full = fmin(full, (double)sched->n_windows /
                              (double)vt_sched_windows_least(sched->window, st->page_size));
    vt_buf b = {0};
    vt_text_printf(&b,
                   "memory: %f B of weights, %f B of KV, which %.1f sequences of full context "
                   "fill; up to %d run at a time",
                   vt_executor_value(x, "packed_bytes", 0), vt_executor_value(x, "kv_bytes", 0),
                   full, sched->limits.max_seqs);
    if (sched->n_windows > 0) {
        vt_text_printf(&b,
                       "; a token takes %f B of it, and %f B more while it is in the window of %d "
                       "tokens that some layers have",
                       vt_executor_value(x, "kv_page_bytes", 0) / st->page_size,
                       vt_executor_value(x, "kv_window_page_bytes", 0) / st->page_size,
                       sched->window);
    }
    if (vt_executor_value(x, "state_slots", 0) > 0) {
        vt_text_printf(&b, "; %f B of sequence state in %.0f slots",
                       vt_executor_value(x, "state_bytes", 0),
                       vt_executor_value(x, "state_slots", 0));
    }
    vt_executor_held held = {0};
    if (x->held)
        x->held(x, &held);
    if (held.graph_host_bytes > 0) {
        vt_text_printf(&b, "; %d CUDA graphs take %f B of host memory", held.graphs,
                       (double)held.graph_host_bytes);
    }
    if (!b.failed)
        say(s, b.data);
    vt_buf_release(&b);
}

/* Returns true if the engine makes vectors of texts. */
static bool makes_vectors(const vt_server *s)
{
    const char *how = vt_options_get(s->options, "pooling");
    return strcmp(how, "auto") == 0 ? s->model->pooled.how != VT_POOLING_NONE
                                    : strcmp(how, "none") != 0;
}

/* "page: http://127.0.0.1:8000/" and a request to paste into a terminal, of the kind that the model
 * can answer. A server for all addresses is asked on this machine's own. */
static void announce_first_steps(const vt_server *s, const char *where)
{
    const char *colon = strrchr(where, ':'), *host = s->sites.host;
    bool anywhere = host && (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0);
    char url[256] = "http://localhost", line[640];
    size_t n = 0;
    if (anywhere)
        snprintf(url, sizeof url, "%s://localhost%s", s->sites.scheme, colon);
    else if (host)
        snprintf(url, sizeof url, "%s", where);
    if (host) {
        snprintf(line, sizeof line, "page: %s/", url);
        say(s, line);
    }
    vt_append(line, sizeof line, &n, "try: curl ");
    if (!host)
        vt_append(line, sizeof line, &n, "--unix-socket '%s' ", vt_options_get(s->options, "uds"));
    if (s->keys.n > 0)
        vt_append(line, sizeof line, &n, "-H 'Authorization: Bearer KEY' ");
    if (vt_engine_ranks(s->engine))
        vt_append(line, sizeof line, &n,
                  "%s/v1/rerank -d '{\"query\": \"sky\", \"documents\": [\"blue\", \"green\"]}'",
                  url);
    else if (makes_vectors(s))
        vt_append(line, sizeof line, &n, "%s/v1/embeddings -d '{\"input\": \"The sky\"}'", url);
    else if (s->model->chat_template)
        vt_append(line, sizeof line, &n,
                  "%s/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
                  "\"Why is the sky blue?\"}]}'",
                  url);
    else
        vt_append(line, sizeof line, &n,
                  "%s/v1/completions -d '{\"prompt\": \"The sky is blue because\"}'", url);
    say(s, line);
}

/* "ready after 0.42 s: http://127.0.0.1:8000 serves SmolLM2: 32768 tokens of KV ...", and memory */
static void announce(const vt_server *s, const char *where)
{
    char line[512];
    vt_stats st;
    if (vt_engine_get_stats(s->engine, &st, NULL) != VT_OK)
        return;
    size_t n = 0;
    if (s->words && isfinite(s->words->load_s))
        vt_append(line, sizeof line, &n, "ready after %.2f s: ", s->words->load_s);
    vt_append(line, sizeof line, &n,
              "%s serves %s: %lld tokens of KV in %d pages, contexts to %d tokens", where,
              s->model_name, (long long)st.pages * st.page_size, st.pages,
              vt_engine_max_context(s->engine));
    say(s, line);
    announce_memory(s, &st);
    announce_first_steps(s, where);
}

/* ---- the end ---- */

static void stop_if_drained(void *server)
{
    vt_server *s = server;
    if (s->draining && vt_web_drained(s->web) && s->n_generations == 0)
        vt_web_stop(s->web);
}

static void drain_over(void *server)
{
    vt_server *s = server;
    char line[128];
    snprintf(line, sizeof line, "drain-timeout is over: %d requests are cut off", s->n_generations);
    say(s, line);
    s->cut_off = true;
    vt_web_stop(s->web);
}

/* No further requests; the server ends when those under way have their answers, or at the end of
 * drain-timeout. */
static void begin_drain(vt_server *s)
{
    s->draining = true;
    vt_web_drain(s->web);
    s->poll = vt_web_timer_new(s->web, 0.05, false, stop_if_drained, s);
    s->deadline = vt_web_timer_new(s->web, vt_options_float(s->options, "drain-timeout"), true,
                                   drain_over, s);
    if (!s->poll || !s->deadline)
        vt_web_stop(s->web);
}

/* A lost device stays lost: the process ends with an error, so that whoever watches it starts a new
 * one. The requests have had their errors; their answers may leave. */
static void watch_device(void *server)
{
    vt_server *s = server;
    vt_engine_stats st;
    vt_engine_copy_stats(s->engine, &st);
    if (!st.lost || s->lost)
        return;
    s->lost = true;
    say(s, "the device is lost: the server ends");
    if (!s->draining)
        begin_drain(s);
}

static void on_signal(void *server, int signal)
{
    vt_server *s = server;
    char line[128];
    (void)signal;
    if (s->draining) {
        s->cut_off = s->n_generations > 0;
        vt_web_stop(s->web);
        return;
    }
    snprintf(line, sizeof line, "draining: %d requests under way", s->n_generations);
    say(s, line);
    begin_drain(s);
}

static void on_dump(void *server, int signal)
{
    (void)signal;
    server_dumps_ask(((vt_server *)server)->dumps);
}

static void release(vt_server *s)
{
    vt_web_timer_free(s->watch);
    vt_web_timer_free(s->poll);
    vt_web_timer_free(s->deadline);
    generation_abort_all(s);
    server_live_stop(s);
    vt_engine_stop(s->engine);
    server_work_free(s->work);
    s->work = NULL;
    vt_engine_end_requests(s->engine);
    server_step_log_stop(s->step_log);
    vt_web_free(s->web);
    server_live_free(s);
    generation_release_all(s);
    server_events_free(s->events);
    server_otlp_free(s->otlp);
    server_step_log_free(s->step_log);
    server_log_free(s->log);
    free(s->list_name);
    free(s->metrics);
    free(s->stories);
    free(s->dumps);
}

vt_status vt_serve(const vt_model *m, vt_engine *e, const vt_options *o,
                   const server_key_sets *keys, const vt_serve_words *words, vt_err *err)
{
    char where[256];
    vt_server s = {.options = o,
                   .model = m,
                   .engine = e,
                   .keys = keys->users,
                   .admin_keys = keys->admins,
                   .words = words,
                   .next_id = vt_hash_seed()};
    /* Making a story takes blocks of some MB. By default glibc keeps such blocks for later once a
     * few were freed: 47 MB for each helper thread. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    const char *name = vt_options_get(o, "served-model-name");
    s.model_name = name ? name : vt_model_name(m);
    if (vt_lora_find(m, s.model_name) > 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "served-model-name is '%s', as an adapter (lora) is called", s.model_name);
    s.owned_by = vt_options_get(o, "owned-by");
    s.request_timeout_s = vt_options_float(o, "request-timeout");
    read_defaults(&s);
    vt_status status = start(&s, err);
    if (status == VT_OK)
        status = vt_web_on_signal(s.web, SIGTERM, on_signal, &s, err);
    if (status == VT_OK)
        status = vt_web_on_signal(s.web, SIGINT, on_signal, &s, err);
    if (status == VT_OK)
        status = vt_web_on_signal(s.web, SIGUSR2, on_dump, &s, err);
    if (status == VT_OK)
        status = listen_on(&s, where, sizeof where, err);
    if (status == VT_OK) {
        choose_host_check(&s);
        s.ready_ns = vt_now_ns();
        s.started_s = (int64_t)time(NULL);
        announce(&s, where);
        warn_of_strangers(&s);
        s.watch = vt_web_timer_new(s.web, 0.5, false, watch_device, &s);
        status = vt_web_run(s.web, err);
    }
    if (status == VT_OK && s.lost)
        status = vt_fail(err, VT_ERR_DEVICE, "the device is lost: start the server again");
    if (status == VT_OK && s.cut_off)
        status = vt_fail(err, VT_ERR_IO, "requests were cut off by the end of the server");
    release(&s);
    return status;
}
