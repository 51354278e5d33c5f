/* Bodies of OpenAI requests that are read into the engine's parameters: what holds where a field is
 * left out, what several fields say together, and what is refused with the field's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>

#include "model/model.h"
#include "openai/batch.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum { CONTEXT = 64, VOCAB = 1024 };

static vt_model model;

static int make_model(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor "
                                 "%}{% if shout %}!{% endif %}";
    model = (vt_model){.name = (char *)(uintptr_t) "tiny",
                       .path = (char *)(uintptr_t) "/srv/m/tiny.gguf"};
    model.arch.vocab = VOCAB;
    model.arch.max_context = CONTEXT;
    model.bos = -1;
    bool made = vt_tokenizer_synthetic(VOCAB, &model.tokenizer, NULL) == VT_OK &&
                vt_template_parse("t", source, strlen(source), &model.chat_template, NULL) == VT_OK;
    return made ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    vt_tokenizer_free(model.tokenizer);
    vt_template_free(model.chat_template);
    return 0;
}

static const vt_openai_defaults *defaults(int32_t max_tokens)
{
    static vt_openai_defaults d;
    vt_openai_defaults_init(&d);
    d.may_stream = true;
    d.max_tokens = max_tokens;
    d.model_alias = "/home/me/alias.gguf";
    return &d;
}

static void read_with(const char *body, bool chat, const vt_openai_defaults *d,
                      vt_openai_request *r)
{
    vt_openai_error e = {0};
    json_t *j = json_loads(body, 0, NULL);
    assert_non_null(j);
    if (vt_openai_request_read(j, chat, &model, d, r, &e) != VT_OK)
        fail_msg("%s: %s", body, e.message);
    json_decref(j);
}

#define CHAT(more) "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]" more "}"
#define TEXT(more) "{\"prompt\": [1]" more "}"

static int32_t max_tokens_of(const char *body, bool chat, int32_t otherwise)
{
    vt_openai_request r;
    read_with(body, chat, defaults(otherwise), &r);
    int32_t n = r.p.max_tokens;
    vt_openai_request_release(&r);
    return n;
}

static void test_request_max_tokens_when_left_out_then_16_or_the_whole_context(void **state)
{
    (void)state;
    assert_int_equal(max_tokens_of(TEXT(""), false, 0), 16);
    assert_int_equal(max_tokens_of(CHAT(""), true, 0), CONTEXT);
    assert_int_equal(max_tokens_of(TEXT(""), false, 40), 40);
    assert_int_equal(max_tokens_of(CHAT(""), true, 40), 40);
    assert_int_equal(max_tokens_of(TEXT(", \"max_tokens\": 3"), false, 40), 3);
    assert_int_equal(max_tokens_of(CHAT(", \"max_tokens\": null"), true, 40), 40);
}

static void test_request_max_completion_tokens_when_both_are_given_then_it_wins(void **state)
{
    (void)state;
    assert_int_equal(max_tokens_of(CHAT(", \"max_completion_tokens\": 5"), true, 0), 5);
    assert_int_equal(
        max_tokens_of(CHAT(", \"max_tokens\": 9, \"max_completion_tokens\": 5"), true, 0), 5);
    assert_int_equal(
        max_tokens_of(CHAT(", \"max_completion_tokens\": 5, \"max_tokens\": 3"), true, 0), 5);
}

static void test_request_logprobs_when_chat_then_two_fields_and_else_one(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool chat;
        int32_t want;
    } row[] = {{CHAT(""), true, -1},
               {CHAT(", \"logprobs\": true"), true, 0},
               {CHAT(", \"logprobs\": true, \"top_logprobs\": 4"), true, 4},
               {CHAT(", \"logprobs\": false"), true, -1},
               {TEXT(""), false, -1},
               {TEXT(", \"logprobs\": 0"), false, 0},
               {TEXT(", \"logprobs\": 20"), false, 20},
               {TEXT(", \"logprobs\": false"), false, -1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_openai_request r;
        read_with(row[i].body, row[i].chat, defaults(0), &r);
        assert_int_equal(r.p.logprobs, row[i].want);
        vt_openai_request_release(&r);
    }
}

/* The synthetic tokenizer's ids of ASCII are the characters. */
static void prompt_is(const char *body, const char *text)
{
    vt_openai_request r;
    read_with(body, true, defaults(0), &r);
    assert_int_equal(r.p.n_prompt, strlen(text));
    for (int32_t i = 0; i < r.p.n_prompt; i++)
        assert_int_equal(r.p.prompt[i], text[i]);
    vt_openai_request_release(&r);
}

