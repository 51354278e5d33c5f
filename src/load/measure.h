/* From the results of many requests to percentiles, rates and goodput. */
#ifndef VT_LOAD_MEASURE_H
#define VT_LOAD_MEASURE_H

#include "load/answer.h"

/* Limits that a good request keeps, in seconds; 0: none. */
typedef struct vt_load_slo {
    double ttft, itl, tpot, e2e; /* itl: of the request's longest gap */
} vt_load_slo;

/* "ttft=200,itl=50,tpot=30,e2e=5000": milliseconds. */
vt_status vt_load_slo_parse(const char *text, vt_load_slo *out, vt_err *err);

typedef struct vt_load_spread {
    int64_t n;
    double mean, p50, p90, p99, max; /* seconds; NAN of none */
} vt_load_spread;

typedef struct vt_load_summary {
    int32_t n;                     /* requests that were sent */
    int32_t ended[VT_LOAD_N_ENDS]; /* of them, by vt_load_end */
    vt_load_spread ttft;           /* from when a request was due to its first text */
    vt_load_spread itl;            /* between two pieces of text */
    vt_load_spread tpot;           /* a request's time after its first text, for each later token */
    vt_load_spread e2e;            /* from when a request was due to the end of its answer */
    double late_s;                 /* the longest time between due and sent */
    int64_t prompt_tokens, cached_tokens, output_tokens;
    int32_t by_usage, by_pieces; /* answers whose tokens the server counted; whose pieces we did */
    int32_t n_prompt_known, n_cached_known;
    int32_t n_good; /* whole answers that keep the limits */
    double wall_s, requests_per_s, output_tokens_per_s, total_tokens_per_s, goodput_per_s;
} vt_load_summary;

/* Only whole answers count in times, tokens and rates. Results with begin_ns 0 were
 * never sent. VT_ERR_MEMORY. */
vt_status vt_load_measure(const vt_load_result *result, int32_t n, const float *gap, size_t n_gaps,
                          double wall_s, const vt_load_slo *slo, vt_load_summary *out, vt_err *err);

/* Times of one request in seconds; NAN where it has none. */
double vt_load_ttft(const vt_load_result *r);
double vt_load_tpot(const vt_load_result *r);
double vt_load_e2e(const vt_load_result *r);
/* Output tokens: the server's count, else the pieces. */
int32_t vt_load_tokens(const vt_load_result *r);
bool vt_load_is_good(const vt_load_result *r, const vt_load_slo *slo);

/* The tokens that the k-th turns of all chats had to compute. Means over answers whose server tells
 * counts. */
typedef struct vt_load_turns {
    int32_t n;
    double prompt, cached; /* tokens */
    double fresh; /* prompt tokens that the server has not seen: neither in the prompt of the turn
                     before nor in its answer */
    double ttft_p50; /* seconds */
} vt_load_turns;

/* Results of one session stand together, in the order of their turns. */
vt_status vt_load_measure_turn(const vt_load_result *result, int32_t n, int32_t turn,
                               vt_load_turns *out, vt_err *err);

#endif
