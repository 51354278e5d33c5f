/* Answers taken apart: tool calls of each form, reasoning, and the property that the pieces do not
 * depend on how the bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/answer/answer.h"
#include "text/template/template.h"

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": "
    "\"string\"}, \"b\": {\"type\": [\"string\", \"integer\"], \"enum\": [\"7\", \"8\"]}}}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

/* DeepSeek's markers. */
#define BAR "\xef\xbd\x9c"
#define BLANK "\xe2\x96\x81"
#define CALLS "<" BAR "tool" BLANK "calls" BLANK "begin" BAR ">"
#define CALL "<" BAR "tool" BLANK "call" BLANK "begin" BAR ">"
#define SEP "<" BAR "tool" BLANK "sep" BAR ">"
#define CALL_END "<" BAR "tool" BLANK "call" BLANK "end" BAR ">"
#define CALLS_END "<" BAR "tool" BLANK "calls" BLANK "end" BAR ">"

typedef struct sums {
    vt_buf text;
    int last;
    const vt_answer_reader *r;
} sums;

/* Adds pieces up as a text: R and T of reasoning and content, [name]arguments of calls. */
static void add_up(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    sums *s = user;
    if (s->last != (int)kind && kind <= VT_PIECE_REASONING)
        vt_buf_puts(&s->text, kind == VT_PIECE_TEXT ? "|T:" : "|R:");
    if (kind == VT_PIECE_CALL)
        vt_buf_puts(&s->text, "|C:");
    if (kind == VT_PIECE_ARGUMENTS && s->last == VT_PIECE_CALL)
        vt_buf_putc(&s->text, '=');
    if (kind == VT_PIECE_CALL_BROKEN)
        vt_buf_putc(&s->text, '!');
    vt_buf_add(&s->text, bytes, n);
    if (s->r->call_id)
        vt_buf_printf(&s->text, "#%s", s->r->call_id);
    s->last = (int)kind;
}

enum { THINK = 4 * VT_THOUGHTS_THINK, INSIDE = 1 };

