/* Grammars of tool calls: an answer that is one call or several, each with a tool's name and
 * arguments by its schema.
 *
 *   {"form": "hermes", "several": true, "tools": [{"name": "add", "strict": false, "parameters":
 *    {...}}]}
 *
 *   answer  -> begin before call more after  more -> | between call more
 *   call    -> open "add" middle {arguments} close | ...      one alternative a tool
 *
 * With "optional": true the model decides whether it calls: the grammar begins behind the opening
 * by which it does, and without `begin`.
 *
 * The spellings of special tokens stand for these tokens where the vocabulary has them. '#' is a
 * number. */
#include <stdio.h>
#include <string.h>

#include "grammar/internal.h"

typedef struct call_form {
    const char *name, *begin, *before, *open, *middle, *close, *between, *after;
    call_opening opening;
    argument_form arguments; /* zero: JSON */
} call_form;

#define BAR "\xef\xbd\x9c"
#define BLANK "\xe2\x96\x81"
#define CALLS_BEGIN "<" BAR "tool" BLANK "calls" BLANK "begin" BAR ">"
#define CALL_BEGIN "<" BAR "tool" BLANK "call" BLANK "begin" BAR ">"
#define SEPARATOR "<" BAR "tool" BLANK "sep" BAR ">"
#define CALL_END "<" BAR "tool" BLANK "call" BLANK "end" BAR ">"
#define CALLS_END "<" BAR "tool" BLANK "calls" BLANK "end" BAR ">"
#define DSML "<" BAR "DSML" BAR
#define DSML_CLOSE "</" BAR "DSML" BAR
#define DSML_ARGUMENTS                                                                       \
    {                                                                                        \
        WRITE_TAGS, DSML "parameter name=\"", "\" string=\"%\">", DSML_CLOSE "parameter>\n", \
            {DSML_CLOSE "parameter>"}, TYPES_TRUE_FALSE                                      \
    }
#define HARMONY_CALL "<|channel|>commentary to=functions."