static void test_request_messages_when_of_text_parts_then_joined_by_newlines(void **state)
{
    (void)state;
    prompt_is(CHAT(""), "u:hi;");
    prompt_is("{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}, {\"role\": \"user\", "
              "\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": "
              "\"b\"}, {\"type\": \"text\", \"text\": \"c\"}]}]}",
              "s:x;u:a\nb\nc;");
    prompt_is(CHAT(", \"chat_template_kwargs\": {\"shout\": true}"), "u:hi;!");
}

static void test_request_role_developer_when_no_role_of_the_template_then_system(void **state)
{
    (void)state;
    prompt_is("{\"messages\": [{\"role\": \"developer\", \"content\": \"x\"}, {\"role\": \"user\", "
              "\"content\": \"hi\"}]}",
              "s:x;u:hi;");
}

static void test_request_whole_numbers_may_have_a_point(void **state)
{
    (void)state;
    vt_openai_request r;
    read_with("{\"prompt\": [1.0, 7], \"max_tokens\": 3.0, \"seed\": -5e0, \"top_k\": -1.0}", false,
              defaults(0), &r);
    assert_int_equal(r.p.prompt[0], 1);
    assert_int_equal(r.p.max_tokens, 3);
    assert_int_equal((int64_t)r.p.seed, -5);
    assert_int_equal(r.p.top_k, 0);
    vt_openai_request_release(&r);
}

static void test_request_model_when_it_has_several_names_then_each_is_known(void **state)
{
    (void)state;
    static const char *const names[] = {
        "", "tiny", "tiny.gguf", "/srv/m/tiny.gguf", "alias", "alias.gguf", "/home/me/alias.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char body[100];
        vt_openai_request r;
        snprintf(body, sizeof body, TEXT(", \"model\": \"%s\""), names[i]);
        read_with(body, false, defaults(0), &r);
        vt_openai_request_release(&r);
    }
}

static void refuse(const char *body, bool chat, int http, const char *param, const char *words)
{
    vt_openai_error e = {0};
    vt_openai_request r;
    json_t *j = json_loads(body, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    assert_int_equal(vt_openai_request_read(j, chat, &model, defaults(0), &r, &e), VT_ERR_USAGE);
    json_decref(j);
    vt_openai_request_release(&r);
    if (e.http != http || strcmp(e.param, param) != 0 || !strstr(e.message, words))
        fail_msg("%s: %d, param %s, \"%s\"", body, e.http, e.param, e.message);
}

/* Reads a body with a text of `len` bytes "a" put into it; the error is in *e. */
static vt_status read_long(vt_openai_form form, const char *body, size_t len, int32_t max_prompt,
                           vt_openai_error *e)
{
    vt_openai_request r;
    vt_openai_defaults d = *defaults(0);
    char *text = malloc(len);
    d.max_prompt = max_prompt;
    memset(text, 'a', len);
    json_t *s = json_stringn(text, len), *j = json_loads(body, 0, NULL);
    assert_non_null(s);
    assert_non_null(j);
    if (json_object_get(j, "messages"))
        json_object_set_new(json_array_get(json_object_get(j, "messages"), 0), "content", s);
    else
        json_object_set_new(j, "prompt", s);
    *e = (vt_openai_error){0};
    vt_status status = vt_openai_request_read_as(j, form, &model, &d, &r, e);
    json_decref(j);
    vt_openai_request_release(&r);
    free(text);
    return status;
}

/* Where the length of a text tells that it cannot fit, its tokens are not counted: the message says
 * "more than". Where it does not tell, the engine counts them and refuses. */
static void test_request_text_that_cannot_fit_is_refused_by_its_length(void **state)
{
    (void)state;
    static const struct {
        vt_openai_form form;
        const char *body, *param;
    } kinds[] = {{VT_OPENAI_COMPLETIONS, "{}", "prompt"},
                 {VT_OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}]}", "messages"}};
    const char *want = "the prompt has more than 64 tokens; this model's maximum context length is "
                       "64 tokens";
    vt_openai_error e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_long(kinds[i].form, kinds[i].body, 20000, 64, &e), VT_ERR_USAGE);
        assert_string_equal(e.message, want);
        assert_string_equal(e.param, kinds[i].param);
        assert_string_equal(e.code, "context_length_exceeded");
        assert_int_equal(e.http, 400);
        assert_int_equal(read_long(kinds[i].form, kinds[i].body, 100, 64, &e), VT_OK);
        assert_int_equal(read_long(kinds[i].form, kinds[i].body, 20000, 0, &e), VT_OK);
    }
}

