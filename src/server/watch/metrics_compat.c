/* The names under which vLLM and SGLang export the same numbers, for endpoint pickers, load
 * generators and dashboards that know those (option metrics-compat). Only what this engine measures
 * with the same meaning is here. Every sample has a label model_name, as theirs have. */
#include <stdio.h>

#include "server/watch/metrics.h"

static void gauge(server_exposition *w, const char *name, const char *help, double value)
{
    server_metric(w, SERVER_GAUGE, name, help, value);
}

static void counter(server_exposition *w, const char *name, const char *help, uint64_t value)
{
    server_metric(w, SERVER_COUNTER, name, help, (double)value);
}

static void histogram(server_exposition *w, const char *name, const char *help,
                      const server_histogram *h)
{
    server_family(w, SERVER_HISTOGRAM, name, help);
    server_histogram_samples(w, h);
}

static double usage(const vt_engine_stats *e)
{
    return e->pages > 0 ? (double)e->pages_held / e->pages : 0;
}

static void write_vllm(server_exposition *w, const server_scrape *c)
{
    const server_metrics *m = c->metrics;
    const vt_engine_stats *e = &c->engine;
    char size[24], blocks[24];
    gauge(w, "vllm:num_requests_running", "Sequences in the batch.", e->n_running);
    gauge(w, "vllm:num_requests_waiting", "Sequences in the queue.", e->n_waiting);
    gauge(w, "vllm:kv_cache_usage_perc", "Share of the KV pages in use, 0 to 1.", usage(e));
    snprintf(size, sizeof size, "%d", e->page_size);
    snprintf(blocks, sizeof blocks, "%d", e->pages);
    server_family(w, SERVER_GAUGE, "vllm:cache_config_info", "Sizes of the KV cache, as labels.");
    server_sample(w, 1, "block_size", size, "num_gpu_blocks", blocks, NULL);
    counter(w, "vllm:num_preemptions", "Sequences put back into the queue.", e->sched.retracted);
    counter(w, "vllm:prompt_tokens", "Prompt tokens.", m->prompt_tokens);
    counter(w, "vllm:generation_tokens", "Generated tokens.", m->output_tokens);
    counter(w, "vllm:prefix_cache_queries", "Prompt tokens looked up.", e->cache.lookup_tokens);
    counter(w, "vllm:prefix_cache_hits", "Prompt tokens found.",
            e->cache.hit_tokens + e->cache.copied_tokens);
    server_family(w, SERVER_COUNTER, "vllm:request_success", "Requests that finished, by how.");
    server_sample(w, (double)m->finished[SERVER_STOP], "finished_reason", "stop", NULL);
    server_sample(w, (double)m->finished[SERVER_LENGTH], "finished_reason", "length", NULL);
    server_sample(w, (double)m->finished[SERVER_ABORT], "finished_reason", "abort", NULL);
    histogram(w, "vllm:time_to_first_token_seconds", "Time to the first token.", &m->ttft);
    histogram(w, "vllm:inter_token_latency_seconds", "Time between tokens.", &m->itl);
    histogram(w, "vllm:e2e_request_latency_seconds", "Time of a whole request.", &m->e2e);
    histogram(w, "vllm:request_queue_time_seconds", "Time in the queue.", &m->queue);
    histogram(w, "vllm:request_prompt_tokens", "Prompt tokens of a request.", &m->prompt);
    histogram(w, "vllm:request_generation_tokens", "Generated tokens of a request.", &m->output);
}

static void write_sglang(server_exposition *w, const server_scrape *c)
{
    const server_metrics *m = c->metrics;
    const vt_engine_stats *e = &c->engine;
    char size[24], pages[24];
    uint64_t requests = 0;
    for (int i = 0; i < SERVER_REFUSED; i++)
        requests += m->finished[i];
    gauge(w, "sglang:num_running_reqs", "Sequences in the batch.", e->n_running);
    gauge(w, "sglang:num_queue_reqs", "Sequences in the queue.", e->n_waiting);
    gauge(w, "sglang:token_usage", "Share of the KV pages in use, 0 to 1.", usage(e));
    gauge(w, "sglang:num_used_tokens", "Tokens in KV pages in use.",
          (double)e->pages_held * e->page_size);
    gauge(w, "sglang:max_total_num_tokens", "Tokens that the KV pages hold.",
          (double)e->pages * e->page_size);
    gauge(w, "sglang:cache_hit_rate", "Share of the prompt tokens that the prefix cache had.",
          e->cache.lookup_tokens > 0 ? (double)(e->cache.hit_tokens + e->cache.copied_tokens) /
                                           (double)e->cache.lookup_tokens
                                     : 0);
    snprintf(size, sizeof size, "%d", e->page_size);
    snprintf(pages, sizeof pages, "%d", e->pages);
    server_family(w, SERVER_GAUGE, "sglang:cache_config_info", "Sizes of the KV cache, as labels.");
    server_sample(w, 1, "page_size", size, "num_pages", pages, NULL);
    counter(w, "sglang:num_retracted_requests", "Sequences put back into the queue.",
            e->sched.retracted);
    counter(w, "sglang:prompt_tokens", "Prompt tokens.", m->prompt_tokens);
    counter(w, "sglang:generation_tokens", "Generated tokens.", m->output_tokens);
    counter(w, "sglang:cached_tokens", "Prompt tokens that the cache had.", m->cached_tokens);
    counter(w, "sglang:num_requests", "Requests that have ended.", requests);
    counter(w, "sglang:num_aborted_requests", "Requests that were aborted.",
            m->finished[SERVER_ABORT]);
    histogram(w, "sglang:time_to_first_token_seconds", "Time to the first token.", &m->ttft);
    histogram(w, "sglang:inter_token_latency_seconds", "Time between tokens.", &m->itl);
    histogram(w, "sglang:e2e_request_latency_seconds", "Time of a whole request.", &m->e2e);
    histogram(w, "sglang:queue_time_seconds", "Time in the queue.", &m->queue);
}

void server_write_compat(server_exposition *w, const server_scrape *c)
{
    write_vllm(w, c);
    write_sglang(w, c);
}