/* name, begin, before, open, middle, close, between, after, opening */
static const call_form forms[] = {
    {"hermes",
     "<tool_call>",
     "",
     "\n{\"name\": \"",
     "\", \"arguments\": ",
     "}\n</tool_call>",
     "\n<tool_call>",
     "",
     {"<tool_call>", false}},
    {"llama3-json",
     "{\"name\": \"",
     "",
     "",
     "\", \"parameters\": ",
     "}",
     "; {\"name\": \"",
     "",
     {"{\"name\": \"", true}},
    {"mistral",
     "",
     "[",
     "{\"name\": \"",
     "\", \"arguments\": ",
     "}",
     ", ",
     "]",
     {"[TOOL_CALLS]", true}},
    {"mistral-args",
     "[TOOL_CALLS]",
     "",
     "",
     "[ARGS]",
     "",
     "[TOOL_CALLS]",
     "",
     {"[TOOL_CALLS]", false}},
    {"granite",
     "<|tool_call|>",
     "[",
     "{\"name\": \"",
     "\", \"arguments\": ",
     "}",
     ", ",
     "]",
     {"<|tool_call|>", false}},
    {"phi4",
     "functools",
     "[",
     "{\"name\": \"",
     "\", \"arguments\": ",
     "}",
     ", ",
     "]",
     {"functools", true}},
    {"cohere",
     "<|START_ACTION|>",
     "[\n    ",
     "{\"tool_call_id\": \"#\", \"tool_name\": \"",
     "\", \"parameters\": ",
     "}",
     ",\n    ",
     "\n]<|END_ACTION|>",
     {"<|START_ACTION|>", false}},
    {"hunyuan",
     "<tool_calls>",
     "[",
     "{\"name\": \"",
     "\", \"arguments\": ",
     "}",
     ", ",
     "]</tool_calls>",
     {"<tool_calls>", false}},
    {"deepseek-v3",
     CALLS_BEGIN,
     "",
     CALL_BEGIN "function" SEPARATOR,
     "\n```json\n",
     "\n```" CALL_END,
     "\n",
     CALLS_END,
     {CALLS_BEGIN, false}},
    {"deepseek-v31",
     CALLS_BEGIN,
     "",
     CALL_BEGIN,
     SEPARATOR,
     CALL_END,
     "",
     CALLS_END,
     {CALLS_BEGIN, false}},
    {"kimi-k2",
     "<|tool_calls_section_begin|>",
     "",
     "<|tool_call_begin|>functions.",
     ":#<|tool_call_argument_begin|>",
     "<|tool_call_end|>",
     "",
     "<|tool_calls_section_end|>",
     {"<|tool_calls_section_begin|>", false}},
    {"qwen-xml",
     "<tool_call>",
     "",
     "\n<function=",
     ">\n",
     "</function>\n</tool_call>",
     "\n<tool_call>",
     "",
     {"<tool_call>", false},
     {WRITE_TAGS, "<parameter=", ">\n", "\n</parameter>\n", {"</parameter>"}}},
    {"seed-xml",
     "<seed:tool_call>",
     "",
     "\n<function=",
     ">\n",
     "</function>\n</seed:tool_call>",
     "\n<seed:tool_call>",
     "",
     {"<seed:tool_call>", false},
     {WRITE_TAGS, "<parameter=", ">\n", "\n</parameter>\n", {"</parameter>"}}},
    {"glm",
     "<tool_call>",
     "",
     "",
     "~",
     "</tool_call>",
     "~<tool_call>",
     "",
     {"<tool_call>", false},
     {WRITE_TAGS, "<arg_key>", "</arg_key>~<arg_value>", "</arg_value>~", {"</arg_value>"}}},
    {"minimax-m2",
     "<minimax:tool_call>",
     "\n",
     "<invoke name=\"",
     "\">\n",
     "</invoke>\n",
     "",
     "</minimax:tool_call>",
     {"<minimax:tool_call>", false},
     {WRITE_TAGS, "<parameter name=\"", "\">", "</parameter>\n", {"</parameter>"}}},
    {"deepseek-dsml",
     "~~" DSML "function_calls>",
     "\n",
     DSML "invoke name=\"",
     "\">\n",
     DSML_CLOSE "invoke>\n",
     "",
     DSML_CLOSE "function_calls>",
     {DSML "function_calls>", false},
     DSML_ARGUMENTS},
    {"deepseek-dsml-v4",
     "~~" DSML "tool_calls>",
     "\n",
     DSML "invoke name=\"",
     "\">\n",
     DSML_CLOSE "invoke>\n",
     "",
     DSML_CLOSE "tool_calls>",
     {DSML "tool_calls>", false},
     DSML_ARGUMENTS},
    {"kimi-k3",
     "<|open|>tools<|sep|>",
     "",
     "<|open|>call tool=\"",
     "\" index=\"#\"<|sep|>",
     "<|close|>call<|sep|>",
     "",
     "<|close|>tools<|sep|>",
     {"<|open|>tools<|sep|>", false},
     {WRITE_TAGS,
      "<|open|>argument key=\"",
      "\" type=\"%\"<|sep|>",
      "<|close|>argument<|sep|>",
      {"<|close|>argument<|sep|>"},
      TYPES_NAMED}},
    {"pythonic",
     "[",
     "",
     "",
     "(",
     ")",
     ", ",
     "]",
     {"[", true},
     {WRITE_PYTHON, .banned = {"<|python_end|>"}}},
    {"lfm2",
     "<|tool_call_start|>",
     "[",
     "",
     "(",
     ")",
     ", ",
     "]<|tool_call_end|>",
     {"<|tool_call_start|>", false},
     {WRITE_PYTHON, .banned = {"<|tool_call_end|>"}}},
    {"olmo3",
     "<function_calls>",
     "",
     "",
     "(",
     ")",
     "\n",
     "</function_calls>",
     {"<function_calls>", false},
     {WRITE_PYTHON, .banned = {"</function_calls>"}}},
    {"gemma4",
     "<|tool_call>",
     "",
     "call:",
     "",
     "<tool_call|>",
     "<|tool_call>",
     "",
     {"<|tool_call>", false},
     {WRITE_GEMMA, .banned = {"<|\"|>", "<tool_call|>"}}},
    {"harmony", HARMONY_CALL, "", "", NULL, "", NULL, "", {"to=functions.", false}},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static rx digit(rules *g)
{
    rx each[10];
    for (int i = 0; i < 10; i++)
        each[i] = rx_string(&g->rx, &"0123456789"[i], 1);
    return rx_alt(&g->rx, each, 10);
}

/* A text up to a '#' or '~', with special tokens. */
static rx plain_text(rules *g, const vt_grammar_vocab *v, const char *text, size_t n)
{
    char part[512];
    vt_buf marked = {0};
    n = n < sizeof part ? n : sizeof part - 1;
    memcpy(part, text, n);
    part[n] = 0;
    g->failed |= !grammar_vocab_mark(v, part, &marked);
    rx made = rx_string(&g->rx, marked.data ? marked.data : "", marked.len);
    vt_buf_release(&marked);
    return made;
}

rx calls_text(rules *g, const vt_grammar_vocab *v, const char *text)
{
    rx made = RX_EMPTY;
    while (*text) {
        size_t n = strcspn(text, "#~");
        made = rx_cat(&g->rx, made, plain_text(g, v, text, n));
        text += n;
        if (*text == '#')
            made = rx_cat(&g->rx, made, rx_repeat(&g->rx, digit(g), 1, 4));
        if (*text == '~')
            made = rx_cat(&g->rx, made, rx_repeat(&g->rx, rx_string(&g->rx, "\n", 1), 0, 1));
        text += *text != 0;
    }
    return made;
}

/* The same as a symbol. Returns how many there are: none of an empty text. */
static int32_t marked(rules *g, const vt_grammar_vocab *v, const char *text, symbol *out)
{
    if (!*text)
        return 0;
    *out = rules_lexeme(g, calls_text(g, v, text));
    return 1;
}

/* ---- gpt-oss ----
 *
 * Its reasoning is a message of the answer, and a call is another one. The header of a call may
 * name the channel in front of the function or behind it. */

/* The text between the function's name and its arguments. */
static rx harmony_middle(rules *g, const vt_grammar_vocab *v)
{
    rx_store *x = &g->rx;
    rx blank = rx_repeat(x, rx_string(x, " ", 1), 0, 1);
    rx channel = rx_cat(x, blank, calls_text(g, v, "<|channel|>commentary"));
    rx json = rx_alt2(x, rx_cat(x, blank, calls_text(g, v, "<|constrain|>json")),
                      rx_string(x, " json", 5));
    rx header = rx_cat(x, rx_repeat(x, channel, 0, 1), rx_repeat(x, json, 0, 1));
    return rx_cat(x, header, calls_text(g, v, "<|message|>"));
}

/* Lets a message of reasoning stand in front of the answer. */
static symbol behind_reasoning(rules *g, const vt_grammar_vocab *v, symbol answer)
{
    static const char *const ends[] = {"<|end|>", "<|start|>", "<|call|>", "<|return|>",
                                       "<|channel|>"};
    rx_store *x = &g->rx;
    rules_raw(g);
    rx text = x->raw;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        rx end = rx_string(x, ends[i], strlen(ends[i]));
        text = rx_and2(x, text, rx_not(x, rx_cat(x, RX_ALL, rx_cat(x, end, RX_ALL))));
    }
    rx message = rx_cat(x, calls_text(g, v, "<|channel|>analysis<|message|>"),
                        rx_cat(x, text, calls_text(g, v, "<|end|><|start|>assistant")));
    symbol whole = rules_new(g, "answer"), s[2] = {rules_lexeme(g, message), answer};
    rules_add(g, whole, s, 2);
    rules_add(g, whole, &answer, 1);
    return whole;
}

