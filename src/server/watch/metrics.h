/* The server's own counters and histograms; /metrics adds the engine's. */
#ifndef VT_SERVER_WATCH_METRICS_H
#define VT_SERVER_WATCH_METRICS_H

#include "base/mem.h"
#include "server/watch/exposition.h"
#include "server/watch/observe.h"

enum { SERVER_MAX_HTTP_COUNTS = 512 };

/* Answers by path and status. */
typedef struct server_http_count {
    const char *path; /* static */
    int status;       /* 0: the client left before an answer began */
    uint64_t n;
} server_http_count;

typedef struct server_metrics {
    server_histogram ttft, itl, e2e, queue, read;
    server_histogram slowest_mask;   /* of a constrained request */
    server_histogram prompt, output; /* tokens of a request */
    uint64_t finished[SERVER_FINISHES];
    uint64_t prompt_tokens, cached_tokens; /* of requests that have ended */
    uint64_t output_tokens;                /* of all, as they are made */
    server_http_count http[SERVER_MAX_HTTP_COUNTS];
    int32_t n_http;
    vt_malloc_use malloc; /* as it was at malloc_ns; 0: nobody has asked yet */
    int64_t malloc_ns;
} server_metrics;

void server_metrics_init(server_metrics *m);
void server_metrics_http(server_metrics *m, const char *path, int status);
void server_metrics_end(server_metrics *m, const server_record *r);

/* The engine's numbers, as one scrape sees them. */
typedef struct server_scrape {
    const vt_server *server;
    const server_metrics *metrics;
    vt_engine_stats engine;
} server_scrape;

/* vLLM's and SGLang's names of the same numbers (metrics_compat.c). */
void server_write_compat(server_exposition *w, const server_scrape *c);

#endif
