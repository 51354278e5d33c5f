/* Answers taken apart: tool calls of each form, reasoning, and the property that the pieces do not
 * depend on how the bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/answer/answer.h"

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": "
    "\"string\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

typedef struct sums {
    vt_buf text;
    int last;
} sums;

/* Adds pieces up as a text: R and T of reasoning and content, [name]arguments of calls. */
static void add_up(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    sums *s = user;
    if (s->last != (int)kind && kind <= VT_PIECE_REASONING)
        vt_buf_puts(&s->text, kind == VT_PIECE_TEXT ? "|T:" : "|R:");
    if (kind == VT_PIECE_CALL)
        vt_buf_puts(&s->text, "|C:");
    if (kind == VT_PIECE_ARGUMENTS)
        vt_buf_putc(&s->text, '=');
    vt_buf_add(&s->text, bytes, n);
    s->last = (int)kind;
}

typedef struct example {
    vt_call_form form;
    int thinks; /* 1: <think> may come; 2: the prompt has opened it */
    const char *answer, *expected;
} example;

static const example examples[] = {
    {VT_CALLS_HERMES, 0, "Hello <b> you\n", "|T:Hello <b> you\n"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1.50}}\n</tool_call>",
     "|C:add={\"a\": 1.50}"},
    {VT_CALLS_HERMES, 0,
     "Look.\n<tool_call>{\"arguments\": {\"s\": \"</tool_call> \\\" {\"}, \"name\": \"add\"}"
     "</tool_call>\n\n<tool_call>\n{\"name\": \"now\"}</tool_call>\n",
     "|T:Look.|C:add={\"s\": \"</tool_call> \\\" {\"}|C:now={}"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"now\", \"arguments\": {}}", "|C:now={}"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": 3}</tool_call> a",
     "|T:<tool_call>{\"name\": 3}</tool_call> a"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"now\", \"argu",
     "|T:<tool_call>{\"name\": \"now\", \"argu"},
    {VT_CALLS_HERMES, 0, "a <tool_<tool_ca", "|T:a <tool_<tool_ca"},
    {VT_CALLS_HERMES, 1,
     "<think>\n a </thin b\n</think>\n\n<tool_call>{\"name\":\"now\"}</tool_call>",
     "|R:a </thin b|C:now={}"},
    {VT_CALLS_HERMES, 1, "\n <thing> \xc3\xa9", "|T:\n <thing> \xc3\xa9"},
    {VT_CALLS_NONE, 2, "because\n</think>\n\nYes.", "|R:because|T:Yes."},
    {VT_CALLS_NONE, 2, "because", "|R:because"},
    {VT_CALLS_NONE, 1, "<think>\n\n</think>\n\nYes", "|T:Yes"},
    {VT_CALLS_XML, 0,
     "<tool_call>\n<function=add>\n<parameter=a>\n12\n</parameter>\n<parameter=s>\n</parameter> "
     "\"x\"\n\n</parameter>\n</function>\n</tool_call>",
     "|C:add={\"a\": 12, \"s\": \"</parameter> \\\"x\\\"\\n\"}"},
    {VT_CALLS_XML, 0,
     "<tool_call><function=add><parameter=s>7</parameter><parameter=a>x</parameter><parameter=z>"
     "True</parameter></function></tool_call>",
     "|C:add={\"s\": \"7\", \"a\": \"x\", \"z\": true}"},
    {VT_CALLS_XML, 0, "<tool_call><function=add></tool_call>",
     "|T:<tool_call><function=add></tool_call>"},
    {VT_CALLS_LLAMA, 0,
     "{\"name\": \"add\", \"parameters\": {\"a\": 2}}; {\"name\": \"now\", \"parameters\": {}}",
     "|C:add={\"a\": 2}|C:now={}"},
    {VT_CALLS_LLAMA, 0, "{\"name\": \"Bob\", \"parameters\": {}}",
     "|T:{\"name\": \"Bob\", \"parameters\": {}}"},
    {VT_CALLS_LLAMA, 0, "{\"name\": ", "|T:{\"name\": "},
    {VT_CALLS_PYTHONIC, 0, "[add(a=-1, s='it\\'s \\u00e9'), now()]",
     "|C:add={\"a\": -1, \"s\": \"it's \xc3\xa9\"}|C:now={}"},
    {VT_CALLS_PYTHONIC, 0, "[add(a=[1, (2, None)], s={'k': True, \"l\": {}},)]",
     "|C:add={\"a\": [1, [2, null]], \"s\": {\"k\": true, \"l\": {}}}"},
    {VT_CALLS_PYTHONIC, 0, "[1, 2]", "|T:[1, 2]"},
    {VT_CALLS_PYTHONIC, 0, "[open()]", "|T:[open()]"},
    {VT_CALLS_MISTRAL, 0,
     " [{\"name\": \"add\", \"arguments\": {\"s\": \"]\"}, \"id\": \"012345678\"}, {\"name\": "
     "\"now\", \"arguments\": {}}]",
     "|C:add={\"s\": \"]\"}|C:now={}"},
    {VT_CALLS_MISTRAL, 0, "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}]", "|C:now={}"},
    {VT_CALLS_MISTRAL, 0, "[1]", "|T:[1]"},
};

