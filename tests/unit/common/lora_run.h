/* Requests with adapters of tests/golden/lora, for tests of whole engines. */
#ifndef VT_TESTS_LORA_RUN_H
#define VT_TESTS_LORA_RUN_H

#include "vitrine.h"

#define LORA_MODELS "tests/golden/models/"
#define LORA_GOLDEN "tests/golden/lora/"

enum { LORA_MOST = 64, LORA_TOKENS = 8 };

/* A prompt, and PEFT's log-probability of each of its tokens behind the first. */
typedef struct lora_golden {
    int32_t n, ids[LORA_MOST];
    float logprob[LORA_MOST];
} lora_golden;

/* What a request was told. */
typedef struct lora_heard {
    float score[LORA_MOST];
    int32_t token[LORA_MOST], n_scores, n_tokens, cached, finish;
} lora_heard;

void lora_read_golden(const char *name, lora_golden *g);
/* A request for LORA_TOKENS greedy tokens, and the scores of its prompt; adapter NULL: none. */
vt_request_params lora_ask(const lora_golden *g, const char *adapter, bool scores, lora_heard *h);
/* The largest difference of a score from PEFT's. */
double lora_worst(const lora_golden *g, const lora_heard *h);
/* Runs n requests, each alone and then all together: bit by bit the same. */
void lora_compare_alone(vt_engine *e, const char *const *adapter, int32_t n);

#endif