static void test_request_tokenize_has_a_limit_of_its_own(void **state)
{
    (void)state;
    vt_openai_error e;
    assert_int_equal(read_long(VT_OPENAI_TOKENIZE, "{}", 20000, 64, &e), VT_OK);
    assert_int_equal(read_long(VT_OPENAI_TOKENIZE, "{}", VT_OPENAI_MAX_CONVERTED + 1, 64, &e),
                     VT_ERR_USAGE);
    assert_string_equal(e.message, "prompt: 1048577 tokens, expected at most 1048576");
    assert_int_equal(read_long(VT_OPENAI_TOKENIZE, "{}", 15000000, 64, &e), VT_ERR_USAGE);
    assert_string_equal(e.message,
                        "the prompt has more than 1048576 tokens; the limit of /tokenize "
                        "is 1048576 tokens");
    assert_null(e.code);
}

static void test_request_when_a_field_cannot_be_then_it_is_named(void **state)
{
    (void)state;
    refuse(TEXT(", \"model\": \"other\""), false, 404, "model", "'other' is not here");
    refuse(TEXT(", \"temperature\": 2.5"), false, 400, "temperature", "from 0 to 2");
    refuse(TEXT(", \"top_k\": -2"), false, 400, "top_k", "from -1 to");
    refuse(TEXT(", \"n\": 0"), false, 400, "n", "from 1 to");
    refuse(TEXT(", \"max_tokens\": 0"), false, 400, "max_tokens", "expected at least 1");
    refuse(TEXT(", \"seed\": 1.5"), false, 400, "seed", "whole number");
    refuse(TEXT(", \"seed\": 1e19"), false, 400, "seed", "whole number");
    refuse(TEXT(", \"max_tokens\": 2.5"), false, 400, "max_tokens",
           "2.5 found, expected a whole number");
    refuse(TEXT(", \"stop\": [\"a\\u0000b\"]"), false, 400, "stop", "U+0000");
    refuse(TEXT(", \"logit_bias\": {\"1024\": 1}"), false, 400, "logit_bias",
           "logit_bias: '1024' found, expected a token id below 1024");
    refuse(TEXT(", \"logit_bias\": {\"7\": 101}"), false, 400, "logit_bias",
           "logit_bias.7: 101 found, expected a number from -100 to 100");
    refuse(TEXT(", \"logit_bias\": [7]"), false, 400, "logit_bias",
           "an array of 1 found, expected an object of token ids");
    refuse(TEXT(", \"cache_salt\": \"\""), false, 400, "cache_salt",
           "cache_salt: 0 bytes found, expected 1 to");
    refuse(TEXT(", \"cache_salt\": 3"), false, 400, "cache_salt", "3 found, expected a string");
    refuse(TEXT(", \"response_format\": 1"), false, 400, "response_format",
           "response_format: 1 found, expected an object with a type");
    refuse(TEXT(", \"response_format\": {}"), false, 400, "response_format",
           "response_format.type: missing, expected text");
    refuse(TEXT(", \"response_format\": {\"type\": \"xml\"}"), false, 400, "response_format",
           "response_format.type: 'xml' found, expected text, json_object or json_schema");
    refuse(TEXT(", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {}}"), false,
           400, "response_format", "json_schema.schema: missing, expected a JSON Schema");
    refuse(TEXT(", \"echo\": 1"), false, 400, "echo", "1 found, expected true or false");
    refuse(TEXT(", \"messages\": []"), false, 400, "messages", "not supported");
    refuse(TEXT(", \"stream_options\": {}"), false, 400, "stream_options", "\"stream\": true");
    refuse("{\"prompt\": [1, 1024]}", false, 400, "prompt", "entry 1 is not a token id");
    refuse("{}", false, 400, "prompt", "missing, expected a string");
    refuse(TEXT(", \"temperature\": \"hot\""), false, 400, "temperature",
           "temperature: a string found, expected a number from 0 to 2");
    refuse(TEXT(", \"stop\": {}"), false, 400, "stop", "an object found, expected a string or");
    refuse(CHAT(", \"top_logprobs\": 2"), true, 400, "top_logprobs", "\"logprobs\": true");
    refuse("{\"messages\": []}", true, 400, "messages",
           "an array of 0 found, expected a list of 1 to");
    refuse("{\"messages\": [3]}", true, 400, "messages",
           "messages[0]: 3 found, expected an object with a role");
    refuse("{\"messages\": [{}]}", true, 400, "messages", "messages[0].role: missing, expected a");
    refuse("{\"messages\": [{\"role\": \"user\"}]}", true, 400, "messages", "messages[0].content");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", true,
           400, "messages", "type 'image_url' found");
