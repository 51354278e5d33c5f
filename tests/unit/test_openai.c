/* Requests and replies of the OpenAI forms (src/openai), as far as no model has to run: limits of
 * memory, failures while an answer is collected, streamed pieces, reading results back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>
#include <malloc.h>
#include <math.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/end_reason.h"
#include "model/model.h"
#include "openai/batch.h"
#include "openai/client.h"
#include "openai/translation.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

static vt_model model;

static int make_model(void **state)
{
    (void)state;
    model = (vt_model){.name = (char *)(uintptr_t) "tiny",
                       .path = (char *)(uintptr_t) "/srv/m/tiny.gguf"};
    model.arch.vocab = 1024;
    model.arch.max_context = 64;
    model.bos = -1;
    return vt_tokenizer_synthetic(1024, &model.tokenizer, NULL) == VT_OK ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    vt_tokenizer_free(model.tokenizer);
    return 0;
}

/* ---- memory ---- */

static size_t allocated, most; /* bytes of jansson's blocks, as malloc rounds them */

static void *count_malloc(size_t n)
{
    void *p = malloc(n);
    allocated += p ? malloc_usable_size(p) + 8 : 0;
    most = most > allocated ? most : allocated;
    return p;
}

static void count_free(void *p)
{
    allocated -= p ? malloc_usable_size(p) + 8 : 0;
    free(p);
}

/* The most bytes that parsing `n` copies of `unit` between `begin` and `end` takes; 0 if
 * refused. */
static size_t cost_of(const char *begin, const char *unit, size_t n, const char *end)
{
    vt_buf text = {0};
    vt_openai_error e;
    json_t *j = NULL;
    vt_buf_puts(&text, begin);
    for (size_t i = 0; i < n; i++)
        vt_buf_printf(&text, unit, (int)i);
    vt_buf_puts(&text, end);
    assert_false(text.failed);
    allocated = most = 0;
    vt_status status = vt_openai_json_load(text.data, text.len, &j, &e);
    size_t cost = status == VT_OK ? most : 0;
    assert_true(status == VT_OK || (e.http == 400 && most == 0)); /* refused before it allocated */
    json_decref(j);
    size_t len = text.len;
    vt_buf_release(&text);
    assert_true(cost <= (size_t)VT_OPENAI_MAX_TREE + 2 * len);
    return cost;
}

static void test_openai_json_when_it_would_take_much_memory_then_it_is_refused_first(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *unit, *end;
    } shapes[] = {
        {"[", "{},", "0]"},
        {"[", "[],", "0]"},
        {"[", "0,", "0]"},
        {"[", "\"\",", "0]"},
        {"[", "{\"a\":1},", "0]"},
        {"{", "\"%d\":0,", "\"x\":0}"},
        {"{", "\"%d\":{},", "\"x\":0}"},
        {"[", "\"\\u0041\\\\\",", "0]"},
        {"[", "[[]],", "0]"},
        {"[", "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaa%d\":[]},", "0]"},
    };
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t n = 1024, last = 0;
        for (; n <= 4 << 20; n *= 2) { /* until it is refused */
            size_t cost = cost_of(shapes[s].begin, shapes[s].unit, n, shapes[s].end);
            if (cost == 0)
                break;
            last = cost;
        }
        assert_true(n <= 4 << 20);
        assert_true(last > VT_OPENAI_MAX_TREE / 16); /* the limit is no more than that too strict */
    }
    json_set_alloc_funcs(malloc, free);
}

static void
test_openai_json_when_an_integer_is_beyond_64_bits_then_it_is_the_nearest_double(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": 18446744073709551615, \"18446744073709551615\": \"18446744073709551615\", "
        "\"b\": [-9223372036854775809,9223372036854775807, -9223372036854775808,1.5,"
        "123456789012345678901234567890], \"\\\"\": 99999999999999999999}";
    vt_openai_error e;
    json_t *j = NULL;
    assert_int_equal(vt_openai_json_load(text, sizeof text - 1, &j, &e), VT_OK);
    char *read = json_dumps(j, JSON_COMPACT);
    assert_string_equal(
        read,
        "{\"a\":1.8446744073709552e19,\"18446744073709551615\":\"18446744073709551615\",\"b\":"
        "[-9.2233720368547758e18,9223372036854775807,-9223372036854775808,1.5,"
        "1.2345678901234568e29],\"\\\"\":1e20}");
    free(read);
    json_decref(j);
    assert_int_equal(vt_openai_json_load("[99999999999999999999, 1e999]", 29, &j, &e),
                     VT_ERR_USAGE);
}

