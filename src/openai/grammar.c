/* Members of a request that say what its answer has to follow: response_format (OpenAI),
 * structured_outputs and guided_* (vLLM), json_schema, regex and ebnf (SGLang). Each becomes the
 * text and the kind of a grammar, which the engine compiles. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/model.h"
#include "openai/fields.h"
#include "text/template/template.h"

static vt_status set_text(reader *r, const char *field_name, vt_grammar_kind kind, const char *text,
                          size_t len)
{
    if (r->r->grammar_field)
        return vt_openai_refuse(r->e, 400, field_name, "%s and %s: give one of the two",
                                r->r->grammar_field, field_name);
    if (memchr(text, 0, len))
        return vt_openai_refuse(r->e, 400, field_name, "%s: holds U+0000, which it may not",
                                field_name);
    r->r->p.grammar = vt_arena_strdup(&r->r->arena, text, len);
    r->r->p.grammar_kind = kind;
    r->r->grammar_field = field_name;
    return r->r->p.grammar ? VT_OK : field_no_memory(r);
}

/* A value as JSON text. */
static vt_status set_json(reader *r, const char *field_name, vt_grammar_kind kind, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return field_no_memory(r);
    vt_status status = set_text(r, field_name, kind, text, strlen(text));
    free(text);
    return status;
}

/* A schema as an object, or as text as older clients send it. SGLang writes "$$ANY$$" for any
 * JSON. */
static vt_status set_schema(reader *r, const char *field_name, vt_grammar_kind kind,
                            const json_t *v)
{
    if (json_is_string(v) && strcmp(json_string_value(v), "$$ANY$$") == 0)
        return set_text(r, field_name, kind, "true", 4);
    if (json_is_string(v))
        return set_text(r, field_name, kind, json_string_value(v), json_string_length(v));
    if (!json_is_object(v) && !json_is_boolean(v))
        return field_refuse(r, field_name, v, "a JSON Schema");
    return set_json(r, field_name, kind, v);
}

static vt_status set_string(reader *r, const char *field_name, vt_grammar_kind kind,
                            const json_t *v)
{
    if (!json_is_string(v))
        return field_refuse(r, field_name, v, "a string");
    return set_text(r, field_name, kind, json_string_value(v), json_string_length(v));
}

/* {"name": .., "schema": {..}, "strict": ..} */
static vt_status read_json_schema(reader *r, const char *field_name, const json_t *v)
{
    const char *key;
    json_t *member;
    const json_t *schema = json_object_get(v, "schema"), *strict = json_object_get(v, "strict");
    static const char *const known[] = {"name", "schema", "strict", "description"};
    if (!json_is_object(v))
        return vt_openai_refuse_value(r->e, field_name, v, "an object with name and schema",
                                      "%s.json_schema", field_name);
    if (!schema)
        return vt_openai_refuse_value(r->e, field_name, NULL, "a JSON Schema",
                                      "%s.json_schema.schema", field_name);
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        size_t i = 0;
        while (i < 4 && strcmp(known[i], key) != 0)
            i++;
        if (i == 4)
            return vt_openai_refuse(r->e, 400, field_name, "%s.json_schema.%.60s: not supported",
                                    field_name, key);
    }
    if (strict && !json_is_boolean(strict) && !json_is_null(strict))
        return field_refuse_bool(r, "response_format.json_schema.strict", strict);
    return set_schema(r, field_name,
                      json_is_true(strict) ? VT_GRAMMAR_JSON_STRICT : VT_GRAMMAR_JSON_SCHEMA,
                      schema);
}

vt_status field_read_response_format(reader *r, const field *f, json_t *v)
{
    const json_t *named = json_object_get(v, "type");
    const char *type = json_is_string(named) ? json_string_value(named) : "";
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "an object with a type");
    if (strcmp(type, "text") == 0)
        return VT_OK;
    if (strcmp(type, "json_object") == 0)
        return set_text(r, f->name, VT_GRAMMAR_JSON_OBJECT, "", 0);
    if (strcmp(type, "json_schema") == 0)
        return read_json_schema(r, f->name, json_object_get(v, "json_schema"));
    return vt_openai_refuse_word(r->e, f->name, named, "text, json_object or json_schema",
                                 "%s.type", f->name);
}

static const json_t *function_name(const json_t *tool)
{
    return json_object_get(json_object_get(tool, "function"), "name");
}

/* The names that "tool_choice" lists, as members of an object; NULL: it lists none. */
static json_t *listed_names(const reader *r)
{
    json_t *names = r->allowed || r->function ? json_object() : NULL;
    if (r->function)
        json_object_set_new(names, json_string_value(r->function), json_true());
    for (size_t i = 0; i < json_array_size(r->allowed); i++)
        json_object_set_new(names, json_string_value(function_name(json_array_get(r->allowed, i))),
                            json_true());
    return names;
}

/* Refuses names that no tool has: all of them, as far as they fit into a sentence. */
static vt_status refuse_names(reader *r, json_t *names)
{
    char text[256];
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach(names, name, value)
    {
        if (!vt_append(text, sizeof text, &n, "%s'%.60s'", n > 0 ? ", " : "", name))
            break;
    }
    return vt_openai_refuse(r->e, 400, "tool_choice", "tool_choice: no tool is called %s", text);
}