static bool is_object(const json_t *type)
{
    const char *name = json_string_value(type);
    return name && strcmp(name, "object") == 0;
}

/* Narrows a schema to objects. One whose type leaves objects out is refused: what its function
 * would be called with were no arguments. */
static vt_status objects_only(json_t *schema, vt_err *why)
{
    const json_t *type = json_object_get(schema, "type");
    bool allows = !type || is_object(type);
    for (size_t i = 0; i < json_array_size(type); i++)
        allows |= is_object(json_array_get(type, i));
    if (!allows)
        return vt_fail(why, VT_ERR_USAGE, "#/type: arguments are an object, which it leaves out");
    return json_object_set_new(schema, "type", json_string("object")) == 0
               ? VT_OK
               : vt_fail(why, VT_ERR_MEMORY, "out of memory for a grammar");
}

/* The arguments are an object, whatever else the schema says. */
static vt_status arguments(rules *g, const vt_grammar_vocab *v, const call_form *form,
                           const json_t *tool, symbol *out, vt_err *err)
{
    const json_t *given = json_object_get(tool, "parameters");
    json_t *schema = json_is_object(given) ? json_copy((json_t *)(uintptr_t)given) : json_object();
    vt_err why;
    bool closed = json_is_true(json_object_get(tool, "strict"));
    vt_status status = schema ? objects_only(schema, &why)
                              : vt_fail(&why, VT_ERR_MEMORY, "out of memory for a grammar");
    if (status == VT_OK)
        status = schema_compile_arguments(g, schema, closed, &form->arguments, v, out, &why);
    json_decref(schema);
    return status == VT_OK ? VT_OK
                           : vt_fail(err, status, "%.60s: %s",
                                     json_string_value(json_object_get(tool, "name")), why.message);
}