#define CALLS(calls) "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": " calls "}]}"
    refuse(CALLS("3"), true, 400, "messages",
           "messages[0].tool_calls: 3 found, expected a list of at most");
    refuse(CALLS("[3]"), true, 400, "messages",
           "tool_calls[0].function: missing, expected an object with name and arguments");
    refuse(CALLS("[{\"function\": {\"name\": 1}}]"), true, 400, "messages",
           "tool_calls[0].function.name: 1 found, expected a string");
    refuse(CALLS("[{\"function\": {\"name\": \"f\", \"arguments\": [1]}}]"), true, 400, "messages",
           "tool_calls[0].function.arguments: an array of 1 found, expected a string of JSON");
    refuse(CHAT(", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]"), true,
           400, "tools", "tools[0].function.name: 'a b' found, expected 1 to 128 letters");
    refuse(CHAT(", \"tool_choice\": \"maybe\""), true, 400, "tool_choice",
           "tool_choice: 'maybe' found, expected none, auto, required");
    refuse(CHAT(", \"reasoning_effort\": \"most\""), true, 400, "reasoning_effort",
           "reasoning_effort: 'most' found, expected one of none");
}

static void test_request_echo_when_it_would_fill_the_memory_then_it_is_refused(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static char body[N + 100];
    int n = snprintf(body, sizeof body, "{\"n\": 128, \"echo\": true, \"prompt\": \"");
    memset(body + n, 'a', N);
    memcpy(body + n + N, "\"}", 3);
    refuse(body, false, 400, "echo", "repeat 128 MiB of prompts");
}

static void test_request_arguments_of_many_calls_are_counted_together(void **state)
{
    (void)state;
    static const char head[] = "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [",
                      call[] = "{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [";
    vt_buf body = {0};
    vt_buf_puts(&body, head);
    for (int i = 0; i < 1000; i++) {
        vt_buf_puts(&body, i > 0 ? "," : "");
        vt_buf_puts(&body, call);
        for (int k = 0; k < 1000; k++)
            vt_buf_puts(&body, k > 0 ? ",{}" : "{}");
        vt_buf_puts(&body, "]}\"}}");
    }
    vt_buf_puts(&body, "]}]}");
    refuse(body.data, true, 400, "messages", "16 MiB of memory");
    vt_buf_release(&body);
}

/* ---- replies ---- */

/* The reply to `body`, whose choices have ended with the tokens of ids[0 .. n). */
static char *text_of_reply(const char *body, const int32_t *ids, const float *logprob, int32_t n)
{
    vt_openai_request request;
    vt_openai_reply reply;
    vt_token_logprob own[8];
    vt_buf out = {0};
    vt_json w;
    read_with(body, false, defaults(0), &request);
    assert_int_equal(vt_openai_reply_init(&reply, &request, &model, "id", NULL), VT_OK);
    for (int32_t i = 0; i < n; i++)
        own[i] = (vt_token_logprob){ids[i], logprob[i]};
    for (int32_t s = 0; s < request.p.n; s++) {
        vt_event e = {.sample = s,
                      .tokens = ids,
                      .n_tokens = n,
                      .text = "x",
                      .text_len = 1,
                      .logprobs = own,
                      .finish = VT_FINISH_STOP,
                      .prompt_tokens = 5,
                      .completion_tokens = n,
                      .cached_tokens = 2};
        vt_openai_reply_event(&reply, 0, &e);
    }
    vt_json_begin(&w, &out, -1);
    vt_openai_reply_write(&reply, &w, NULL);
    assert_true(vt_json_end(&w));
    vt_openai_reply_release(&reply);
    vt_openai_request_release(&request);
    return vt_buf_detach(&out, NULL);
}

static void holds(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("%s lacks %s", text, words);
}

