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
 * by which it does, and without `begin`. */
#include <stdio.h>
#include <string.h>

#include "grammar/internal.h"

typedef struct call_form {
    const char *name, *begin, *before, *open, *middle, *close, *between, *after;
    call_opening opening;
} call_form;

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
};

enum { N_FORMS = sizeof forms / sizeof *forms };

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

static vt_status add_call(rules *g, const call_form *form, const json_t *tool, symbol call,
                          vt_err *err)
{
    char open[512];
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (!name || strpbrk(name, "\"\\") || strlen(name) > 256)
        return vt_fail(err, VT_ERR_USAGE, "tools: a name is missing or holds a quote");
    snprintf(open, sizeof open, "%s%s%s", form->open, name, form->middle);
    symbol s[3] = {rules_text(g, open), 0, rules_text(g, form->close)};
    TRY(arguments(g, tool, &s[1], err));
    rules_add(g, call, s, 3);
    return VT_OK;
}

/* answer -> begin before call more after */
static symbol add_answer(rules *g, const call_form *form, symbol call, symbol more, bool optional)
{
    symbol answer = rules_new(g, "answer"), whole[6];
    int32_t n = 0;
    if (!optional && form->begin[0])
        whole[n++] = rules_text(g, form->begin);
    if (optional && form->before[0]) /* some vocabularies have a blank behind their marker */
        whole[n++] = rules_lexeme(g, rx_repeat(&g->rx, rx_string(&g->rx, " ", 1), 0, 1));
    if (form->before[0])
        whole[n++] = rules_text(g, form->before);
    whole[n++] = call;
    whole[n++] = more;
    if (form->after[0])
        whole[n++] = rules_text(g, form->after);
    rules_add(g, answer, whole, n);
    return answer;
}

vt_status calls_compile(rules *g, const json_t *calls, symbol *root, call_opening *opening,
                        vt_err *err)
{
    const char *name = json_string_value(json_object_get(calls, "form"));
    const json_t *tools = json_object_get(calls, "tools");
    const call_form *form = NULL;
    for (int i = 0; name && i < N_FORMS; i++)
        if (strcmp(forms[i].name, name) == 0)
            form = &forms[i];
    if (!form)
        return vt_fail(err, VT_ERR_USAGE,
                       "form: '%.40s' found, expected hermes, llama3-json or "
                       "mistral: calls of other forms have no grammar yet",
                       name ? name : "");
    if (json_array_size(tools) == 0)
        return vt_fail(err, VT_ERR_USAGE, "tools: expected a list of tools");
    symbol call = rules_new(g, "call"), more = rules_new(g, NULL);
    for (size_t i = 0; i < json_array_size(tools); i++)
        TRY(add_call(g, form, json_array_get(tools, i), call, err));
    rules_add(g, more, NULL, 0);
    if (json_is_true(json_object_get(calls, "several"))) {
        const symbol again[3] = {rules_text(g, form->between), call, more};
        rules_add(g, more, again, 3);
    }
    bool optional = json_is_true(json_object_get(calls, "optional"));
    *root = add_answer(g, form, call, more, optional);
    *opening = optional ? form->opening : (call_opening){0};
    return VT_OK;
}
