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
} call_form;

#define BAR "\xef\xbd\x9c"
#define BLANK "\xe2\x96\x81"
#define CALLS_BEGIN "<" BAR "tool" BLANK "calls" BLANK "begin" BAR ">"
#define CALL_BEGIN "<" BAR "tool" BLANK "call" BLANK "begin" BAR ">"
#define SEPARATOR "<" BAR "tool" BLANK "sep" BAR ">"
#define CALL_END "<" BAR "tool" BLANK "call" BLANK "end" BAR ">"
#define CALLS_END "<" BAR "tool" BLANK "calls" BLANK "end" BAR ">"

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
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static rx digit(rules *g)
{
    rx each[10];
    for (int i = 0; i < 10; i++)
        each[i] = rx_string(&g->rx, &"0123456789"[i], 1);
    return rx_alt(&g->rx, each, 10);
}

/* A text as symbols, at most three: what stands in front of '#', a number, and the rest. */
static int32_t marked(rules *g, const vt_grammar_vocab *v, const char *text, symbol *out)
{
    vt_buf part[2] = {{0}, {0}};
    char before[256];
    const char *number = strchr(text, '#');
    size_t n = number ? (size_t)(number - text) : strlen(text);
    int32_t count = 0;
    n = n < sizeof before ? n : sizeof before - 1;
    memcpy(before, text, n);
    before[n] = 0;
    bool ok = grammar_vocab_mark(v, before, &part[0]) &&
              (!number || grammar_vocab_mark(v, number + 1, &part[1]));
    g->failed |= !ok;
    if (ok && part[0].len > 0)
        out[count++] = rules_lexeme(g, rx_string(&g->rx, part[0].data, part[0].len));
    if (number)
        out[count++] = rules_lexeme(g, rx_repeat(&g->rx, digit(g), 1, 4));
    if (ok && part[1].len > 0)
        out[count++] = rules_lexeme(g, rx_string(&g->rx, part[1].data, part[1].len));
    vt_buf_release(&part[0]);
    vt_buf_release(&part[1]);
    return count;
}

/* The arguments are an object, whatever else the schema says. */
static vt_status arguments(rules *g, const json_t *tool, symbol *out, vt_err *err)
{
    const json_t *given = json_object_get(tool, "parameters");
    json_t *schema = json_is_object(given) ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (!json_object_get(schema, "type") && !json_object_get(schema, "$ref"))
        json_object_set_new(schema, "type", json_string("object"));
    vt_err why;
    vt_status status = schema ? schema_compile(g, schema,
                                               json_is_true(json_object_get(tool, "strict")), out,
                                               &why)
                              : vt_fail(&why, VT_ERR_MEMORY, "out of memory for a grammar");
    json_decref(schema);
    return status == VT_OK ? VT_OK
                           : vt_fail(err, status, "%.60s: %s",
                                     json_string_value(json_object_get(tool, "name")), why.message);
}

static vt_status add_call(rules *g, const vt_grammar_vocab *v, const call_form *form,
                          const json_t *tool, symbol call, vt_err *err)
{
    char open[512];
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (!name || strpbrk(name, "\"\\#<[") || strlen(name) > 128)
        return vt_fail(
            err, VT_ERR_USAGE,
            "tools: a name is missing, longer than 128 bytes, or holds one of \" \\ # < [");
    symbol s[9];
    int32_t n = marked(g, v, form->open, s);
    snprintf(open, sizeof open, "%s%s", name, form->middle);
    n += marked(g, v, open, s + n);
    TRY(arguments(g, tool, &s[n++], err));
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
                       "form: calls of form '%.40s' have no grammar yet, so they can be neither "
                       "forced nor strict",
                       name ? name : "");
    if (json_array_size(tools) == 0)
        return vt_fail(err, VT_ERR_USAGE, "tools: expected a list of tools");
    symbol call = rules_new(g, "call"), more = rules_new(g, NULL);
    for (size_t i = 0; i < json_array_size(tools); i++)
        TRY(add_call(g, v, form, json_array_get(tools, i), call, err));
    rules_add(g, more, NULL, 0);
    if (json_is_true(json_object_get(calls, "several"))) {
        symbol again[5];
        int32_t n = marked(g, v, form->between, again);
        again[n++] = call;
        again[n++] = more;
        rules_add(g, more, again, n);
    }
    bool optional = json_is_true(json_object_get(calls, "optional"));
    *root = add_answer(g, v, form, call, more, optional);
    *opening = optional ? form->opening : (call_opening){0};
    return VT_OK;
}