typedef struct example {
    vt_call_form form;
    int thinks; /* 4 times a vt_thought_form, and INSIDE where the prompt has opened it */
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
    {VT_CALLS_HERMES, THINK,
     "<think>\n a </thin b\n</think>\n\n<tool_call>{\"name\":\"now\"}</tool_call>",
     "|R:a </thin b|C:now={}"},
    {VT_CALLS_HERMES, THINK, "\n <thing> \xc3\xa9", "|T:\n <thing> \xc3\xa9"},
    {VT_CALLS_NONE, THINK | INSIDE, "because\n</think>\n\nYes.", "|R:because|T:Yes."},
    {VT_CALLS_NONE, THINK | INSIDE, "because", "|R:because"},
    {VT_CALLS_NONE, THINK, "<think>\n\n</think>\n\nYes", "|T:Yes"},
    {VT_CALLS_XML, 0,
     "<tool_call>\n<function=add>\n<parameter=a>\n12\n</parameter>\n<parameter=s>\n</parameter> "
     "\"x\"\n\n</parameter>\n</function>\n</tool_call>",
     "|C:add={\"a\": 12, \"s\": \"</parameter> \\\"x\\\"\\n\"}"},
    {VT_CALLS_XML, 0,
     "<tool_call><function=add><parameter=s>7</parameter><parameter=a>x</parameter><parameter=z>"
     "True</parameter></function></tool_call>",
     "|C:add={\"s\": \"7\", \"a\": \"x\", \"z\": true}"},
    {VT_CALLS_XML, 0, "<tool_call><function=add></tool_call>", "|C:add={}"},
    {VT_CALLS_XML, 0, "<tool_call><function=add><parameter=b>7</parameter></function></tool_call>",
     "|C:add={\"b\": \"7\"}"},
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
    {VT_CALLS_PYTHONIC, 0, "[add(s='\\ud800')]", "|T:[add(s='\\ud800')]"},
    {VT_CALLS_PYTHONIC, 0, "[add(1a=2)]", "|T:[add(1a=2)]"},
    {VT_CALLS_LLAMA, 0, "{\"name\": \"add\", \"parameters\": [1]}",
     "|T:{\"name\": \"add\", \"parameters\": [1]}"},
    {VT_CALLS_PYTHONIC, 0, "[open()]", "|T:[open()]"},
    {VT_CALLS_MISTRAL, 0,
     " [{\"name\": \"add\", \"arguments\": {\"s\": \"]\"}, \"id\": \"012345678\"}, {\"name\": "
     "\"now\", \"arguments\": {}}]",
     "|C:add={\"s\": \"]\"}|C:now={}"},
    {VT_CALLS_MISTRAL, 0, "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}]", "|C:now={}"},
    {VT_CALLS_MISTRAL, 0, "[1]", "|T:[1]"},
    {VT_CALLS_MISTRAL, 0, "[TOOL_CALLS]a{b[ARGS]{}", "|T:[TOOL_CALLS]a{b[ARGS]{}"},
    /* the pieces of a call as they come: cut off, or no JSON */
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [1, \"x",
     "|C:add={\"a\": [1, \"x!"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\" 1}}</tool_call> Hm",
     "|C:add={\"a\" 1}}!|T: Hm"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"a\nb\t\"}}</tool_call>",
     "|C:add={\"s\": \"a\\nb\\t\"}"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "|C:add={\"a\": 1}"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1.5.2}}</tool_call>",
     "|C:add={\"a\": 1.5.2}}!"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"\\ude00\"}}</tool_call>",
     "|C:add={\"s\": \"\\ude00\"}}!"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": trye}}</tool_call>",
     "|C:add={\"a\": trye}}!"},
    {VT_CALLS_HERMES, 0, "<tool_call>{\"name\": \"now\"}<tool_call>{\"name\": \"now\"}",
     "|C:now={}|C:now={}"},
    {VT_CALLS_HERMES, 0, "<tool_call>no <tool_call>{\"name\": \"now\"}</tool_call>",
     "|T:<tool_call>no|C:now={}"},
    {VT_CALLS_HERMES, 0,
     "<tool_call>[{\"name\": \"now\"}, {\"name\": \"add\", \"arguments\": "
     "{\"a\": 1}, \"id\": [\"}\"]}]</tool_call>",
     "|C:now={}|C:add={\"a\": 1}"},
    {VT_CALLS_XML, THINK, "<think>I\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "|R:I|C:now={}"},
    {VT_CALLS_XML, 0,
     "<seed:tool_call>\n<function=add><parameter=s>a\n\nb\n\n</parameter>"
     "</function>\n</seed:tool_call>",
     "|C:add={\"s\": \"a\\n\\nb\\n\"}"},
    {VT_CALLS_XML, 0, "<tool_call><function=add><parameter=s>half</par",
     "|C:add={\"s\": \"half</par!"},
    {VT_CALLS_LLAMA, 0, "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "|C:now={}"},
    {VT_CALLS_LLAMA, 0, "<|python_tag|>brave_search.call(query=\"a b\")",
     "|C:brave_search={\"query\": \"a b\"}"},
    {VT_CALLS_PYTHONIC, 0, "Well. <|python_start|>[now()]<|python_end|> So",
     "|T:Well.|C:now={}|T: So"},
    {VT_CALLS_MISTRAL, THINK,
     "[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"a\": 1}[TOOL_CALLS]now[ARGS]{}",
     "|C:add#abcdefghi={\"a\": 1}|C:now={}"},
    {VT_CALLS_MISTRAL, 4 * VT_THOUGHTS_BRACKET, "[THINK]Hm[/THINK]Yes [1]", "|R:Hm|T:Yes [1]"},
    {VT_CALLS_MISTRAL, 0, "[TOOL_CALLS]add[ARGS]{\"a\": }[TOOL_CALLS]now[ARGS]{}",
     "|C:add={\"a\": }!|C:now={}"},
    {VT_CALLS_GRANITE, 0, "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
     "|C:add={\"a\": 1}"},
    {VT_CALLS_GRANITE, THINK, "<think>Hm</think>\n<response>Yes</response>", "|R:Hm|T:Yes"},
    {VT_CALLS_PHI, 0, "functools[{\"name\": \"now\", \"arguments\": {}}]", "|C:now={}"},
    {VT_CALLS_PHI, 0, "functools are [1]", "|T:functools are [1]"},
    {VT_CALLS_COHERE, 4 * VT_THOUGHTS_COHERE,
     "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "|R:Hm|C:add={\"a\": 1}"},
    {VT_CALLS_COHERE, 0, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "|T:Yes."},
    {VT_CALLS_NEMOTRON, 0, "Now.\n<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
     "|T:Now.|C:now={}"},
    {VT_CALLS_HUNYUAN, 0, "<tool_calls>[{\"name\": \"now\", \"arguments\": {}}]</tool_calls>",
     "|C:now={}"},
    {VT_CALLS_HUNYUAN, THINK, "<think>\nHm\n</think>\n<answer>\nYes.\n</answer>", "|R:Hm|T:Yes."},
    {VT_CALLS_OLMO, 0, "<function_calls>add(a=1, s='x')\nnow()\n</function_calls>",
     "|C:add={\"a\": 1, \"s\": \"x\"}|C:now={}"},
    {VT_CALLS_OLMO, 0, "Well.\n<function_calls>[add(a=null), now()]</function_calls> So",
     "|T:Well.|C:add={\"a\": null}|C:now={}|T: So"},
    {VT_CALLS_OLMO, 0, "<function_calls>add(a=1) and</function_calls>",
     "|T:<function_calls>add(a=1) and</function_calls>"},
    {VT_CALLS_LFM, 0, "<|tool_call_start|>[add(a=1), now()]<|tool_call_end|>Wait.",
     "|C:add={\"a\": 1}|C:now={}|T:Wait."},
    {VT_CALLS_LFM, 0,
     "<|tool_call_start|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]"
     "<|tool_call_end|>",
     "|C:add={\"a\": 1}"},
    {VT_CALLS_LFM, 0, "<|tool_call_start|>add<|tool_call_end|>",
     "|T:<|tool_call_start|>add<|tool_call_end|>"},
    {VT_CALLS_DEEPSEEK_V3, THINK | INSIDE,
     "Hm</think>" CALLS CALL "function" SEP "add\n```json\n{\"a\": 1}\n```" CALL_END "\n" CALL
     "function" SEP "now\n```json\n{}\n```" CALL_END CALLS_END,
     "|R:Hm|C:add={\"a\": 1}|C:now={}"},
    {VT_CALLS_DEEPSEEK_V31, 0,
     "I do." CALLS CALL "add" SEP "{\"a\": 1}" CALL_END CALL "now" SEP CALL_END CALLS_END,
     "|T:I do.|C:add={\"a\": 1}|C:now={}"},
    {VT_CALLS_DEEPSEEK_V31, THINK | INSIDE, "Hm" CALLS CALL "now" SEP "{}", "|R:Hm|C:now={}"},
    {VT_CALLS_DSML, THINK | INSIDE,
     "Hm</think>\n\n<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR
     "invoke name=\"add\">\n<" BAR "DSML" BAR "parameter name=\"z\" string=\"true\">1</" BAR
     "DSML" BAR "parameter>\n<" BAR "DSML" BAR "parameter name=\"a\" string=\"false\">[1]</" BAR
     "DSML" BAR "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR "DSML" BAR "function_calls>",
     "|R:Hm|C:add={\"z\": \"1\", \"a\": [1]}"},
    {VT_CALLS_KIMI_K2, 0,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:3<|tool_call_argument_begin|>"
     "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>now:4<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "|C:add#functions.add:3={\"a\": 1}|C:now#now:4={}"},
    {VT_CALLS_KIMI_K3, 4 * VT_THOUGHTS_KIMI | INSIDE,
     "Hm<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools<|sep|"
     ">"
     "<|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"&quot;k\" type=\"string\""
     "<|sep|>1\n<|close|>argument<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>2"
     "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|end_of_msg|>",
     "|R:Hm|T:Yes.|C:add={\"\\\"k\": \"1\\n\", \"a\": 2}"},
    {VT_CALLS_KIMI_K3, 4 * VT_THOUGHTS_KIMI | INSIDE,
     "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>"
     "<|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>json type=\"object\"<|sep|>{\"a\": "
     "[1]}<|close|>json<|sep|><|close|>call<|sep|><|open|>call tool=\"now\" index=\"2\"<|sep|>"
     "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
     "|C:add={\"a\": [1]}|C:now={}"},
    {VT_CALLS_KIMI_K3, 0,
     "<|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>json type=\"object\""
     "<|sep|>{\"a\" 1}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>So",
     "|C:add={\"a\" 1}!|T:So"},
    {VT_CALLS_KIMI_K3, 4 * VT_THOUGHTS_KIMI,
     "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>"
     "<|close|>message<|sep|>",
     "|T:Yes."},
    {VT_CALLS_GLM, THINK,
     "<think>Hm</think>\n<tool_call>add\n<arg_key>s</arg_key>\n<arg_value>\nx </arg_value>\n"
     "<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
     "|R:Hm|C:add={\"s\": \"\\nx \", \"a\": 2}|C:now={}"},
    {VT_CALLS_GLM, 0, "<tool_call>add<arg_key>a</arg_key><arg_value>2</arg_value></tool_call>",
     "|C:add={\"a\": 2}"},
    {VT_CALLS_GEMMA, 4 * VT_THOUGHTS_GEMMA,
     "<|channel>thought\nHm\n<channel|><|tool_call>call:add{a:1,s:<|\"|>x, \"y\" "
     "{<|\"|>,l:[true,{<|\"|>k"
     "<|\"|>:null}]}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "|R:Hm|C:add={\"a\": 1, \"s\": \"x, \\\"y\\\" {\", \"l\": [true, {\"k\": null}]}|C:now={}"},
    {VT_CALLS_MINIMAX, THINK | INSIDE,
     "Hm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"s\">a < b"
     "</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
     "|R:Hm|C:add={\"s\": \"a < b\"}|C:now={}"},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY,
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>analysis<|message|>Ha<|"
     "end|>"
     "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>"
     "commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "|R:Hm\nHa|T:I look.|C:add={\"a\": 1}"},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY,
     " to=functions.now<|channel|>commentary json<|message|>{}", "|C:now={}"},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY, "<|channel|>final<|message|>Yes.<|return|>",
     "|T:Yes."},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY,
     "<|channel|>commentary to=functions.add<|message|>{\"a\": ", "|C:add={\"a\": !"},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY,
     " to=browser.search_all<|channel|>commentary json<|message|>{}<|call|>", "|R:{}"},
    {VT_CALLS_HARMONY, 4 * VT_THOUGHTS_HARMONY, "Just text <|x|>", "|T:Just text <|x|>"},
};