/* ---- replies ---- */

static void read_request(const char *body, bool chat, vt_openai_request *r)
{
    vt_openai_defaults d;
    vt_openai_error e = {0};
    json_t *j = json_loads(body, 0, NULL);
    vt_openai_defaults_init(&d);
    d.may_stream = true;
    if (vt_openai_request_read(j, chat, &model, &d, r, &e) != VT_OK)
        fail_msg("%s", e.message);
    json_decref(j);
}

static vt_openai_reply reply_to(const char *body)
{
    vt_openai_request request;
    vt_openai_reply reply;
    read_request(body, false, &request);
    assert_int_equal(vt_openai_reply_init(&reply, &request, &model, "id", NULL), VT_OK);
    vt_openai_request_release(&request);
    return reply;
}

static const int32_t tokens[] = {'h', 'i'};
static const vt_token_logprob own[] = {{'h', -1}, {'i', -2}};
static const vt_token_logprob top[] = {{'h', -1}, {'x', -3}, {'i', -2}, {-1, 0}};

static vt_event event_of(vt_finish finish)
{
    return (vt_event){.tokens = tokens,
                      .n_tokens = 2,
                      .text = "hi",
                      .text_len = 2,
                      .logprobs = own,
                      .top_logprobs = top,
                      .n_top = 2,
                      .finish = finish,
                      .prompt_tokens = 3,
                      .completion_tokens = 2,
                      .cached_tokens = 1};
}

static char *text_of(const vt_openai_reply *reply)
{
    vt_buf out = {0};
    vt_json w;
    vt_json_begin(&w, &out, -1);
    vt_openai_reply_write(reply, &w, NULL);
    assert_true(vt_json_end(&w));
    return vt_buf_detach(&out, NULL);
}

static void test_openai_reply_when_log_probabilities_do_not_fit_then_it_is_an_error(void **state)
{
    (void)state;
    vt_event more = event_of(VT_FINISH_NONE), last = event_of(VT_FINISH_STOP);
    vt_openai_reply reply = reply_to("{\"prompt\": [1], \"logprobs\": 2}");
    vt_openai_reply_event(&reply, 0, &more);
    assert_int_equal(reply.error.http, 0);
    reply.choice[0].logprobs.max = reply.choice[0].logprobs.len + 1;
    vt_openai_reply_event(&reply, 0, &last);
    assert_int_equal(reply.n_open, 0);
    assert_int_equal(reply.error.http, 500);
    assert_non_null(strstr(reply.error.message, "log-probabilities"));
    vt_openai_reply_release(&reply);
}

/* Every end reason has one name, one finish_reason and one HTTP status; words decide nothing. */
static void test_openai_reply_when_an_answer_ends_then_its_reason_decides_the_status(void **state)
{
    (void)state;
    for (int i = VT_END_NONE + 1; i < VT_END_REASONS; i++) {
        vt_end_reason reason = (vt_end_reason)i;
        vt_finish finish = vt_end_finish(reason);
        int want = finish != VT_FINISH_ERROR            ? 0
                   : reason == VT_END_TIMEOUT           ? 504
                   : reason == VT_END_NOTHING_ALLOWED   ? 400
                   : reason == VT_END_GRAMMAR_TOO_LARGE ? 400
                                                        : 500;
        const char *name = want                         ? "error"
                           : finish == VT_FINISH_STOP   ? "stop"
                           : finish == VT_FINISH_LENGTH ? "length"
                                                        : "abort";
        for (int word = 0; word < 2; word++) {
            vt_event e = event_of(finish);
            e.end_reason = reason;
            e.error = !want ? NULL : word ? "other words" : vt_end_sentence(reason);
            vt_openai_reply reply = reply_to("{\"prompt\": [1], \"logprobs\": 2}");
            vt_openai_reply_event(&reply, 0, &e);
            assert_int_equal(reply.error.http, want);
            assert_string_equal(vt_openai_finish_name(&reply, reply.choice, finish), name);
            vt_openai_reply_release(&reply);
        }
        assert_int_equal(vt_end_sentence(reason) != NULL, want != 0);
        for (int k = VT_END_NONE; k < i; k++)
            assert_string_not_equal(vt_end_reason_name(reason),
                                    vt_end_reason_name((vt_end_reason)k));
    }
    assert_null(vt_end_reason_name((vt_end_reason)VT_END_REASONS));
}

