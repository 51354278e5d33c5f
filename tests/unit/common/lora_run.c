#include "lora_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "engine/engine.h"
#include "engine_run.h"

void lora_read_golden(const char *name, lora_golden *g)
{
    char path[256];
    snprintf(path, sizeof path, LORA_GOLDEN "%s/golden.bin", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&g->n, sizeof g->n, 1, f), 1);
    assert_in_range(g->n, 2, LORA_MOST);
    assert_int_equal(fread(g->ids, sizeof *g->ids, (size_t)g->n, f), g->n);
    assert_int_equal(fread(g->logprob, sizeof *g->logprob, (size_t)g->n - 1, f), g->n - 1);
    fclose(f);
}

static void hear(void *user, const vt_event *e)
{
    lora_heard *h = user;
    bool scores = e->completion_tokens == 0 && e->logprobs;
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (scores)
            h->score[h->n_scores++] = e->logprobs[i].logprob;
        else
            h->token[h->n_tokens++] = e->tokens[i];
    h->cached = e->cached_tokens;
    h->finish = (int32_t)e->finish;
}

vt_request_params lora_ask(const lora_golden *g, const char *adapter, bool scores, lora_heard *h)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = g->ids;
    p.n_prompt = g->n;
    p.max_tokens = LORA_TOKENS;
    p.ignore_eos = true;
    p.prompt_logprobs = scores;
    p.logprobs = scores ? 0 : -1;
    p.adapter = adapter;
    p.callback = hear;
    p.user = h;
    *h = (lora_heard){0};
    return p;
}

double lora_worst(const lora_golden *g, const lora_heard *h)
{
    double worst = 0;
    assert_int_equal(h->n_scores, g->n - 1);
    for (int32_t i = 0; i < h->n_scores; i++)
        worst = fmax(worst, fabs((double)h->score[i] - (double)g->logprob[i]));
    return worst;
}

void lora_compare_alone(vt_engine *e, const char *const *adapter, int32_t n)
{
    enum { MOST = 8 };
    lora_golden g[MOST];
    lora_heard alone[MOST], together[MOST];
    assert_in_range(n, 2, MOST);
    for (int32_t i = 0; i < n; i++) {
        lora_read_golden(i % 2 ? "llama-all" : "llama-patterns", &g[i]);
        g[i].n -= 3 * i;
        vt_request_params p = lora_ask(&g[i], adapter[i], true, &alone[i]);
        engine_submit(e, &p);
        engine_run(e);
        vt_engine_flush_cache(e);
    }
    for (int32_t i = 0; i < n; i++) {
        vt_request_params p = lora_ask(&g[i], adapter[i], true, &together[i]);
        engine_submit(e, &p);
    }
    engine_run(e);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(together[i].n_tokens, LORA_TOKENS);
        assert_memory_equal(together[i].token, alone[i].token, sizeof alone[i].token);
        assert_memory_equal(together[i].score, alone[i].score, sizeof alone[i].score);
    }
    vt_engine_flush_cache(e);
}