/* JSON has no infinity, and one makes the whole line unreadable. */
static void test_reply_when_a_token_could_not_be_chosen_then_minus_9999(void **state)
{
    (void)state;
    const int32_t ids[] = {'h', 'i'};
    const float logprob[] = {-INFINITY, -0.5f};
    char *text = text_of_reply(TEXT(", \"logprobs\": 0"), ids, logprob, 2);
    holds(text, "\"token_logprobs\":[-9999,-0.5]");
    json_t *read = json_loads(text, 0, NULL);
    assert_non_null(read);
    json_decref(read);
    free(text);
}

/* text_offset counts characters, not bytes: U+00E9 is two tokens here and one character. */
static void test_reply_text_offsets_count_characters(void **state)
{
    (void)state;
    const int32_t ids[] = {'a', 0xC3, 0xA9, 'b'};
    const float logprob[] = {-1, -1, -1, -1};
    char *text = text_of_reply(TEXT(", \"logprobs\": 0"), ids, logprob, 4);
    holds(text, "\"text_offset\":[0,1,2,2]");
    holds(text, "\"tokens\":[\"a\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"b\"]");
    free(text);
}

static void test_reply_usage_when_n_is_several_then_the_prompt_counts_once(void **state)
{
    (void)state;
    const int32_t ids[] = {'h', 'i'};
    const float logprob[] = {-1, -1};
    char *text = text_of_reply(TEXT(", \"n\": 3"), ids, logprob, 2);
    holds(text, "\"prompt_tokens\":5,\"completion_tokens\":6,\"total_tokens\":11");
    holds(text, "\"cached_tokens\":2");
    free(text);
}

static void test_error_type_follows_the_status(void **state)
{
    (void)state;
    static const struct {
        int http;
        const char *type;
    } row[] = {{400, "\"type\":\"invalid_request_error\""},
               {404, "\"type\":\"invalid_request_error\""},
               {500, "\"type\":\"server_error\""},
               {503, "\"type\":\"server_error\""}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_openai_error e;
        vt_buf out = {0};
        vt_json w;
        vt_openai_refuse(&e, row[i].http, "p", "why");
        vt_json_begin(&w, &out, -1);
        vt_openai_error_write(&e, &w, NULL);
        assert_true(vt_json_end(&w));
        holds(out.data, row[i].type);
        holds(out.data, "\"param\":\"p\"");
        vt_buf_release(&out);
    }
}

static void test_line_when_its_url_or_method_is_another_then_it_is_a_failed_line(void **state)
{
    (void)state;
    static const struct {
        const char *line, *param;
    } row[] = {
        {"{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}",
         "method"},
        {"{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{}}", "method"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":{}}", "url"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\"}", "body"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}", ""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_openai_line l;
        assert_int_equal(vt_openai_line_read(row[i].line, strlen(row[i].line), &l, NULL), VT_OK);
        assert_string_equal(l.custom_id, "a");
        assert_string_equal(l.error.param, row[i].param);
        assert_int_equal(l.error.http, *row[i].param ? 400 : 0);
        vt_openai_line_release(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_max_tokens_when_left_out_then_16_or_the_whole_context),
        cmocka_unit_test(test_request_max_completion_tokens_when_both_are_given_then_it_wins),
        cmocka_unit_test(test_request_logprobs_when_chat_then_two_fields_and_else_one),
        cmocka_unit_test(test_request_messages_when_of_text_parts_then_joined_by_newlines),
        cmocka_unit_test(test_request_role_developer_when_no_role_of_the_template_then_system),
        cmocka_unit_test(test_request_whole_numbers_may_have_a_point),
        cmocka_unit_test(test_request_model_when_it_has_several_names_then_each_is_known),
        cmocka_unit_test(test_request_text_that_cannot_fit_is_refused_by_its_length),
        cmocka_unit_test(test_request_tokenize_has_a_limit_of_its_own),
        cmocka_unit_test(test_request_when_a_field_cannot_be_then_it_is_named),
        cmocka_unit_test(test_request_echo_when_it_would_fill_the_memory_then_it_is_refused),
        cmocka_unit_test(test_request_arguments_of_many_calls_are_counted_together),
        cmocka_unit_test(test_reply_when_a_token_could_not_be_chosen_then_minus_9999),
        cmocka_unit_test(test_reply_text_offsets_count_characters),
        cmocka_unit_test(test_reply_usage_when_n_is_several_then_the_prompt_counts_once),
        cmocka_unit_test(test_error_type_follows_the_status),
        cmocka_unit_test(test_line_when_its_url_or_method_is_another_then_it_is_a_failed_line),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