/* The status says what is wrong with a request that the engine refuses; the words may change. */
static void test_openai_refuse_submit_when_the_status_says_which_then_field_and_code(void **state)
{
    (void)state;
    vt_openai_request r = {.grammar_field = "guided_regex"};
    vt_openai_error e;
    vt_err why;
    vt_fail(&why, VT_ERR_CONTEXT, "far too much text");
    vt_openai_refuse_submit(&e, &why, VT_OPENAI_CHAT, &r, &model);
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, "messages");
    assert_string_equal(e.code, "context_length_exceeded");
    vt_fail(&why, VT_ERR_GRAMMAR, "nothing fits");
    vt_openai_refuse_submit(&e, &why, VT_OPENAI_CHAT, &r, &model);
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, "guided_regex");
    assert_null(e.code);
    vt_fail(&why, VT_ERR_USAGE, "the prompt has no tokens");
    vt_openai_refuse_submit(&e, &why, VT_OPENAI_COMPLETIONS, &r, &model);
    assert_string_equal(e.param, "prompt");
    assert_null(e.code);
}

static void test_openai_reply_when_the_engine_fails_then_its_sentence_names_no_path(void **state)
{
    (void)state;
    vt_event e = event_of(VT_FINISH_ERROR);
    e.error = "/srv/m/tiny.gguf: the logits were not numbers";
    vt_openai_reply reply = reply_to("{\"prompt\": [1], \"logprobs\": 2}");
    vt_openai_reply_event(&reply, 0, &e);
    assert_int_equal(reply.error.http, 500);
    assert_string_equal(reply.error.message, "tiny: the logits were not numbers");
    vt_openai_reply_release(&reply);
}

static void test_openai_reply_of_completions_has_the_lists_of_log_probabilities(void **state)
{
    (void)state;
    vt_event e = event_of(VT_FINISH_STOP);
    vt_openai_reply reply = reply_to(
        "{\"prompt\": [1], \"logprobs\": 2, \"stop_token_ids\": [5, 105]}");
    reply.created = 7;
    vt_openai_reply_event(&reply, 0, &e);
    char *text = text_of(&reply);
    assert_string_equal(
        text, "{\"id\":\"cmpl-id\",\"object\":\"text_completion\",\"created\":7,\"model\":\"tiny\","
              "\"choices\":[{\"index\":0,\"text\":\"hi\",\"logprobs\":{\"tokens\":[\"h\",\"i\"],"
              "\"token_logprobs\":[-1,-2],\"top_logprobs\":[{\"h\":-1,\"x\":-3},{\"i\":-2}],"
              "\"text_offset\":[0,1]},\"finish_reason\":\"stop\",\"stop_reason\":105}],\"usage\":{"
              "\"prompt_tokens\":3,"
              "\"completion_tokens\":2,\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_"
              "tokens\":1}}}");
    free(text);
    vt_openai_reply_release(&reply);
}