enum { N_EXAMPLES = sizeof examples / sizeof *examples };

/* The sum of an answer's pieces, fed in pieces that end at `cut`, or of `each` bytes. */
static char *read_answer(const example *x, size_t cut, size_t each)
{
    sums s = {.last = -1};
    json_t *tools = json_loads(tools_json, 0, NULL);
    vt_answer_reader r = {.form = x->form,
                          .reasons = x->thinks > 0,
                          .began_inside = x->thinks == 2,
                          .tools = tools,
                          .take = add_up,
                          .user = &s};
    vt_buf_init(&s.text, 0);
    vt_answer_begin(&r);
    for (size_t at = 0, n = strlen(x->answer); at < n;) {
        size_t end = each ? at + each : at < cut ? cut : n;
        end = end < n ? end : n;
        vt_answer_feed(&r, x->answer + at, end - at);
        at = end;
    }
    vt_answer_end(&r);
    assert_false(r.failed);
    vt_answer_release(&r);
    json_decref(tools);
    vt_buf_putc(&s.text, 0);
    return s.text.data;
}

static void test_answer_of_each_form_gives_its_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < N_EXAMPLES; i++) {
        char *whole = read_answer(&examples[i], 0, 0);
        assert_string_equal(whole, examples[i].expected);
        free(whole);
    }
}

/* However the bytes are split, the pieces add up to the same. */
static void test_answer_split_anywhere_adds_up_to_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < N_EXAMPLES; i++) {
        size_t n = strlen(examples[i].answer);
        for (size_t cut = 0; cut <= n + 3; cut++) {
            char *parts = cut <= n ? read_answer(&examples[i], cut, 0)
                                   : read_answer(&examples[i], 0, cut - n);
            assert_string_equal(parts, examples[i].expected);
            free(parts);
        }
    }
}

static void test_call_that_is_too_long_when_it_comes_then_it_is_text(void **state)
{
    (void)state;
    size_t n = VT_CALL_MAX_BYTES + 100;
    char *answer = malloc(n + 1);
    memset(answer, 'x', n);
    answer[n] = 0;
    memcpy(answer, "<tool_call>{\"", 13);
    char *whole = read_answer(&(example){VT_CALLS_HERMES, 0, answer, NULL}, 0, 4096);
    assert_int_equal(strlen(whole), n + 3);
    free(whole);
    free(answer);
}

static void test_form_of_a_template_is_the_one_it_asks_for(void **state)
{
    (void)state;
    assert_int_equal(vt_call_form_of("{{ tools }}<tool_call>{\"name\""), VT_CALLS_HERMES);
    assert_int_equal(vt_call_form_of("{{ tools }}<tool_call><function=x>"), VT_CALLS_XML);
    assert_int_equal(vt_call_form_of("tools ipython {\"name\", \"parameters\"}"), VT_CALLS_LLAMA);
    assert_int_equal(vt_call_form_of("tools [func_name1(params_name1"), VT_CALLS_PYTHONIC);
    assert_int_equal(vt_call_form_of("tools [TOOL_CALLS]"), VT_CALLS_MISTRAL);
    assert_int_equal(vt_call_form_of("tools [TOOL_CALLS]N[ARGS]"), VT_CALLS_NONE);
    assert_int_equal(vt_call_form_of("<tool_call>"), VT_CALLS_NONE);
}

static void test_prompt_that_ends_inside_of_a_thought_is_known(void **state)
{
    (void)state;
    assert_true(vt_text_ends_thinking("a<think>b</think><think>\n", 25));
    assert_false(vt_text_ends_thinking("a<think>b</think>", 17));
    assert_false(vt_text_ends_thinking("a", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_of_each_form_gives_its_pieces),
        cmocka_unit_test(test_answer_split_anywhere_adds_up_to_the_whole),
        cmocka_unit_test(test_call_that_is_too_long_when_it_comes_then_it_is_text),
        cmocka_unit_test(test_form_of_a_template_is_the_one_it_asks_for),
        cmocka_unit_test(test_prompt_that_ends_inside_of_a_thought_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