/* Makes the list of tools that may be called, as VT_GRAMMAR_CALLS wants them. */
static vt_status callable(reader *r, json_t *list)
{
    json_t *names = listed_names(r);
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        json_t *tool = json_array_get(r->tools, i);
        if (!names || json_object_del(names, json_string_value(function_name(tool))) == 0)
            json_array_append(list, json_object_get(tool, "function"));
    }
    vt_status status = json_object_size(names) > 0 ? refuse_names(r, names) : VT_OK;
    json_decref(names);
    return status;
}

/* The name of the form for its grammar: some have two shapes, of which the template has one. */
static const char *form_name(const reader *r)
{
    static const struct {
        vt_call_form form;
        const char *word, *name;
    } shapes[] = {
        {VT_CALLS_MISTRAL, "[ARGS]", "mistral-args"},
        {VT_CALLS_XML, "<seed:tool_call>", "seed-xml"},
        {VT_CALLS_DSML, "DSML\xef\xbd\x9ctool_calls", "deepseek-dsml-v4"},
    };
    const char *template = r->m->chat_template ? vt_template_source(r->m->chat_template) : "";
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].form == r->r->call_form && strstr(template, shapes[i].word))
            return shapes[i].name;
    return vt_call_form_name(r->r->call_form);
}

vt_status field_hold_calls(reader *r, bool optional)
{
    json_t *tools = json_array();
    bool several = !r->function && !r->single_call;
    json_t *calls = json_pack("{s:s, s:b, s:b, s:o}", "form", form_name(r), "several", several,
                              "optional", optional, "tools", tools);
    vt_status status = calls ? callable(r, tools) : field_no_memory(r);
    if (status == VT_OK)
        status = set_json(r, "tools", VT_GRAMMAR_CALLS, calls);
    json_decref(calls);
    return status;
}

typedef enum grammar_form { FORM_SCHEMA, FORM_LIST, FORM_TEXT, FORM_FLAG } grammar_form;

/* The members of vLLM's structured_outputs, and the fields of a request with their kind. */
static const struct {
    const char *name;
    grammar_form form;
    vt_grammar_kind kind;
    bool inside; /* a member of structured_outputs */
} forms[] = {
    {"json", FORM_SCHEMA, VT_GRAMMAR_JSON_SCHEMA, true},
    {"regex", FORM_TEXT, VT_GRAMMAR_REGEX, true},
    {"choice", FORM_LIST, VT_GRAMMAR_CHOICE, true},
    {"grammar", FORM_TEXT, VT_GRAMMAR_GBNF, true},
    {"json_object", FORM_FLAG, VT_GRAMMAR_JSON_OBJECT, true},
    {"guided_json", FORM_SCHEMA, VT_GRAMMAR_JSON_SCHEMA, false},
    {"guided_regex", FORM_TEXT, VT_GRAMMAR_REGEX, false},
    {"guided_choice", FORM_LIST, VT_GRAMMAR_CHOICE, false},
    {"guided_grammar", FORM_TEXT, VT_GRAMMAR_GBNF, false},
    {"json_schema", FORM_SCHEMA, VT_GRAMMAR_JSON_SCHEMA, false},
    {"regex", FORM_TEXT, VT_GRAMMAR_REGEX, false},
    {"ebnf", FORM_TEXT, VT_GRAMMAR_GBNF, false},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static vt_status read_form(reader *r, const char *field_name, size_t i, const json_t *v)
{
    switch (forms[i].form) {
    case FORM_SCHEMA:
        return set_schema(r, field_name, forms[i].kind, v);
    case FORM_TEXT:
        return set_string(r, field_name, forms[i].kind, v);
    case FORM_LIST:
        if (!json_is_array(v))
            return field_refuse(r, field_name, v, "a list of strings");
        return set_json(r, field_name, forms[i].kind, v);
    default:
        if (!json_is_boolean(v))
            return field_refuse_bool(r, field_name, v);
        return json_is_true(v) ? set_text(r, field_name, forms[i].kind, "", 0) : VT_OK;
    }
}

vt_status field_read_grammar(reader *r, const field *f, json_t *v)
{
    size_t i = 0;
    while (forms[i].inside || strcmp(forms[i].name, f->name) != 0)
        i++; /* the table of request.c has no name that is not here */
    return read_form(r, f->name, i, v);
}

vt_status field_read_structured(reader *r, const field *f, json_t *v)
{
    const char *key;
    json_t *member;
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "an object");
    json_object_foreach(v, key, member)
    {
        size_t i = 0;
        while (i < N_FORMS && !(forms[i].inside && strcmp(forms[i].name, key) == 0))
            i++;
        if (json_is_null(member))
            continue;
        if (i == N_FORMS)
            return vt_openai_refuse(r->e, 400, f->name, "%s.%.60s: not supported", f->name, key);
        TRY(read_form(r, f->name, i, member));
    }
    return VT_OK;
}

vt_status vt_openai_refuse_grammar(vt_openai_error *e, const vt_err *why,
                                   const vt_openai_request *r, const vt_model *m)
{
    vt_err whole;
    vt_fail(&whole, why->status, "Invalid grammar in %s: %s",
            r->grammar_field ? r->grammar_field : "the request", why->message);
    return vt_openai_refuse_as(e, &whole, m, r->grammar_field);
}
