/* Slow tokens: which gaps between tokens are more than twice the median, and why. */
#ifndef VT_STORY_SLOW_H
#define VT_STORY_SLOW_H

#include "base/json_write.h"
#include "story/record/record.h"

/* Causes that can make a token late. */
typedef enum slow_cause {
    SLOW_CHUNK,      /* prompt tokens of another request in the same step */
    SLOW_RECOMPUTE,  /* the request was retracted and its tokens were computed again */
    SLOW_MASK,       /* the mask of its token took long, and another thread made it */
    SLOW_EVICTION,   /* cached pages were evicted while the step was planned */
    SLOW_BATCH,      /* more sequences, or a larger graph */
    SLOW_TIMED,      /* the step ran call by call, for the story */
    SLOW_OFF_CPU,    /* a thread of the step was ready and had no CPU */
    SLOW_FAULTS,     /* page faults */
    SLOW_CLOCK,      /* the device's clock was lower */
    SLOW_KV_GROWN,   /* memory for more KV pages was mapped */
    SLOW_FIRST_SIZE, /* the first step of its size: a kernel compiled or a graph captured late */
    SLOW_DRAFT,      /* the draft model guessed for longer than usual */
    SLOW_SCHEDULE, /* the engine's thread planned for longer than usual while the device waited, */
    SLOW_PREPARE,  /* prepared or launched a step, */
    SLOW_PUBLISH,  /* made text of tokens or called back, */
    SLOW_OUTSIDE,  /* or did nothing for the engine */
    SLOW_OTHER_STEP, /* a step ran that the request was not in */
    SLOW_UNKNOWN,
    SLOW_CAUSES
} slow_cause;

/* A gap of more than twice the median. */
typedef struct slow_token {
    int32_t token; /* its index in the output: the one that came late */
    double s, excess_s;
    double by_cause_s[SLOW_CAUSES]; /* parts of excess_s; unknown takes the rest */
    slow_cause cause;               /* the largest part */
    uint64_t step;                  /* the evidence for it, and in words: */
    uint64_t request;               /* a chunk's; 0: none */
    char text[128];
} slow_token;

typedef struct slow_tokens {
    double limit_s;    /* gaps above it are slow */
    slow_token *token; /* [n] in their order */
    int32_t n, n_unknown;
    double excess_s, named_s; /* sums; named_s is what causes other than unknown explain */
} slow_tokens;

/* Finds the slow tokens of the story's request: gap_s[n_gaps] are its gaps, p50_s their median.
 * Arrays come from the record's arena. */
vt_status story_find_slow(story_record *r, const double *gap_s, int32_t n_gaps, double p50_s,
                          slow_tokens *out, vt_err *err);
/* Writes "slow_tokens". */
void story_put_slow(vt_json *w, const slow_tokens *s);
const char *slow_cause_name(slow_cause c);

#endif
