#include "prefix_hits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine_run.h"

enum { MORE = 5, LONGEST = PREFIX_PROMPT + PREFIX_ANSWER + MORE };

typedef struct asking {
    vt_token_logprob *token;
    int32_t n, cached;
    vt_finish finish;
} asking;

static void on_event(void *user, const vt_event *e)
{
    asking *a = user;
    for (int32_t i = 0; i < e->n_tokens; i++)
        a->token[a->n++] = e->logprobs[i];
    a->cached = e->cached_tokens;
    a->finish = e->finish;
}

/* Returns the tokens that the cache had. */
static int32_t ask(vt_engine *e, const int32_t *prompt, int32_t n, vt_token_logprob *token)
{
    vt_request_params p;
    asking a = {.token = token};
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = PREFIX_ANSWER;
    p.ignore_eos = true;
    p.logprobs = 1;
    p.callback = on_event;
    p.user = &a;
    engine_submit(e, &p);
    engine_run(e);
    assert_int_equal(a.finish, VT_FINISH_LENGTH);
    assert_int_equal(a.n, PREFIX_ANSWER);
    return a.cached;
}

/* The prompt of request `k`: the first one's up to where it leaves it, then tokens of its own. */
static int32_t make_prompt(int32_t k, int32_t vocab, const prefix_hits *h, int32_t prompt[LONGEST])
{
    static const int32_t leaves[PREFIX_ASKS] = {PREFIX_PROMPT, PREFIX_PROMPT, 2 * PREFIX_PAGE,
                                                PREFIX_PAGE + 5, PREFIX_PROMPT};
    int32_t n = PREFIX_PROMPT;
    for (int32_t i = 0; i < LONGEST; i++)
        prompt[i] = (i * i * 31 + 5 + (i < leaves[k] ? 0 : 101 * k)) % vocab;
    for (int32_t i = 0; k == PREFIX_ASKS - 1 && i < PREFIX_ANSWER; i++)
        prompt[n++] = h->token[0][i].id;
    return k == PREFIX_ASKS - 1 ? n + MORE : n;
}

void prefix_hits_of(const vt_model *m, const vt_options *o, prefix_hits *out)
{
    int32_t prompt[LONGEST];
    vt_engine *e = engine_open(m, o);
    for (int32_t k = 0; k < PREFIX_ASKS; k++) {
        int32_t n = make_prompt(k, vt_model_vocab_size(m), out, prompt);
        out->cached[k] = ask(e, prompt, n, out->token[k]);
    }
    vt_engine_free(e);
}
