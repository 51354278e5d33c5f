/* Bodies of Anthropic's, OpenAI's Responses and Ollama's requests: the first byte says whose.
 * Whatever the bytes, a body of a chat, which is read as such, or one sentence. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "openai/anthropic.h"
#include "openai/json_load.h"
#include "openai/ollama.h"
#include "openai/request.h"
#include "openai/responses.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 1024 };

static const char template[] =
    "{% for t in tools or [] %}<tool_call>{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n<think>{{ m.reasoning_content }}</think>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

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
        must(vt_template_parse("fuzz", template, sizeof template - 1, &m.chat_template, NULL) ==
             VT_OK);
        m.arch.vocab = VOCAB;
        m.arch.max_context = 4096;
        m.bos = -1;
    }
    return &m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        json_t *(*chat)(const json_t *body, vt_openai_error *e);
        vt_openai_form form;
    } apis[] = {{vt_anthropic_chat, VT_OPENAI_CHAT},  {vt_anthropic_count, VT_OPENAI_TOKENIZE},
                {vt_responses_chat, VT_OPENAI_CHAT},  {vt_ollama_chat, VT_OPENAI_CHAT},
                {vt_ollama_generate, VT_OPENAI_CHAT}, {vt_ollama_embed, VT_OPENAI_EMBEDDINGS}};
    vt_openai_error e = {0};
    vt_openai_defaults d;
    vt_openai_request r = {0};
    json_t *body;
    if (size < 2 || vt_openai_json_load((const char *)data + 1, size - 1, &body, &e) != VT_OK)
        return 0;
    size_t i = data[0] % (sizeof apis / sizeof *apis);
    json_t *chat = apis[i].chat(body, &e);
    must(chat ? !e.http : e.http >= 400 && e.message[0]);
    if (chat) {
        const vt_template_limits limits = {.max_steps = 100000};
        vt_openai_defaults_init(&d);
        d.may_stream = true;
        d.limits = &limits;
        vt_status status = vt_openai_request_read_as(chat, apis[i].form, model(), &d, &r, &e);
        must(status == VT_OK ? !e.http : e.http >= 400 && e.message[0]);
    }
    (void)vt_ollama_only_loads(body);
    json_decref(chat);
    json_decref(body);
    vt_openai_request_release(&r);
    return 0;
}