static void
test_openai_reply_when_there_are_several_prompts_then_choices_are_in_their_order(void **state)
{
    (void)state;
    vt_openai_reply reply = reply_to("{\"prompt\": [[1], [2, 3], [4]], \"n\": 2}");
    assert_int_equal(reply.n, 6);
    for (int32_t i = 5; i >= 0; i--) {
        vt_event e = event_of(VT_FINISH_STOP);
        char text[2] = {(char)('a' + i)};
        e.sample = i % 2;
        e.text = text;
        e.text_len = 1;
        assert_int_equal(reply.n_open, i + 1);
        vt_openai_reply_event(&reply, i / 2, &e);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(reply.choice[i].text.data[0], 'a' + i);
    assert_int_equal(reply.prompt_tokens, 3 * 3);
    assert_int_equal(reply.cached_tokens, 3 * 1);
    assert_int_equal(reply.completion_tokens, 6 * 2);
    vt_openai_reply_release(&reply);
}

static char *chunk_of(vt_openai_reply *reply, const vt_event *e)
{
    vt_buf out = {0};
    vt_json w;
    vt_json_begin(&w, &out, -1);
    if (e)
        vt_openai_chunk_write(reply, 0, e, &w);
    else
        vt_openai_usage_chunk_write(reply, &w);
    assert_true(vt_json_end(&w));
    if (e)
        vt_openai_reply_event(reply, 0, e);
    return vt_buf_detach(&out, NULL);
}

static void test_openai_chunks_carry_the_role_first_and_the_end_last(void **state)
{
    (void)state;
    vt_event more = event_of(VT_FINISH_NONE),
             last = {.finish = VT_FINISH_LENGTH, .prompt_tokens = 3, .completion_tokens = 4};
    vt_openai_reply reply = reply_to("{\"prompt\": [1], \"n\": 1}");
    reply.chat = true;
    reply.created = 7;
    const char *const wanted[] = {
        "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hi\"},"
        "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}",
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"logprobs\":null,"
        "\"finish_reason\":null,\"stop_reason\":null}]}",
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,"
        "\"finish_reason\":\"length\",\"stop_reason\":null}]}",
        "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
        "\"prompt_tokens_details\":{\"cached_tokens\":0}}}"};
    const vt_event *const events[] = {&more, &more, &last, NULL};
    for (int i = 0; i < 4; i++) {
        char *text = chunk_of(&reply, events[i]);
        assert_non_null(strstr(text, "\"object\":\"chat.completion.chunk\",\"created\":7"));
        assert_string_equal(strstr(text, "\"choices\""), wanted[i]);
        free(text);
    }
    vt_openai_reply_release(&reply);
}

/* ---- requests ---- */

static void test_openai_request_reads_fields_into_parameters(void **state)
{
    (void)state;
    vt_openai_request r;
    read_request(
        "{\"prompt\": [[5, 6]], \"max_tokens\": 9, \"n\": 2, \"temperature\": 0.5, \"top_p\": 0.25,"
        " \"top_k\": -1, \"min_p\": 0.125, \"seed\": -1, \"stop\": [\"\", \"ab\"], \"ignore_eos\": "
        "true,"
        " \"logit_bias\": {\"7\": -3}, \"stop_token_ids\": [8], \"presence_penalty\": 1,"
        " \"cache_salt\": \"s\", \"priority\": -4, \"stream\": true, \"model\": \"tiny\","
        " \"stream_options\": {\"include_usage\": true}, \"logprobs\": 3, \"user\": \"u\"}",
        false, &r);
    assert_true(r.stream && r.include_usage && r.p.ignore_eos && r.p.has_seed);
    assert_int_equal(r.p.n_prompt, 2);
    assert_int_equal(r.p.prompt[1], 6);
    assert_int_equal(r.p.max_tokens, 9);
    assert_int_equal(r.p.n, 2);
    assert_true(r.p.temperature == 0.5f && r.p.top_p == 0.25f && r.p.min_p == 0.125f);
    assert_int_equal(r.p.top_k, 0);
    assert_true(r.p.seed == UINT64_MAX);
    assert_int_equal(r.p.n_stop, 1);
    assert_string_equal(r.p.stop[0], "ab");
    assert_int_equal(r.p.n_logit_bias, 1);
    assert_true(r.p.logit_bias[0].id == 7 && r.p.logit_bias[0].bias == -3);
    assert_int_equal(r.p.stop_ids[0], 8);
    assert_true(r.p.presence_penalty == 1);
    assert_string_equal(r.p.cache_salt, "s");
    assert_int_equal(r.p.priority, -4);
    assert_int_equal(r.p.logprobs, 3);
    vt_openai_request_release(&r);
}

/* ---- the client's side ---- */

static void test_openai_client_writes_what_the_server_reads(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7};
    vt_openai_call call = {.model = "tiny",
                           .ids = ids,
                           .n_ids = 3,
                           .max_tokens = 9,
                           .temperature = 0.25,
                           .ignore_eos = true,
                           .stream = true};
    vt_openai_request r;
    vt_buf body = {0};
    vt_json w;
    vt_json_begin(&w, &body, -1);
    vt_openai_call_write(&call, &w);
    assert_true(vt_json_end(&w));
    read_request(body.data, false, &r);
    assert_true(r.stream && r.include_usage && r.p.ignore_eos && r.p.temperature == 0.25f);
    assert_int_equal(r.p.max_tokens, 9);
    assert_int_equal(r.p.n_prompt, 3);
    assert_memory_equal(r.p.prompt, ids, sizeof ids);
    vt_openai_request_release(&r);

    vt_openai_call chat = {.chat = true, .text = "a\"\0b", .text_len = 4, .temperature = NAN};
    vt_buf_clear(&body);
    vt_json_begin(&w, &body, -1);
    vt_openai_call_write(&chat, &w);
    assert_true(vt_json_end(&w));
    assert_string_equal(body.data,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\\"\\u0000b\"}]}");
    vt_buf_release(&body);
}