enum { N_EXAMPLES = sizeof examples / sizeof *examples };

/* The sum of an answer's pieces, fed in pieces that end at `cut`, or of `each` bytes. */
static char *read_answer(const example *x, size_t cut, size_t each)
{
    sums s = {.last = -1};
    json_t *tools = json_loads(tools_json, 0, NULL);
    vt_answer_reader r = {.form = x->form,
                          .calls = x->form != VT_CALLS_NONE,
                          .thoughts = x->thinks / 4,
                          .began_inside = x->thinks & INSIDE,
                          .tools = tools,
                          .take = add_up,
                          .user = &s};
    vt_buf_init(&s.text, 0);
    s.r = &r;
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

/* ---- a template's own turns ---- */

static const struct turn {
    const char *path;
    vt_call_form form;
    vt_thought_form thoughts;
    const char *end; /* of the turn, a token that ends answers */
} turns[] = {
    {"tests/golden/templates/qwen3_5.jinja", VT_CALLS_XML, VT_THOUGHTS_THINK, "<|im_end|>"},
    {"tests/golden/templates/kimi_k3.jinja", VT_CALLS_KIMI_K3, VT_THOUGHTS_KIMI, "<|end_of_msg|>"},
};

static const char history[] =
    "{\"role\": \"assistant\", \"reasoning_content\": \"Hm.\\nSo\", \"content\": \"I look.\", "
    "\"tool_calls\": [{\"function\": {\"name\": \"add\", \"arguments\": {\"a\": 5, \"s\": \"x "
    "\\\"y\\\" "
    "<b>\\n</parameter> &quot; \xc3\xa9\", \"&l\": [1, {\"k\": null}], \"t\": true}}}, "
    "{\"function\": {\"name\": \"now\", \"arguments\": {}}}]}";
static const char pieces_of_history[] = "|R:Hm.\nSo|T:I look.|C:add={\"a\": 5, \"s\": \"x "
                                        "\\\"y\\\" <b>\\n</parameter> &quot; \xc3\xa9\", "
                                        "\"&l\": [1, {\"k\": null}], \"t\": true}|C:now={}";

/* Renders a question, or that and the answer above. */
static char *render(const vt_template *t, bool answered)
{
    vt_buf vars, out;
    vt_err err;
    vt_buf_init(&vars, 0);
    vt_buf_init(&out, 0);
    vt_buf_printf(&vars, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}%s%s]%s}",
                  answered ? ", " : "", answered ? history : "",
                  answered ? "" : ", \"add_generation_prompt\": true");
    assert_int_equal(vt_template_render(t, vars.data, vars.len, NULL, &out, &err), VT_OK);
    vt_buf_release(&vars);
    vt_buf_putc(&out, 0);
    return out.data;
}

