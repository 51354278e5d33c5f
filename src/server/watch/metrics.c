/* /metrics: the server's counters and the engine's, under this program's names. docs/metrics.md
 * lists them. A scrape copies the engine's numbers once, so that they belong together. */
#include "server/watch/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/end_reason.h"
#include "ops/comm.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "server/watch/otlp.h"

void server_metrics_init(server_metrics *m)
{
    *m = (server_metrics){0};
    m->itl.bounds = &server_gap_bounds;
    m->ttft.bounds = m->e2e.bounds = m->queue.bounds = m->read.bounds = &server_time_bounds;
    m->slowest_mask.bounds = &server_mask_bounds;
    m->prompt.bounds = m->output.bounds = &server_token_bounds;
}

void server_metrics_http(server_metrics *m, const char *path, int status)
{
    int32_t i = 0;
    while (i < m->n_http && (m->http[i].path != path || m->http[i].status != status))
        i++;
    if (i == SERVER_MAX_HTTP_COUNTS)
        i--; /* paths and statuses are ours: they do not come to so many */
    else if (i == m->n_http)
        m->http[m->n_http++] = (server_http_count){.path = path, .status = status};
    m->http[i].n++;
}

void server_metrics_end(server_metrics *m, const server_record *r)
{
    const generation *g = r->generation;
    m->finished[r->finish]++;
    if (g->n_submitted == 0)
        return;
    server_exemplar of;
    server_exemplar_of(g, &of);
    server_observe_of(&m->read, g->at.submitted - g->at.began, 1, &of);
    m->prompt_tokens += (uint64_t)g->reply.prompt_tokens;
    m->cached_tokens += (uint64_t)g->reply.cached_tokens;
    if (r->queue_ns >= 0)
        server_observe_of(&m->queue, r->queue_ns, 1, &of);
    if (g->n_masks > 0)
        server_observe_of(&m->slowest_mask, g->slowest_mask_ns, 1, &of);
    if (r->finish > SERVER_LENGTH)
        return;
    server_observe_of(&m->e2e, r->end_ns - r->began_ns, 1, &of);
    server_observe_of(&m->prompt, g->reply.prompt_tokens, 1, &of);
    server_observe_of(&m->output, g->reply.completion_tokens, 1, &of);
}

/* ---- writing ---- */

static void write_histogram(server_exposition *w, const char *name, const char *help,
                            const server_histogram *h)
{
    server_family(w, SERVER_HISTOGRAM, name, help);
    server_histogram_samples(w, h);
}

static void write_requests(server_exposition *w, const server_scrape *c)
{
    const server_metrics *m = c->metrics;
    server_family(w, SERVER_COUNTER, "vitrine:requests",
                  "Completions and chats that have ended, by how.");
    for (int i = 0; i < SERVER_FINISHES; i++)
        server_sample(w, (double)m->finished[i], "finish", server_finish_names[i], NULL);
    server_metric(w, SERVER_GAUGE, "vitrine:requests_open",
                  "Completions and chats that are being read, generated or answered.",
                  c->server->n_generations);
    server_metric(w, SERVER_COUNTER, "vitrine:prompt_tokens",
                  "Prompt tokens of requests that have ended.", (double)m->prompt_tokens);
    server_metric(w, SERVER_COUNTER, "vitrine:cached_tokens",
                  "Prompt tokens of these that the prefix cache had.", (double)m->cached_tokens);
    server_metric(w, SERVER_COUNTER, "vitrine:generated_tokens",
                  "Tokens generated, open requests' too.", (double)m->output_tokens);
    write_histogram(w, "vitrine:time_to_first_token_seconds",
                    "From a request's first byte to its first token.", &m->ttft);
    write_histogram(w, "vitrine:inter_token_latency_seconds",
                    "Between two tokens of one completion, as the device made them.", &m->itl);
    write_histogram(w, "vitrine:e2e_latency_seconds",
                    "From a request's first byte to its end, where it finished by itself.",
                    &m->e2e);
    write_histogram(w, "vitrine:read_seconds",
                    "From a request's first byte to its submission: reading, template, tokens.",
                    &m->read);
    write_histogram(w, "vitrine:queue_seconds", "From submission to the first step's batch.",
                    &m->queue);
    write_histogram(w, "vitrine:request_prompt_tokens", "Prompt tokens of a request.", &m->prompt);
    write_histogram(w, "vitrine:request_generated_tokens", "Generated tokens of a request.",
                    &m->output);
}