static void read_piece(const char *json, vt_openai_piece *p)
{
    vt_err err = {0};
    if (vt_openai_piece_read(json, strlen(json), p, &err) != VT_OK)
        fail_msg("%s: %s", json, err.message);
}

static void test_openai_client_reads_what_the_server_writes(void **state)
{
    (void)state;
    vt_openai_piece p = {0};
    vt_event more = event_of(VT_FINISH_NONE), last = event_of(VT_FINISH_LENGTH);
    const vt_event *const events[] = {&more, &last, NULL};
    for (int chat = 0; chat < 2; chat++) {
        vt_openai_reply reply = reply_to("{\"prompt\": [1], \"logprobs\": 1}");
        reply.chat = chat;
        for (int i = 0; i < 3; i++) {
            char *text = chunk_of(&reply, events[i]);
            read_piece(text, &p);
            assert_string_equal(p.text.data ? p.text.data : "", i < 2 ? "hi" : "");
            assert_int_equal(p.finish, i == 1 ? VT_FINISH_LENGTH : VT_FINISH_NONE);
            assert_int_equal(p.n_finished, i == 1);
            assert_int_equal(p.prompt_tokens, i == 2 ? 3 : -1);
            assert_int_equal(p.error.http, 0);
            free(text);
        }
        char *whole = text_of(&reply);
        read_piece(whole, &p);
        assert_string_equal(p.text.data, "hihi");
        assert_int_equal(p.completion_tokens, 2);
        assert_int_equal(p.cached_tokens, 1);
        free(whole);
        vt_openai_reply_release(&reply);
    }
    read_piece("{\"error\":{\"message\":\"m\",\"param\":\"n\"}}", &p);
    assert_true(p.error.http == 500 && strcmp(p.error.message, "m") == 0 &&
                p.error.param[0] == 'n');
    read_piece("{\"error\":\"Unauthorized\"}", &p);
    assert_string_equal(p.error.message, "Unauthorized");
    read_piece("{\"object\":\"error\",\"message\":\"flat\"}", &p);
    assert_string_equal(p.error.message, "flat");
    read_piece(
        "{\"choices\":[{\"text\":null,\"finish_reason\":\"content_filter\"}],\"usage\":null}", &p);
    assert_int_equal(p.finish, VT_FINISH_ABORT);
    assert_int_equal(p.error.http, 0);
    assert_int_equal(vt_openai_piece_read("[]", 2, &p, NULL), VT_ERR_FORMAT);
    assert_int_equal(vt_openai_piece_read("{", 1, &p, NULL), VT_ERR_FORMAT);
    vt_openai_piece_release(&p);
}

/* ---- results ---- */