static vt_template *load_template(const char *path)
{
    vt_template *t = NULL;
    vt_err err;
    char source[8192];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(source, 1, sizeof source - 1, f);
    fclose(f);
    source[n] = 0;
    assert_int_equal(vt_template_parse(path, source, n, &t, &err), VT_OK);
    return t;
}

/* A template writes a turn with a thought, text and calls as the model would have written it behind
 * the turn's prompt: read back, however it is cut, it is the same turn. */
static void test_turn_of_a_template_read_back_is_the_same_turn(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        vt_template *t = load_template(turns[i].path);
        char *prompt = render(t, false), *whole = render(t, true);
        size_t n = strlen(prompt);
        assert_memory_equal(whole, prompt, n);
        assert_int_equal(vt_call_form_of(vt_template_source(t)), turns[i].form);
        assert_int_equal(vt_thought_form_of(vt_template_source(t)), turns[i].thoughts);
        assert_true(vt_text_ends_thinking(turns[i].thoughts, prompt, n));
        *strstr(whole + n, turns[i].end) = 0;
        example x = {turns[i].form, 4 * (int)turns[i].thoughts | INSIDE, whole + n, NULL};
        for (size_t cut = 0; cut <= strlen(x.answer) + 3; cut++) {
            size_t each = cut > strlen(x.answer) ? cut - strlen(x.answer) : 0;
            char *parts = read_answer(&x, cut, each);
            assert_string_equal(parts, pieces_of_history);
            free(parts);
        }
        free(prompt);
        free(whole);
        vt_template_free(t);
    }
}

