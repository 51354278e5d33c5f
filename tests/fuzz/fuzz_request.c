/* Bodies of requests: the first byte says of which form, the rest is the JSON. Whatever the bytes,
 * a request within its limits or one sentence; and whatever the answer, JSON that says it: whole,
 * in chunks, and in the form of /generate. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "openai/json_load.h"
#include "openai/reply.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 1024 };

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* A model with a tokenizer and a template and nothing else; made once. */
static const vt_model *model(void)
{
    static vt_model m = {.name = (char *)(uintptr_t) "fuzz", .path = (char *)(uintptr_t) "/a/fuzz"};
    if (!m.tokenizer) {
        must(vt_tokenizer_synthetic(VOCAB, &m.tokenizer, NULL) == VT_OK);
        must(vt_template_parse("chatml", chatml, sizeof chatml - 1, &m.chat_template, NULL) ==
             VT_OK);
        m.arch.vocab = VOCAB;
        m.arch.max_context = 4096;
        m.bos = -1;
    }
    return &m;
}

static void must_be_json(vt_json *w, vt_buf *text)
{
    must(vt_json_end(w) && !text->failed);
    json_t *j = json_loadb(text->data, text->len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    must(json_is_object(j));
    json_decref(j);
    vt_buf_release(text);
}

static void check_parameters(const vt_openai_request *r)
{
    const vt_request_params *p = &r->p;
    must(p->n >= 1 && p->n <= 128 && p->max_tokens >= 0 && p->min_tokens >= 0);
    must(p->min_tokens <= p->max_tokens && p->logprobs >= -1 && p->logprobs <= 20);
    must(p->max_tokens > 0 || p->prompt_logprobs);
    must(p->temperature >= 0 && p->temperature <= 100 && p->top_p >= 0 && p->top_p <= 1);
    must(p->min_p >= 0 && p->min_p <= 1 && p->top_k >= 0 && p->repetition_penalty > 0);
    must(p->presence_penalty >= -2 && p->presence_penalty <= 2);
    must(p->frequency_penalty >= -2 && p->frequency_penalty <= 2);
    must(p->n_stop >= 0 && p->n_stop <= 64 && p->n_stop_ids >= 0 && p->n_stop_ids <= 64);
    for (int32_t i = 0; i < p->n_stop; i++)
        must(p->stop[i][0] && strlen(p->stop[i]) <= 1024);
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        must(p->stop_ids[i] >= 0 && p->stop_ids[i] < VOCAB);
    for (int32_t i = 0; i < p->n_allowed; i++)
        must(p->allowed[i] >= 0 && p->allowed[i] < VOCAB);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        must(p->logit_bias[i].id >= 0 && p->logit_bias[i].id < VOCAB);
    must(!p->cache_salt || strlen(p->cache_salt) <= 128);
    must(r->n_top <= p->logprobs && r->n_prompt_top <= p->logprobs);
    must(r->n_prompts >= 1 && r->n_prompts * p->n <= VT_OPENAI_MAX_CHOICES);
    for (int32_t k = 0; k < r->n_prompts; k++)
        for (int32_t i = 0; i < r->prompt[k].n; i++)
            must(r->prompt[k].ids[i] >= 0 && r->prompt[k].ids[i] < VOCAB);
}

/* The scores of a prompt: of every token but the first. */
static void score(vt_openai_reply *reply, const vt_openai_request *r, int32_t prompt)
{
    const vt_openai_prompt *p = &r->prompt[prompt];
    vt_token_logprob top[20];
    for (int i = 0; i < 20; i++)
        top[i] = (vt_token_logprob){i % 7 == 6 ? -1 : i * 37 % VOCAB, -0.25f * (float)i};
    for (int32_t i = 1; r->p.prompt_logprobs && i < p->n; i++) {
        vt_token_logprob own = {p->ids[i], -1.5f};
        vt_event e = {.tokens = &p->ids[i],
                      .n_tokens = 1,
                      .logprobs = &own,
                      .top_logprobs = r->p.logprobs > 0 ? top : NULL,
                      .n_top = r->p.logprobs > 0 ? r->p.logprobs : 0,
                      .stop = -1};
        must(vt_openai_is_score(&e));
        vt_openai_reply_event(reply, prompt, &e);
    }
}

static void tell(vt_openai_reply *reply, const vt_openai_request *r, int32_t i, const uint8_t *data,
                 size_t size)
{
    int32_t token = data[size / 2];
    vt_token_logprob own = {token, -1.0f / 0.0f}, top[20];
    for (int k = 0; k < 20; k++)
        top[k] = (vt_token_logprob){k * data[0] % VOCAB, -0.5f * (float)k};
    vt_event e = {.sample = i % reply->n_each,
                  .tokens = &token,
                  .n_tokens = r->p.max_tokens > 0,
                  .text = (const char *)data,
                  .text_len = size < 200 ? size : 200,
                  .logprobs = r->p.logprobs >= 0 ? &own : NULL,
                  .top_logprobs = r->p.logprobs > 0 ? top : NULL,
                  .n_top = r->p.logprobs > 0 ? r->p.logprobs : 0,
                  .finish = size % 3 ? VT_FINISH_STOP : VT_FINISH_LENGTH,
                  .stop = (int32_t)(size % 5) - 1,
                  .prompt_tokens = r->prompt[i / reply->n_each].n,
                  .completion_tokens = r->p.max_tokens > 0};
    vt_buf text = {0};
    vt_json w;
    vt_json_begin(&w, &text, -1);
    vt_openai_chunk_write(reply, i / reply->n_each, &e, &w);
    must_be_json(&w, &text);
    vt_openai_reply_event(reply, i / reply->n_each, &e);
    vt_json_begin(&w, &text, -1);
    vt_generate_choice_open(reply, r, i, "id", &w);
    vt_json_close(&w);
    vt_json_close(&w);
    must_be_json(&w, &text);
}

static void answer(const vt_openai_request *r, const uint8_t *data, size_t size)
{
    vt_openai_reply reply;
    vt_buf text = {0};
    vt_json w;
    must(vt_openai_reply_init(&reply, r, model(), "id", NULL) == VT_OK);
    for (int32_t k = 0; k < r->n_prompts; k++)
        score(&reply, r, k);
    for (int32_t i = 0; i < reply.n; i++)
        tell(&reply, r, i, data, size);
    must(reply.n_open == 0 && !reply.error.http);
    vt_json_begin(&w, &text, -1);
    vt_openai_reply_write(&reply, &w, NULL);
    must_be_json(&w, &text);
    vt_openai_reply_release(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_openai_defaults d;
    vt_openai_request r;
    vt_openai_error e = {0};
    json_t *body;
    if (size < 2)
        return 0;
    vt_openai_form form = (vt_openai_form)(data[0] < 0xF0 ? data[0] % VT_OPENAI_RERANK
                                                          : VT_OPENAI_RERANK + data[0] % 2);
    if (vt_openai_json_load((const char *)data + 1, size - 1, &body, &e) != VT_OK) {
        must(e.http == 400 && e.message[0]);
        return 0;
    }
    const vt_template_limits limits = {.max_steps = 100000};
    vt_openai_defaults_init(&d);
    d.may_stream = true;
    d.limits = &limits;
    if (vt_openai_request_read_as(body, form, model(), &d, &r, &e) != VT_OK) {
        must(e.http >= 400 && e.message[0]);
    } else {
        must(!e.http);
        check_parameters(&r);
        if (form <= VT_OPENAI_GENERATE && r.n_prompts * r.p.n <= 64)
            answer(&r, data, size);
    }
    json_decref(body);
    vt_openai_request_release(&r);
    return 0;
}