static void test_openai_result_is_read_back_whole_or_not_at_all(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int http; /* 0: no result */
    } lines[] = {
        {"{\"custom_id\":\"a\",\"response\":{\"status_code\":200}}", 200},
        {" { \"response\" : { \"body\" : [ { } , \"]}\\\"\" ] , \"status_code\" : 503 } , "
         "\"custom_id\" : \"a\" } ",
         503},
        {"{\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"x\"}}", 500},
        {"{\"custom_id\":\"a\"}", 0},
        {"{\"custom_id\":\"a\",\"response\":null,\"error\":null}", 0},
        {"{\"custom_id\":7,\"response\":{\"status_code\":200}}", 0},
        {"{\"custom_id\":\"a\",\"response\":{\"status_code\":200}", 0},
        {"{\"custom_id\":\"a\",\"response\":{\"status_code\":200}}}", 0},
        {"{\"custom_id\":\"a\\", 0},
        {"[]", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        vt_openai_result r = {0};
        size_t n = strlen(lines[i].text);
        char *exact = malloc(n ? n : 1); /* no NUL after it */
        memcpy(exact, lines[i].text, n);
        bool is = vt_openai_result_read(exact, n, &r);
        if (is != (lines[i].http != 0) || (is && r.http != lines[i].http))
            fail_msg("%s: %d, status %d", lines[i].text, is, r.http);
        if (is)
            assert_string_equal(r.custom_id.data, "a");
        vt_openai_result_release(&r);
        free(exact);
    }
}

/* ---- the documentation ---- */

static char *read_docs(void)
{
    FILE *f = fopen("docs/server.md", "r");
    vt_buf text = {0};
    char block[4096];
    assert_non_null(f); /* tests run in the folder of the sources */
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        vt_buf_add(&text, block, n);
    fclose(f);
    return vt_buf_detach(&text, NULL);
}

/* The row "| `name` | ... form ... | what" of the table of fields; NULL: none. */
static const char *row_of(const char *docs, const char *name, const char *form)
{
    char begin[80];
    snprintf(begin, sizeof begin, "\n| `%s` | ", name);
    for (const char *row = docs; (row = strstr(row, begin));) {
        const char *where = row + strlen(begin), *end = strchr(where, '|'),
                   *found = strstr(where, form);
        if (found && end && found < end)
            return row + 1;
        row = where;
    }
    return NULL;
}

static void test_openai_fields_are_those_that_the_documentation_lists(void **state)
{
    (void)state;
    static const char *const forms[VT_OPENAI_FORMS] = {"chat",     "completions", "generate",
                                                       "tokenize", "detokenize",  "embeddings",
                                                       "rerank",   "score"};
    static const char heading[] = "| field | in | what |";
    char *docs = read_docs();
    const char *name, *what, *table = strstr(docs, heading), *end = strstr(table, "\n\n");
    int n_listed = 0, n_fields = 0;
    for (int form = 0; form < VT_OPENAI_FORMS; form++)
        for (size_t i = 0; vt_openai_field_at((vt_openai_form)form, i, &name, &what); i++) {
            char row[600] = "";
            const char *found = row_of(table, name, forms[form]);
            if (!found || found > end)
                fail_msg("docs/server.md has no row for %s of %s", name, forms[form]);
            snprintf(row, sizeof row, "%.*s", (int)strcspn(found, "\n"), found);
            if (!strstr(row, what))
                fail_msg("docs/server.md, %s of %s: expected '%s'", name, forms[form], what);
            n_fields++;
        }
    /* and nothing else: as many forms are named in all rows as there are fields of forms */
    for (const char *row = table; row < end; row = strchr(row, '\n') + 1) {
        const char *where = strncmp(row, "| `", 3) == 0 ? strstr(row, "` | ") + 4 : NULL;
        for (; where && *where != '|'; where++)
            n_listed += *where == ',' || (*where == ' ' && where[1] == '|');
    }
    assert_int_equal(n_listed, n_fields);
    free(docs);
}

/* The text of a section, up to the next heading. */
static char *section_of(const char *docs, const char *heading)
{
    const char *begin = strstr(docs, heading), *end = begin ? strstr(begin + 1, "\n## ") : NULL;
    if (!begin || !end)
        fail_msg("docs/server.md has no section %s", heading);
    return strndup(begin, (size_t)(end - begin));
}

static bool is_member(const translation_member *member, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(member[i].name, name, len) == 0 && !member[i].name[len])
            return true;
    return false;
}

/* Every member that an API knows stands in its section, and the first column of its table has no
 * other. */
