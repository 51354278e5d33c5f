/* Lines of batch files (openai/batch.h): whatever the bytes, a request within its limits or one
 * sentence; and whatever the answer, a result that is JSON and can be read back. The text of the
 * answer is the line itself, so that results hold all kinds of bytes. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "openai/batch.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 1024 };

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* A model with a tokenizer and a template and nothing else; made once. */
static const vt_model *model(void)
{
    static vt_model m = {.name = (char *)(uintptr_t) "fuzz",
                         .path = (char *)(uintptr_t) "/a/fuzz.gguf"};
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

/* Fails unless the bytes are one JSON value, as far as a reader other than ours can tell. */
static void must_be_json(const vt_buf *text)
{
    must(!text->failed);
    json_t *j = json_loadb(text->data, text->len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    must(json_is_object(j));
    json_decref(j);
}

static void check_result(const char *id, const vt_openai_reply *reply, const vt_openai_request *q,
                         const vt_openai_error *e)
{
    vt_buf out = {0};
    vt_openai_result r = {0};
    must(vt_openai_result_write(id, reply, q, e, &out, NULL) == VT_OK);
    must(out.data[out.len - 1] == '\n' && !memchr(out.data, '\n', out.len - 1));
    must(vt_openai_result_begins(out.data, out.len) && vt_openai_result_begins(out.data, 3));
    must_be_json(&out);
    must(vt_openai_result_read(out.data, out.len - 1, &r));
    must(r.http == (e->http ? e->http : 200) && strcmp(r.custom_id.data, id) == 0);
    must(!vt_openai_result_read(out.data, out.len - 2, &r));
    vt_openai_result_release(&r);
    vt_buf_release(&out);
}

/* One event for each choice that brings two tokens and ends it. */
static void answer(vt_openai_reply *reply, const uint8_t *data, size_t size)
{
    int32_t token[2] = {data[0], VOCAB - 1 - data[size - 1]};
    vt_token_logprob own[2], top[2 * 20];
    for (int i = 0; i < 2 * 20; i++)
        top[i] = (vt_token_logprob){i % 3 == 2 ? -1 : i * data[0] % VOCAB, -0.5f * (float)i};
    for (int i = 0; i < 2; i++)
        own[i] = (vt_token_logprob){token[i], i ? -1.0f / 0.0f : -1};
    for (int32_t i = 0; i < reply->n; i++) {
        vt_event e = {.sample = i % reply->n_each,
                      .tokens = token,
                      .n_tokens = 2,
                      .text = (const char *)data,
                      .text_len = size < 200 ? size : 200,
                      .logprobs = reply->n_top >= 0 ? own : NULL,
                      .top_logprobs = reply->n_top > 0 ? top : NULL,
                      .n_top = reply->n_top > 0 ? reply->n_top : 0,
                      .finish = VT_FINISH_LENGTH,
                      .prompt_tokens = 1,
                      .completion_tokens = 2};
        vt_buf chunk = {0};
        vt_json w;
        vt_json_begin(&w, &chunk, -1);
        vt_openai_chunk_write(reply, i / reply->n_each, &e, &w);
        must(vt_json_end(&w));
        must_be_json(&chunk);
        vt_buf_release(&chunk);
        vt_openai_reply_event(reply, i / reply->n_each, &e);
    }
    must(reply->n_open == 0 && !reply->error.http);
}

static void check_request(const vt_openai_line *l, const uint8_t *data, size_t size)
{
    vt_openai_defaults d;
    vt_openai_request r;
    vt_openai_reply reply;
    vt_openai_error e = {0};
    vt_openai_defaults_init(&d);
    d.may_stream = size % 2;
    if (vt_openai_request_read_as(l->body, l->form, model(), &d, &r, &e) != VT_OK) {
        must(e.http >= 400 && e.message[0]);
        check_result(l->custom_id, NULL, NULL, &e);
        vt_openai_request_release(&r);
        return;
    }
    must(!e.http && r.p.n >= 1 && r.p.n <= 128 && r.p.max_tokens >= 0 && r.p.logprobs <= 20);
    must(r.n_prompts >= 1 && r.n_prompts * r.p.n <= VT_OPENAI_MAX_CHOICES);
    for (int32_t k = 0; k < r.n_prompts; k++)
        for (int32_t i = 0; i < r.prompt[k].n; i++)
            must(r.prompt[k].ids[i] >= 0 && r.prompt[k].ids[i] < VOCAB);
    must(vt_openai_reply_init(&reply, &r, model(), l->custom_id, NULL) == VT_OK);
    answer(&reply, data, size);
    check_result(l->custom_id, &reply, &r, &e);
    vt_openai_reply_release(&reply);
    vt_openai_request_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_openai_line l;
    vt_openai_result r = {0};
    vt_err err = {0};
    if (size == 0)
        return 0;
    if (vt_openai_result_read((const char *)data, size, &r))
        must(r.custom_id.len > 0 && r.http >= 0 && r.http <= 999);
    vt_openai_result_release(&r);
    if (vt_openai_line_read((const char *)data, size, &l, &err) != VT_OK)
        must(err.message[0] != '\0');
    else if (l.body)
        check_request(&l, data, size);
    else
        must(l.error.http == 400 && l.error.message[0]);
    vt_openai_line_release(&l);
    return 0;
}
