/* What the prefix cache has of prompts that begin alike, asked for one after another: the same
 * prompt again, one that leaves it at a border of pages, one that leaves it within a page, and one
 * that goes on behind the first answer. */
#ifndef VT_TESTS_PREFIX_HITS_H
#define VT_TESTS_PREFIX_HITS_H

#include "vitrine.h"

enum { PREFIX_ASKS = 5, PREFIX_PAGE = 16, PREFIX_PROMPT = 40, PREFIX_ANSWER = 8 };

typedef struct prefix_hits {
    int32_t cached[PREFIX_ASKS]; /* tokens of each prompt that the cache had */
    vt_token_logprob token[PREFIX_ASKS][PREFIX_ANSWER];
} prefix_hits;

/* Makes an engine of these options and asks it. Answers are greedy. */
void prefix_hits_of(const vt_model *m, const vt_options *o, prefix_hits *out);

#endif
