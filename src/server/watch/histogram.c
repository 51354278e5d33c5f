#include "server/watch/histogram.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

const server_bounds server_gap_bounds = {
    .unit = 1e9,
    .n = 20,
    .bound = {100 * US, 200 * US, 300 * US,  500 * US, 750 * US,  1 * MS,  2 * MS,
              3 * MS,   5 * MS,   7500 * US, 10 * MS,  15 * MS,   20 * MS, 30 * MS,
              50 * MS,  100 * MS, 250 * MS,  1 * S,    2500 * MS, 10 * S},
};

const server_bounds server_time_bounds = {
    .unit = 1e9,
    .n = 23,
    .bound = {1 * MS,  2 * MS,  3 * MS,   5 * MS,   7500 * US, 10 * MS,  20 * MS, 30 * MS,
              50 * MS, 75 * MS, 100 * MS, 200 * MS, 300 * MS,  500 * MS, 1 * S,   2 * S,
              5 * S,   10 * S,  20 * S,   30 * S,   60 * S,    120 * S,  600 * S},
};

const server_bounds server_mask_bounds = {
    .unit = 1e9,
    .n = 16,
    .bound = {1 * US, 2 * US, 5 * US, 10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US,
              1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS},
};

const server_bounds server_token_bounds = {
    .unit = 1,
    .n = 21,
    .bound = {1,    2,    4,    8,     16,    32,    64,     128,    256,    512,    1024,
              2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576},
};

int32_t server_bucket(const server_bounds *b, int64_t value)
{
    int32_t low = 0, high = b->n; /* the answer is in low .. high */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (b->bound[middle] >= value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void server_observe(server_histogram *h, int64_t value, uint64_t times)
{
    if (value < 0)
        value = 0;
    h->count[server_bucket(h->bounds, value)] += times;
    h->n += times;
    /* a sum that would overflow stays where it is: 292 years of nanoseconds */
    int64_t more;
    if (!__builtin_mul_overflow(value, times, &more))
        (void)(__builtin_add_overflow(h->sum, more, &more) || (h->sum = more));
}

void server_observe_of(server_histogram *h, int64_t value, uint64_t times,
                       const server_exemplar *of)
{
    server_observe(h, value, times);
    if (of->story == 0 || value < 0)
        return;
    server_exemplar *kept = &h->newest[server_bucket(h->bounds, value)];
    *kept = *of;
    kept->value = value;
}
