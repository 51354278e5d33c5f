/* The newest requests, for /story. */
#ifndef VT_SERVER_WATCH_STORIES_H
#define VT_SERVER_WATCH_STORIES_H

#include "server/watch/observe.h"

enum { SERVER_STORIES = 256 };

typedef struct server_told {
    char id[SERVER_MAX_ID + 1], answer[40];
    vt_request_id story; /* the engine's number of its first prompt; 0: it never got there */
    const char *path;
    int64_t began_ns, total_ns, queue_ns, ttft_ns;
    int32_t n_prompts, prompt_tokens, cached_tokens, output_tokens;
    server_finish finish;
    int status;
} server_told;

typedef struct server_stories {
    server_told told[SERVER_STORIES]; /* a ring: number i is at i % SERVER_STORIES */
    uint64_t n;                       /* ever told */
    bool building;                    /* a story is being built: one at a time */
    int64_t profile_ns;               /* when /start_profile came; 0: no profile runs */
} server_stories;

void server_stories_add(server_stories *t, const server_record *r);

#endif