/* ---- forms ---- */

static void test_every_form_has_an_example(void **state)
{
    (void)state;
    bool seen[VT_CALL_FORMS] = {[VT_CALLS_NONE] = true};
    for (int i = 0; i < N_EXAMPLES; i++)
        seen[examples[i].form] |= strstr(examples[i].expected, "|C:") != NULL;
    for (int form = 0; form < VT_CALL_FORMS; form++)
        assert_true(seen[form]);
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
    assert_int_equal(vt_call_form_of("tools <functions></functions> <function_calls>"),
                     VT_CALLS_OLMO);
    assert_int_equal(vt_call_form_of("tools [TOOL_CALLS]"), VT_CALLS_MISTRAL);
    assert_int_equal(vt_call_form_of("tools [TOOL_CALLS]N[ARGS]"), VT_CALLS_MISTRAL);
    assert_int_equal(vt_call_form_of("<tool_call>"), VT_CALLS_NONE);
}

static void test_prompt_that_ends_inside_of_a_thought_is_known(void **state)
{
    (void)state;
    assert_true(vt_text_ends_thinking(VT_THOUGHTS_THINK, "a<think>b</think><think>\n", 25));
    assert_false(vt_text_ends_thinking(VT_THOUGHTS_THINK, "a<think>b</think>", 17));
    assert_false(vt_text_ends_thinking(VT_THOUGHTS_THINK, "a", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_of_each_form_gives_its_pieces),
        cmocka_unit_test(test_answer_split_anywhere_adds_up_to_the_whole),
        cmocka_unit_test(test_turn_of_a_template_read_back_is_the_same_turn),
        cmocka_unit_test(test_every_form_has_an_example),
        cmocka_unit_test(test_call_that_is_too_long_when_it_comes_then_it_is_text),
        cmocka_unit_test(test_form_of_a_template_is_the_one_it_asks_for),
        cmocka_unit_test(test_prompt_that_ends_inside_of_a_thought_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