static void write_batch(server_exposition *w, const vt_engine_stats *e)
{
    server_metric(w, SERVER_GAUGE, "vitrine:sequences_running", "Sequences in the batch.",
                  e->n_running);
    server_metric(w, SERVER_GAUGE, "vitrine:sequences_waiting", "Sequences in the queue.",
                  e->n_waiting);
    server_family(w, SERVER_COUNTER, "vitrine:sequences",
                  "Sequences that have ended, by how; a request with n choices has n.");
    for (int i = VT_FINISH_STOP; i <= VT_FINISH_ERROR; i++)
        server_sample(w, (double)e->finished[i], "finish", vt_finish_name((vt_finish)i), NULL);
    server_family(w, SERVER_COUNTER, "vitrine:sequence_ends",
                  "The same, by the reason more closely.");
    for (int i = VT_END_NONE + 1; i < VT_END_REASONS; i++)
        server_sample(w, (double)e->ended[i], "reason", vt_end_reason_name((vt_end_reason)i), NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:steps", "Forward passes.", (double)e->sched.steps);
    server_family(w, SERVER_COUNTER, "vitrine:step_tokens",
                  "Tokens computed in steps; divided by steps: the mean batch.");
    server_sample(w, (double)e->sched.prefill_tokens, "phase", "prefill", NULL);
    server_sample(w, (double)e->sched.decode_tokens, "phase", "decode", NULL);
    server_family(w, SERVER_COUNTER, "vitrine:step_seconds",
                  "Time of steps: planning them, waiting for the device, publishing tokens.");
    server_sample(w, (double)e->schedule_ns * 1e-9, "part", "schedule", NULL);
    server_sample(w, (double)e->device_ns * 1e-9, "part", "device", NULL);
    server_sample(w, (double)e->publish_ns * 1e-9, "part", "publish", NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:retractions",
                  "Sequences put back into the queue because KV pages ran out.",
                  (double)e->sched.retracted);
    server_family(w, SERVER_COUNTER, "vitrine:forced_tokens",
                  "Tokens that a grammar left no choice of, computed several a step.");
    server_sample(w, (double)e->sched.forced_tokens, NULL);
    server_family(w, SERVER_COUNTER, "vitrine:draft_tokens",
                  "Guessed tokens that steps verified, by whether they were right.");
    server_sample(w, (double)e->sched.draft_accepted, "verdict", "accepted", NULL);
    server_sample(w, (double)(e->sched.draft_tokens - e->sched.draft_accepted), "verdict",
                  "rejected", NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:step_failures", "Steps that failed on the device.",
                  (double)e->sched.faults);
}

static void write_recorder(server_exposition *w, const vt_engine_stats *e)
{
    server_metric(w, SERVER_GAUGE, "vitrine:recorder_bytes",
                  "Memory that the recording of requests and steps has come to use.",
                  (double)e->recorder_bytes);
}

/* Writes what each rank has and how long it waited; nothing where one rank runs alone. */
static void write_ranks(server_exposition *w, const vt_executor *x)
{
    vt_rank_use rank[VT_MAX_RANKS];
    char label[VT_MAX_RANKS][8];
    int32_t n = x->ranks ? x->ranks(x, rank, VT_MAX_RANKS) : 1;
    for (int32_t r = 0; r < n; r++)
        snprintf(label[r], sizeof label[r], "%d", (uint16_t)r);
    if (n < 2)
        return;
    server_family(w, SERVER_GAUGE, "vitrine:rank_weight_bytes",
                  "Weights of a rank, in the layout of its kernels.");
    for (int32_t r = 0; r < n; r++)
        server_sample(w, (double)rank[r].weight_bytes, "rank", label[r], NULL);
    server_family(w, SERVER_GAUGE, "vitrine:rank_kv_bytes", "KV pages of a rank.");
    for (int32_t r = 0; r < n; r++)
        server_sample(w, (double)rank[r].kv_bytes, "rank", label[r], NULL);
    if (rank[0].wait_ns < 0) /* GPUs whose kernels are not stamped */
        return;
    bool stamped = rank[0].wait_steps >= 0;
    server_family(w, SERVER_COUNTER,
                  stamped ? "vitrine:rank_stamped_wait_seconds" : "vitrine:rank_wait_seconds",
                  "Time for which a rank waited in communication calls for other ranks.");
    for (int32_t r = 0; r < n; r++)
        server_sample(w, (double)rank[r].wait_ns * 1e-9, "rank", label[r], NULL);
    if (!stamped)
        return;
    server_family(w, SERVER_COUNTER, "vitrine:rank_stamped_steps",
                  "Steps of which rank_stamped_wait_seconds is the wait.");
    for (int32_t r = 0; r < n; r++)
        server_sample(w, (double)rank[r].wait_steps, "rank", label[r], NULL);
}

/* Looking walks malloc's lists under its locks, so clients that ask all the time get an older
 * answer. */
static vt_malloc_use malloc_use(server_metrics *m)
{
    static const int64_t keep_ns = 2000000000;
    int64_t now = vt_now_ns();
    if (m->malloc_ns == 0 || now - m->malloc_ns > keep_ns) {
        m->malloc = vt_malloc_look();
        m->malloc_ns = now;
    }
    return m->malloc;
}

/* Writes what grows while a server meets new shapes of steps, and malloc's heaps: so that whoever
 * sees the process grow can tell what grew. */
static void write_held(server_exposition *w, server_metrics *m, const vt_executor_held *h)
{
    vt_malloc_use use = malloc_use(m);
    server_metric(w, SERVER_GAUGE, "vitrine:gpu_graphs", "CUDA graphs that are kept.", h->graphs);
    server_metric(w, SERVER_COUNTER, "vitrine:gpu_graphs_captured", "CUDA graphs captured.",
                  (double)h->captures);
    server_metric(w, SERVER_GAUGE, "vitrine:gpu_graph_host_bytes",
                  "Host memory that the driver keeps for the CUDA graphs.",
                  (double)h->graph_host_bytes);
    server_metric(w, SERVER_GAUGE, "vitrine:gpu_kernels", "GPU kernels compiled and loaded.",
                  h->kernels);
    server_metric(w, SERVER_GAUGE, "vitrine:gpu_library_shapes",
                  "Shapes of products for which cuBLASLt was asked for an algorithm.",
                  h->algorithms);
    server_family(w, SERVER_GAUGE, "vitrine:malloc_bytes",
                  "Memory of malloc: handed out, free in its heaps, mapped for single blocks.");
    server_sample(w, (double)use.used, "state", "used", NULL);
    server_sample(w, (double)use.free, "state", "free", NULL);
    server_sample(w, (double)use.mapped, "state", "mapped", NULL);
}

/* Grammars, and the masks of the answers that followed one. */
static void write_grammars(server_exposition *w, const server_scrape *c)
{
    const vt_engine_stats *e = &c->engine;
    const vt_grammar_store_stats *g = &e->grammars;
    server_family(w, SERVER_COUNTER, "vitrine:grammars",
                  "Grammars that requests came with, by whether they had been compiled before.");
    server_sample(w, (double)g->n_compiled, "how", "compiled", NULL);
    server_sample(w, (double)g->n_refused, "how", "refused", NULL);
    server_sample(w, (double)g->n_found, "how", "found", NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:grammar_compile_seconds",
                  "Time of compiling grammars.", (double)g->compile_ns * 1e-9);
    server_metric(w, SERVER_GAUGE, "vitrine:grammar_bytes", "Memory of compiled grammars.",
                  (double)g->bytes);
    server_family(w, SERVER_COUNTER, "vitrine:masks",
                  "Masks of the next token, by whether they had been made before.");
    server_sample(w, (double)e->masks.n_new, "how", "made", NULL);
    server_sample(w, (double)(e->masks.n - e->masks.n_new), "how", "found", NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:mask_seconds", "Time of masks, for which steps wait.",
                  (double)e->masks.ns * 1e-9);
    server_metric(w, SERVER_COUNTER, "vitrine:late_masks",
                  "Masks that took long, for which only their sequence waited.",
                  (double)e->sched.late_masks);
    write_histogram(w, "vitrine:slowest_mask_seconds", "The slowest mask of a request.",
                    &c->metrics->slowest_mask);
}

static void write_cache(server_exposition *w, const vt_engine_stats *e)
{
    static const char *const cause[VT_EVICT_CAUSES] = {"admit", "grow", "covered", "flush"};
    char page[24], pages[24];
    server_family(w, SERVER_GAUGE, "vitrine:kv_pages", "KV pages by what holds them.");
    server_sample(w, e->pages_held, "state", "used", NULL);
    server_sample(w, e->pages_cached, "state", "cached", NULL);
    server_sample(w, e->pages_free, "state", "free", NULL);
    server_metric(w, SERVER_GAUGE, "vitrine:kv_usage_ratio",
                  "Share of the KV pages that running sequences use, 0 to 1.",
                  e->pages > 0 ? (double)e->pages_held / e->pages : 0);
    snprintf(page, sizeof page, "%d", e->page_size);
    snprintf(pages, sizeof pages, "%d", e->pages);
    server_family(w, SERVER_GAUGE, "vitrine:cache_config_info",
                  "Sizes of the KV cache, as labels.");
    server_sample(w, 1, "page_size", page, "num_pages", pages, NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:cache_lookup_tokens",
                  "Prompt tokens looked up in the prefix cache.", (double)e->cache.lookup_tokens);
    server_family(
        w, SERVER_COUNTER, "vitrine:cache_hit_tokens",
        "Prompt tokens that it had: in pages shared whole, or copied from a part of one.");
    server_sample(w, (double)e->cache.hit_tokens, "how", "shared", NULL);
    server_sample(w, (double)e->cache.copied_tokens, "how", "copied", NULL);
    server_family(w, SERVER_COUNTER, "vitrine:cache_evicted_pages",
                  "Cached pages evicted, by why.");
    for (int i = 0; i < VT_EVICT_CAUSES; i++)
        server_sample(w, (double)e->cache.evicted_pages[i], "cause", cause[i], NULL);
    server_metric(w, SERVER_COUNTER, "vitrine:cache_kept_states",
                  "Snapshots of sequence state that the prefix cache took in.",
                  (double)e->cache.kept_states);
    server_metric(w, SERVER_COUNTER, "vitrine:cache_evicted_states",
                  "Snapshots evicted because a sequence needed the slot.",
                  (double)e->cache.evicted_states);
}

static void write_dumps(server_exposition *w, const server_dumps *d)
{
    if (d->has_slo) {
        server_family(w, SERVER_COUNTER, "vitrine:slo_missed",
                      "Requests that have ended beyond this limit of --slo.");
        for (int i = 0; i < SERVER_SLOS; i++)
            server_sample(w, (double)d->missed[i], "limit", server_slo_names[i], NULL);
    }
    server_family(w, SERVER_COUNTER, "vitrine:story_files",
                  "Stories written upon SIGUSR2 and of requests beyond a limit; skipped: too soon "
                  "after another.");
    server_sample(w, (double)d->written, "result", "written", NULL);
    server_sample(w, (double)d->failed, "result", "failed", NULL);
    server_sample(w, (double)d->skipped, "result", "skipped", NULL);
}

static void write_http(server_exposition *w, const server_scrape *c)
{
    const server_metrics *m = c->metrics;
    vt_web_totals t;
    char status[16];
    vt_web_get_totals(c->server->web, &t);
    server_family(w, SERVER_COUNTER, "vitrine:http_requests",
                  "HTTP requests by route and status; status 0: the client left unanswered.");
    for (int32_t i = 0; i < m->n_http; i++) {
        snprintf(status, sizeof status, "%d", m->http[i].status);
        server_sample(w, (double)m->http[i].n, "path", m->http[i].path, "status", status, NULL);
    }
    server_metric(w, SERVER_GAUGE, "vitrine:http_connections", "Clients connected.",
                  vt_web_connections(c->server->web));
    server_family(w, SERVER_COUNTER, "vitrine:http_connections_opened",
                  "Connections since the start; refused: beyond max-connections.");
    server_sample(w, (double)(t.connections - t.refused_connections), "result", "accepted", NULL);
    server_sample(w, (double)t.refused_connections, "result", "refused", NULL);
    server_family(w, SERVER_COUNTER, "vitrine:http_bytes", "Bytes of requests and answers.");
    server_sample(w, (double)t.bytes_in, "direction", "in", NULL);
    server_sample(w, (double)t.bytes_out, "direction", "out", NULL);
    if (c->server->otlp) {
        server_otlp_counts spans;
        server_otlp_get_counts(c->server->otlp, &spans);
        server_family(w, SERVER_COUNTER, "vitrine:otlp_spans", "Spans for the collector.");
        server_sample(w, (double)spans.sent, "result", "sent", NULL);
        server_sample(w, (double)spans.dropped, "result", "dropped", NULL);
        server_sample(w, (double)spans.failed, "result", "failed", NULL);
    }
}

void server_show_metrics(vt_server *s, vt_exchange *x)
{
    vt_buf text = {0};
    server_scrape c = {.server = s, .metrics = s->metrics};
    server_exposition w = {
        .out = &text,
        .open = server_accepts_openmetrics(vt_http_find(vt_web_request(x), "accept"))};
    vt_engine_copy_stats(s->engine, &c.engine);
    server_family(&w, SERVER_GAUGE, "vitrine:build_info", "The program's version, as a label.");
    server_sample(&w, 1, "version", vt_version(), "model", s->model_name, NULL);
    server_metric(&w, SERVER_GAUGE, "vitrine:uptime_seconds", "Since the server began to listen.",
                  (double)(vt_now_ns() - s->ready_ns) * 1e-9);
    write_requests(&w, &c);
    write_batch(&w, &c.engine);
    write_cache(&w, &c.engine);
    write_grammars(&w, &c);
    write_recorder(&w, &c.engine);
    write_held(&w, s->metrics, &c.engine.held);
    write_ranks(&w, vt_engine_executor(s->engine));
    write_http(&w, &c);
    write_dumps(&w, s->dumps);
    if (vt_options_flag(s->options, "metrics-compat")) {
        w.model = s->model_name;
        server_write_compat(&w, &c);
    }
    server_exposition_end(&w);
    if (text.failed)
        server_refuse(x, 500, NULL, "out of memory for the metrics");
    else
        vt_web_reply(x, 200, w.open ? SERVER_OPEN_TYPE : SERVER_TEXT_TYPE, text.data, text.len);
    vt_buf_release(&text);
}