static void check_section(const char *docs, const char *heading, const translation_member *member,
                          size_t n)
{
    char *section = section_of(docs, heading), quoted[80];
    for (size_t i = 0; i < n; i++) {
        snprintf(quoted, sizeof quoted, "`%s`", member[i].name);
        if (!strstr(section, quoted))
            fail_msg("docs/server.md, %s: nothing about %s", heading + 1, quoted);
    }
    int n_names = 0;
    for (const char *row = strstr(section, "\n| `"); row; row = strstr(row, "\n| `")) {
        const char *end = strchr(row + 3, '|'), *name = strchr(row, '`');
        for (; name && name < end; name = strchr(name, '`')) {
            size_t len = strcspn(++name, "`");
            if (!is_member(member, n, name, len))
                fail_msg("docs/server.md, %s: `%.*s` is not known", heading + 1, (int)len, name);
            name += len + 1;
            n_names++;
        }
        row = end;
    }
    assert_in_range(n_names, 8, 100);
    free(section);
}

static void test_members_of_other_apis_are_those_that_the_documentation_lists(void **state)
{
    (void)state;
    char *docs = read_docs();
    size_t n;
    const translation_member *member = vt_responses_members(&n);
    check_section(docs, "\n## Responses\n", member, n);
    member = vt_anthropic_members(&n);
    check_section(docs, "\n## Anthropic's messages\n", member, n);
    member = vt_ollama_members(&n);
    check_section(docs, "\n## Ollama\n", member, n);
    free(docs);
}

static void test_openai_field_of_an_engine_sentence(void **state)
{
    (void)state;
    const char *least = "min_tokens is 5, expected 0 to 4", *prompt = "the prompt has 9 tokens";
    assert_string_equal(vt_openai_field_of(least, VT_OPENAI_CHAT), "min_tokens");
    assert_string_equal(vt_openai_field_of(least, VT_OPENAI_GENERATE), "min_new_tokens");
    assert_string_equal(vt_openai_field_of(prompt, VT_OPENAI_CHAT), "messages");
    assert_string_equal(vt_openai_field_of(prompt, VT_OPENAI_COMPLETIONS), "prompt");
    assert_null(vt_openai_field_of("minute is short", VT_OPENAI_CHAT));
    assert_null(vt_openai_field_of("", VT_OPENAI_CHAT));
}

static void test_openai_chat_says_when_its_template_was_rendered(void **state)
{
    (void)state;
    vt_openai_request r;
    assert_int_equal(vt_template_parse("t", "x", 1, &model.chat_template, NULL), VT_OK);
    int64_t before = vt_now_ns();
    read_request("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", true, &r);
    assert_true(r.p.rendered_ns >= before && r.p.rendered_ns <= vt_now_ns());
    vt_openai_request_release(&r);
    vt_template_free(model.chat_template);
    model.chat_template = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_json_when_it_would_take_much_memory_then_it_is_refused_first),
        cmocka_unit_test(
            test_openai_json_when_an_integer_is_beyond_64_bits_then_it_is_the_nearest_double),
        cmocka_unit_test(test_openai_reply_when_log_probabilities_do_not_fit_then_it_is_an_error),
        cmocka_unit_test(test_openai_reply_when_an_answer_ends_then_its_reason_decides_the_status),
        cmocka_unit_test(test_openai_refuse_submit_when_the_status_says_which_then_field_and_code),
        cmocka_unit_test(test_openai_reply_when_the_engine_fails_then_its_sentence_names_no_path),
        cmocka_unit_test(test_openai_reply_of_completions_has_the_lists_of_log_probabilities),
        cmocka_unit_test(
            test_openai_reply_when_there_are_several_prompts_then_choices_are_in_their_order),
        cmocka_unit_test(test_openai_chunks_carry_the_role_first_and_the_end_last),
        cmocka_unit_test(test_openai_request_reads_fields_into_parameters),
        cmocka_unit_test(test_openai_client_writes_what_the_server_reads),
        cmocka_unit_test(test_openai_client_reads_what_the_server_writes),
        cmocka_unit_test(test_openai_result_is_read_back_whole_or_not_at_all),
        cmocka_unit_test(test_openai_fields_are_those_that_the_documentation_lists),
        cmocka_unit_test(test_members_of_other_apis_are_those_that_the_documentation_lists),
        cmocka_unit_test(test_openai_field_of_an_engine_sentence),
        cmocka_unit_test(test_openai_chat_says_when_its_template_was_rendered),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
