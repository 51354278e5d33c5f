/* Counters of observed values by size, as Prometheus's histograms are: a scrape reads how many
 * values were at most each bound.
 *
 *   bound      1 ms   2 ms   5 ms ...  more
 *   count[]      3      7      0        1        one bucket a value; a scrape adds them up
 *
 * Values are whole numbers (nanoseconds, tokens), so that an observation is a search among at most
 * 32 bounds and two additions. They belong to one thread. */
#ifndef VT_SERVER_WATCH_HISTOGRAM_H
#define VT_SERVER_WATCH_HISTOGRAM_H

#include <stdint.h>

enum { SERVER_MAX_BOUNDS = 31 };

/* A family's bounds, ascending. `unit` is what one of its exported units is: 1e9 for values in
 * nanoseconds that are exported in seconds. */
typedef struct server_bounds {
    double unit;
    int32_t n;
    int64_t bound[SERVER_MAX_BOUNDS];
} server_bounds;

/* One of the values of a bucket, and the request that it is of: from a slow bucket to a story. */
typedef struct server_exemplar {
    uint64_t story;         /* the request's, for /story/ID; 0: the bucket has none */
    int64_t value, wall_ns; /* and when it was observed, nanoseconds since the epoch */
    char trace_id[33];      /* "": its client sent no traceparent */
} server_exemplar;

typedef struct server_histogram {
    const server_bounds *bounds;
    uint64_t
        count[SERVER_MAX_BOUNDS + 1]; /* values in (bound[i - 1], bound[i]]; then those above */
    uint64_t n;                       /* all of them */
    int64_t sum;
    server_exemplar newest[SERVER_MAX_BOUNDS + 1]; /* of each bucket */
} server_histogram;

/* Which bucket a value belongs to: the first whose bound is at least `value`. */
int32_t server_bucket(const server_bounds *b, int64_t value);
/* Counts a value `times` times. Negative values count as 0: clocks of two threads may disagree. */
void server_observe(server_histogram *h, int64_t value, uint64_t times);
/* The same, of a request: keeps it as its bucket's exemplar. `of`: all but its value. */
void server_observe_of(server_histogram *h, int64_t value, uint64_t times,
                       const server_exemplar *of);

/* 0.1 ms to 10 s, 1 ms to 10 min, 1 us to 100 ms, and 1 to 1,048,576 tokens. */
extern const server_bounds server_gap_bounds, server_time_bounds, server_mask_bounds,
    server_token_bounds;

#endif