static vt_status add_call(rules *g, const vt_grammar_vocab *v, const call_form *form,
                          const json_t *tool, symbol call, vt_err *err)
{
    static const char odd[] = "\"\\#~%<>[]{}()= \n";
    char open[512];
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (!name || !*name || strpbrk(name, odd) || strlen(name) > 128)
        return vt_fail(
            err, VT_ERR_USAGE,
            "tools: a name is missing, longer than 128 bytes, or holds a blank or one of "
            "\" \\ # ~ %% < > [ ] { } ( ) =");
    if (form->arguments.writing == WRITE_PYTHON && strspn(name, "0123456789.-") > 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "tools: '%s' is no name in Python, which this model's calls are written in",
                       name);
    symbol s[9];
    int32_t n = marked(g, v, form->open, s);
    snprintf(open, sizeof open, "%s%s", name, form->middle ? form->middle : "");
    n += marked(g, v, open, s + n);
    if (!form->middle)
        s[n++] = rules_lexeme(g, harmony_middle(g, v));
    TRY(arguments(g, v, form, tool, &s[n++], err));
    n += marked(g, v, form->close, s + n);
    rules_add(g, call, s, n);
    return VT_OK;
}

/* answer -> begin before call more after */
static symbol add_answer(rules *g, const vt_grammar_vocab *v, const call_form *form, symbol call,
                         symbol more, bool optional)
{
    symbol answer = rules_new(g, "answer"), whole[12];
    int32_t n = 0;
    if (!optional)
        n += marked(g, v, form->begin, whole);
    if (optional && form->before[0]) /* some vocabularies have a blank behind their marker */
        whole[n++] = rules_lexeme(g, rx_repeat(&g->rx, rx_string(&g->rx, " ", 1), 0, 1));
    n += marked(g, v, form->before, whole + n);
    whole[n++] = call;
    whole[n++] = more;
    n += marked(g, v, form->after, whole + n);
    rules_add(g, answer, whole, n);
    return answer;
}

vt_status calls_compile(rules *g, const vt_grammar_vocab *v, const json_t *calls, symbol *root,
                        call_opening *opening, vt_err *err)
{
    const char *name = json_string_value(json_object_get(calls, "form"));
    const json_t *tools = json_object_get(calls, "tools");
    const call_form *form = NULL;
    for (int i = 0; name && i < N_FORMS; i++)
        if (strcmp(forms[i].name, name) == 0)
            form = &forms[i];
    if (!form)
        return vt_fail(err, VT_ERR_USAGE,
                       "form: calls of form '%.40s' have no grammar, so they can be neither "
                       "forced nor strict",
                       name ? name : "");
    if (json_array_size(tools) == 0)
        return vt_fail(err, VT_ERR_USAGE, "tools: expected a list of tools");
    symbol call = rules_new(g, "call"), more = rules_new(g, NULL);
    for (size_t i = 0; i < json_array_size(tools); i++)
        TRY(add_call(g, v, form, json_array_get(tools, i), call, err));
    rules_add(g, more, NULL, 0);
    if (form->between && json_is_true(json_object_get(calls, "several"))) {
        symbol again[5];
        int32_t n = marked(g, v, form->between, again);
        again[n++] = call;
        again[n++] = more;
        rules_add(g, more, again, n);
    }
    bool optional = json_is_true(json_object_get(calls, "optional"));
    *root = add_answer(g, v, form, call, more, optional);
    if (!form->middle && !optional)
        *root = behind_reasoning(g, v, *root);
    *opening = optional ? form->opening : (call_opening){0};
    return VT_OK;
}
