/* Grammars of calls (src/grammar/calls.c) against the reader of answers (src/text/answer): for
 * random schemas, each form's text of a valid call is accepted byte by byte and read as the same
 * arguments; and whatever a grammar allows is read as calls whose arguments satisfy the schema. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/random.h"
#include "common/grammar_fixture.h"
#include "text/answer/answer.h"

static uint64_t dice;

static int roll(int n) { return (int)(vt_random_next(&dice) % (uint64_t)n); }

/* ---- random schemas and their values ---- */

/* Texts that have the marks of the forms in them, or nearly. */
static const char *const texts[] = {
    "",     "x",           "two\nlines\n", "\n",          "a \"b\" \\ c",
    "</p>", "</parameter", "<tool_call>",  "caf\xC3\xA9", "<|",
    "3",    "true",        "{\"a\": 1}",   " x ",         "it's \t"};
enum { N_TEXTS = sizeof texts / sizeof *texts, N_PLAIN = 10 }; /* the first ones are no JSON */

static const char *const schemas[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"string\",\"minLength\":1,\"maxLength\":3}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}",
    "{\"enum\":[\"red\",\"dark blue\",\"7\"]}",
    "{\"$ref\":\"#/$defs/color\"}",
    "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":40}",
    "{\"type\":\"number\"}",
    "{\"type\":\"boolean\"}",
    "{\"type\":[\"string\",\"null\"]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":3}",
    "{\"type\":\"object\",\"properties\":{\"x "
    "y\":{\"type\":\"string\"},\"n\":{\"type\":\"boolean\"}"
    "},\"required\":[\"x y\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"v\"}},"
    "\"required\":[\"k\"],\"additionalProperties\":false}}",
    "{\"const\":null}",
    "{}",
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

static json_t *a_text(int n) { return json_string(texts[roll(n)]); }

static json_t *a_value(int kind)
{
    static const char *const colors[] = {"red", "dark blue", "7"};
    static const double reals[] = {0.5, -1e-7, 1e20, 3};
    json_t *v = json_array();
    switch (kind) {
    case 0:
        json_array_append_new(v, a_text(N_TEXTS));
        break;
    case 1:
        json_array_append_new(v, json_string(roll(2) ? "<\"\n" : "\xC3\xA9"));
        break;
    case 2:
        json_array_append_new(v, json_string(roll(2) ? "null" : "abc"));
        break;
    case 3:
    case 4:
        json_array_append_new(v, json_string(colors[roll(3)]));
        break;
    case 5:
        json_array_append_new(v, json_integer(roll(46) - 5));
        break;
    case 6:
        json_array_append_new(v, json_real(reals[roll(4)]));
        break;
    case 7:
        json_array_append_new(v, json_boolean(roll(2)));
        break;
    case 8:
        json_array_append_new(v, roll(2) ? json_null() : a_text(N_PLAIN));
        break;
    case 9:
        json_array_append_new(v, roll(2) ? json_integer(roll(99)) : a_text(N_PLAIN));
        break;
    case 10:
        json_array_append_new(v, json_array());
        for (int i = roll(4); i > 0; i--)
            json_array_append_new(json_array_get(v, 0), a_text(N_TEXTS));
        break;
    case 11:
        json_array_append_new(v, json_pack("{s:o}", "x y", a_text(N_TEXTS)));
        if (roll(2))
            json_object_set_new(json_array_get(v, 0), "n", json_boolean(roll(2)));
        break;
    case 12:
        json_array_append_new(v, json_array());
        for (int i = roll(3); i > 0; i--)
            json_array_append_new(json_array_get(v, 0), json_pack("{s:s}", "k", "v"));
        break;
    case 13:
        json_array_append_new(v, json_null());
        break;
    default:
        json_array_append_new(v, a_value(roll(2) ? 9 : 11));
    }
    json_t *one = json_incref(json_array_get(v, 0));
    json_decref(v);
    return one;
}

typedef struct tool {
    json_t *parameters, *arguments;
} tool;

static tool a_tool(void)
{
    static const char *const names[] = {"city", "n", "unit_2", "when"};
    json_t *properties = json_object(), *required = json_array(), *arguments = json_object();
    for (int i = 0; i < 4; i++) {
        int kind = roll(N_SCHEMAS);
        bool must = roll(2);
        if (!roll(4))
            continue;
        json_object_set_new(properties, names[i], json_loads(schemas[kind], JSON_DECODE_ANY, NULL));
        if (must)
            json_array_append_new(required, json_string(names[i]));
        if (must || roll(2))
            json_object_set_new(arguments, names[i], a_value(kind));
    }
    json_t *parameters = json_pack("{s:s, s:o, s:o, s:b, s:{s:{s:[s,s,s]}}}", "type", "object",
                                   "properties", properties, "required", required,
                                   "additionalProperties", 0, "$defs", "color", "enum", "red",
                                   "dark blue", "7");
    return (tool){parameters, arguments};
}

/* Returns true if a value satisfies a schema, as far as the keywords above go. */
static bool fits(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *type = json_object_get(s, "type"), *list = json_object_get(s, "enum"), *x;
    const char *name;
    json_t *member;
    bool ok = !type, in = !list;
    if (json_object_get(s, "$ref"))
        return fits(root, json_object_get(json_object_get(root, "$defs"), "color"), v);
    for (size_t i = 0; type && i < (json_is_array(type) ? json_array_size(type) : 1); i++) {
        const char *t = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        ok |= (!strcmp(t, "string") && json_is_string(v)) ||
              (!strcmp(t, "null") && json_is_null(v));
        ok |= (!strcmp(t, "integer") && json_is_number(v) &&
               json_number_value(v) == floor(json_number_value(v))) ||
              (!strcmp(t, "number") && json_is_number(v));
        ok |= (!strcmp(t, "boolean") && json_is_boolean(v)) ||
              (!strcmp(t, "object") && json_is_object(v)) ||
              (!strcmp(t, "array") && json_is_array(v));
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        in |= json_equal(json_array_get(list, i), v);
    ok &= in && (!(x = json_object_get(s, "const")) || json_equal(x, v));
    if ((x = json_object_get(s, "minimum")))
        ok &= json_number_value(v) >= json_number_value(x) && json_number_value(v) <= 40;
    if (json_object_get(s, "minLength")) {
        int n = 0;
        for (size_t i = 0; i < json_string_length(v); i++)
            n += (json_string_value(v)[i] & 0xC0) != 0x80;
        ok &= n >= 1 && n <= 3;
    }
    if (json_object_get(s, "pattern"))
        ok &= json_is_string(v) && *json_string_value(v) &&
              strspn(json_string_value(v), "abcdefghijklmnopqrstuvwxyz") == json_string_length(v);
    if ((x = json_object_get(s, "maxItems")))
        ok &= json_array_size(v) <= (size_t)json_integer_value(x);
    for (size_t i = 0; (x = json_object_get(s, "items")) && i < json_array_size(v); i++)
        ok &= fits(root, x, json_array_get(v, i));
    bool any = !(list = json_object_get(s, "anyOf"));
    for (size_t i = 0; i < json_array_size(list); i++)
        any |= fits(root, json_array_get(list, i), v);
    list = json_object_get(s, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        ok &= json_object_get(v, json_string_value(json_array_get(list, i))) != NULL;
    if (json_object_get(s, "additionalProperties"))
        json_object_foreach((json_t *)(uintptr_t)v, name, member)
        {
            x = json_object_get(json_object_get(s, "properties"), name);
            ok &= x && fits(root, x, member);
        }
    return ok && any;
}

/* ---- the forms ---- */

typedef struct form {
    const char *name;
    vt_call_form reads;
    void (*write)(vt_buf *out, const struct form *f, const json_t *arguments);
    const char *begin, *open, *middle, *key, *key_end, *value_end, *close, *end;
} form;

static void put_json(vt_buf *out, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    vt_buf_puts(out, text);
    free(text);
}

static const char *type_of(const json_t *v)
{
    return json_is_string(v)    ? "string"
           : json_is_number(v)  ? "number"
           : json_is_boolean(v) ? "boolean"
           : json_is_null(v)    ? "null"
           : json_is_object(v)  ? "object"
                                : "array";
}

/* '%' of key_end is "true" or "false" for dsml, the type's name for the others. */
static void write_tags(vt_buf *out, const form *f, const json_t *arguments)
{
    const char *name, *type;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)arguments, name, v)
    {
        const char *told = f->reads != VT_CALLS_DSML ? type_of(v)
                           : json_is_string(v)       ? "true"
                                                     : "false";
        vt_buf_puts(out, f->key);
        vt_buf_puts(out, name);
        type = strchr(f->key_end, '%');
        vt_buf_add(out, f->key_end, type ? (size_t)(type - f->key_end) : strlen(f->key_end));
        if (type)
            vt_buf_printf(out, "%s%s", told, type + 1);
        if (json_is_string(v))
            vt_buf_puts(out, json_string_value(v));
        else
            put_json(out, v);
        vt_buf_puts(out, f->value_end);
    }
}

static void put_python(vt_buf *out, const json_t *v)
{
    const char *name;
    json_t *m;
    int n = 0;
    if (json_is_boolean(v) || json_is_null(v)) {
        vt_buf_puts(out, json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False");
    } else if (json_is_array(v)) {
        vt_buf_putc(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            vt_buf_puts(out, i ? ", " : "");
            put_python(out, json_array_get(v, i));
        }
        vt_buf_putc(out, ']');
    } else if (json_is_object(v)) {
        vt_buf_putc(out, '{');
        json_object_foreach((json_t *)(uintptr_t)v, name, m)
        {
            vt_buf_printf(out, "%s\"%s\": ", n++ ? ", " : "", name);
            put_python(out, m);
        }
        vt_buf_putc(out, '}');
    } else {
        put_json(out, v);
    }
}

static void write_python(vt_buf *out, const form *f, const json_t *arguments)
{
    const char *name;
    json_t *v;
    int n = 0;
    (void)f;
    json_object_foreach((json_t *)(uintptr_t)arguments, name, v)
    {
        vt_buf_printf(out, "%s%s=", n++ ? ", " : "", name);
        put_python(out, v);
    }
}

static void put_gemma(vt_buf *out, const json_t *v)
{
    const char *name, *quote = "<|\"|>";
    json_t *m;
    int n = 0;
    if (json_is_string(v)) {
        vt_buf_printf(out, "%s%s%s", quote, json_string_value(v), quote);
    } else if (json_is_array(v)) {
        vt_buf_putc(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            vt_buf_puts(out, i ? "," : "");
            put_gemma(out, json_array_get(v, i));
        }
        vt_buf_putc(out, ']');
    } else if (json_is_object(v)) {
        vt_buf_putc(out, '{');
        json_object_foreach((json_t *)(uintptr_t)v, name, m)
        {
            const char *around = strchr(name, ' ') ? quote : "";
            vt_buf_printf(out, "%s%s%s%s:", n++ ? "," : "", around, name, around);
            put_gemma(out, m);
        }
        vt_buf_putc(out, '}');
    } else {
        put_json(out, v);
    }
}

static void write_gemma(vt_buf *out, const form *f, const json_t *arguments)
{
    (void)f;
    put_gemma(out, arguments);
}

static void write_json(vt_buf *out, const form *f, const json_t *arguments)
{
    (void)f;
    put_json(out, arguments);
}

#define BAR "\xef\xbd\x9c"
#define DSML "<" BAR "DSML" BAR
#define DSML_CLOSE "</" BAR "DSML" BAR

static const form forms[] = {
    {"hermes", VT_CALLS_HERMES, write_json, "<tool_call>", "\n{\"name\": \"",
     "\", \"arguments\": ", .close = "}\n</tool_call>", .end = ""},
    {"qwen-xml", VT_CALLS_XML, write_tags, "<tool_call>", "\n<function=", ">\n",
     "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>", ""},
    {"seed-xml", VT_CALLS_XML, write_tags, "<seed:tool_call>", "\n<function=", ">\n",
     "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</seed:tool_call>", ""},
    {"glm", VT_CALLS_GLM, write_tags, "<tool_call>", "", "\n", "<arg_key>",
     "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>", ""},
    {"glm", VT_CALLS_GLM, write_tags, "<tool_call>", "", "", "<arg_key>", "</arg_key><arg_value>",
     "</arg_value>", "</tool_call>", ""},
    {"minimax-m2", VT_CALLS_MINIMAX, write_tags, "<minimax:tool_call>", "\n<invoke name=\"",
     "\">\n", "<parameter name=\"", "\">", "</parameter>\n", "</invoke>\n", "</minimax:tool_call>"},
    {"deepseek-dsml", VT_CALLS_DSML, write_tags, "\n\n" DSML "function_calls>\n",
     DSML "invoke name=\"", "\">\n", DSML "parameter name=\"", "\" string=\"%\">",
     DSML_CLOSE "parameter>\n", DSML_CLOSE "invoke>\n", DSML_CLOSE "function_calls>"},
    {"deepseek-dsml-v4", VT_CALLS_DSML, write_tags, DSML "tool_calls>\n", DSML "invoke name=\"",
     "\">\n", DSML "parameter name=\"", "\" string=\"%\">", DSML_CLOSE "parameter>\n",
     DSML_CLOSE "invoke>\n", DSML_CLOSE "tool_calls>"},
    {"kimi-k3", VT_CALLS_KIMI_K3, write_tags, "<|open|>tools<|sep|>", "<|open|>call tool=\"",
     "\" index=\"1\"<|sep|>", "<|open|>argument key=\"", "\" type=\"%\"<|sep|>",
     "<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>"},
    {"pythonic", VT_CALLS_PYTHONIC, write_python, "[", "", "(", .close = ")", .end = "]"},
    {"lfm2", VT_CALLS_LFM, write_python, "<|tool_call_start|>[", "", "(", .close = ")",
     .end = "]<|tool_call_end|>"},
    {"olmo3", VT_CALLS_OLMO, write_python, "<function_calls>", "", "(", .close = ")",
     .end = "</function_calls>"},
    {"gemma4", VT_CALLS_GEMMA, write_gemma, "<|tool_call>", "call:", "", .close = "<tool_call|>",
     .end = ""},
    {"harmony", VT_CALLS_HARMONY, write_json, "<|channel|>commentary to=functions.", "",
     " <|constrain|>json<|message|>", .close = "", .end = ""},
    {"harmony", VT_CALLS_HARMONY, write_json,
     "<|channel|>analysis<|message|>I call.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.",
     "", "<|channel|>commentary <|constrain|>json<|message|>", .close = "", .end = ""},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* ---- what is read ---- */

typedef struct reading {
    json_t *calls; /* [arguments ..]; null: broken */
    vt_buf arguments;
    int n_text, n_names;
} reading;

static void take(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    reading *r = user;
    r->n_text += kind == VT_PIECE_TEXT && n > 0;
    if (kind == VT_PIECE_CALL) {
        vt_buf_clear(&r->arguments);
        r->n_names += n == 5 && memcmp(bytes, "go.to", 5) == 0;
        r->n_names += n == 5 && memcmp(bytes, "go_to", 5) == 0;
    }
    if (kind == VT_PIECE_ARGUMENTS)
        vt_buf_add(&r->arguments, bytes, n);
    if (kind == VT_PIECE_CALL_END || kind == VT_PIECE_CALL_BROKEN) {
        json_t *v = r->arguments.len > 0
                        ? json_loadb(r->arguments.data, r->arguments.len,
                                     JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL)
                        : json_object();
        bool whole = kind == VT_PIECE_CALL_END && v;
        json_array_append_new(r->calls, whole ? v : json_null());
        if (!whole)
            json_decref(v);
    }
}

static json_t *tools_of(const tool *t)
{
    return json_pack("[{s:s, s:{s:s, s:O}}]", "type", "function", "function", "name", "go_to",
                     "parameters", t->parameters);
}

/* The arguments of the calls in a text; NULL: it is not only calls of the tool. */
static json_t *read_calls(const form *f, const json_t *tools, const char *text, size_t n)
{
    reading r = {.calls = json_array()};
    vt_answer_reader reader = {
        .form = f->reads, .calls = true, .tools = tools, .take = take, .user = &r};
    vt_answer_begin(&reader);
    vt_answer_feed(&reader, text, n);
    vt_answer_end(&reader);
    bool good = r.n_text == 0 && json_array_size(r.calls) > 0 &&
                r.n_names == (int)json_array_size(r.calls) && !reader.failed;
    vt_answer_release(&reader);
    vt_buf_release(&r.arguments);
    if (!good) {
        json_decref(r.calls);
        return NULL;
    }
    return r.calls;
}

static vt_grammar *grammar_of(const form *f, const tool *t)
{
    json_t *calls = json_pack("{s:s, s:b, s:[{s:s, s:O}]}", "form", f->name, "several", 1, "tools",
                              "name", "go_to", "parameters", t->parameters);
    char *text = json_dumps(calls, 0);
    vt_grammar *g = NULL;
    vt_err err;
    if (vt_grammar_compile(vocab, VT_GRAMMAR_CALLS, text, strlen(text), &g, &err) != VT_OK)
        fail_msg("%s: %s", text, err.message);
    free(text);
    json_decref(calls);
    return g;
}

/* The bytes that are taken, and whether the text may end there. */
static bool takes(vt_grammar *g, const char *text, size_t n, size_t *taken)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    for (*taken = 0; *taken < n; ++*taken)
        if (!vt_matcher_take(m, (unsigned char)text[*taken]))
            break;
    bool ok = *taken == n && vt_matcher_accepts(m);
    vt_matcher_free(m);
    return ok;
}

static bool all_fit(const tool *t, const json_t *calls)
{
    bool ok = calls != NULL;
    for (size_t i = 0; i < json_array_size(calls); i++)
        ok &= json_is_object(json_array_get(calls, i)) &&
              fits(t->parameters, t->parameters, json_array_get(calls, i));
    return ok;
}

static void test_valid_call_when_written_in_its_form_then_accepted_and_read_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < 24 * N_FORMS; round++) {
        const form *f = &forms[round % N_FORMS];
        dice = (uint64_t)round + 1;
        tool t = a_tool();
        json_t *tools = tools_of(&t);
        vt_grammar *g = grammar_of(f, &t);
        vt_buf text = {0};
        size_t taken;
        vt_buf_printf(&text, "%s%sgo_to%s", f->begin, f->open, f->middle);
        f->write(&text, f, t.arguments);
        vt_buf_puts(&text, f->close);
        vt_buf_puts(&text, f->end);
        if (!takes(g, text.data, text.len, &taken))
            fail_msg("%s, round %d: refused at byte %zu of\n%s", f->name, round, taken, text.data);
        json_t *calls = read_calls(f, tools, text.data, text.len);
        char *given = json_dumps(t.arguments, 0);
        json_t *wanted = json_loads(given, JSON_DECODE_INT_AS_REAL, NULL);
        if (!json_equal(json_array_get(calls, 0), wanted))
            fail_msg("%s, round %d: %s is not what was read of\n%s", f->name, round, given,
                     text.data);
        for (int k = 0; k < 20; k++) { /* broken ones are refused, or are others that fit */
            vt_buf other = {0};
            size_t at = (size_t)roll((int)text.len);
            vt_buf_add(&other, text.data, text.len);
            if (k % 2)
                other.data[at] = "<>{}[]\"' \n0a=,"[roll(14)];
            else
                memmove(other.data + at, other.data + at + 1, --other.len - at);
            json_t *read = read_calls(f, tools, other.data, other.len);
            if (takes(g, other.data, other.len, &taken) && !all_fit(&t, read))
                fail_msg("%s, round %d: accepted, though its arguments do not fit:\n%.*s", f->name,
                         round, (int)other.len, other.data);
            json_decref(read);
            vt_buf_release(&other);
        }
        free(given);
        json_decref(wanted);
        json_decref(calls);
        json_decref(tools);
        json_decref(t.parameters);
        json_decref(t.arguments);
        vt_buf_release(&text);
        vt_grammar_unref(g);
    }
}

/* Takes at random what masks allow, mostly short tokens, until the answer ends. */
static bool walk(vt_grammar *g, int32_t most, vt_buf *text)
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32;
    vt_matcher *m = vt_matcher_new(g, most);
    bool ended = false;
    for (int32_t used = 0; used < most && !ended; used++) {
        uint32_t words[64] = {0};
        int32_t allowed[1024] = {0}, n_allowed = 0;
        assert_true(vt_matcher_mask(m, words, n_words));
        for (int32_t id = 0; id < n; id++)
            if (words[id / 32] >> id % 32 & 1)
                allowed[n_allowed++] = id;
        int32_t id = allowed[roll(n_allowed)];
        assert_true(vt_matcher_take(m, id));
        ended = id == n - 1;
        if (!ended)
            vt_tokenizer_piece(tokenizer, id, text);
    }
    ended |= vt_matcher_accepts(m);
    vt_matcher_free(m);
    return ended;
}

static void test_whatever_a_grammar_allows_is_read_as_calls_that_fit(void **state)
{
    (void)state;
    for (int round = 0; round < 40 * N_FORMS; round++) {
        const form *f = &forms[round % N_FORMS];
        dice = (uint64_t)round + 1000;
        tool t = a_tool();
        json_t *tools = tools_of(&t);
        vt_grammar *g = grammar_of(f, &t);
        vt_buf text = {0};
        bool ended = walk(g, 1500, &text);
        json_t *calls = read_calls(f, tools, text.data, text.len);
        char *schema = json_dumps(t.parameters, 0);
        /* the reader takes no JSON with U+0000 in a name, which grammars of JSON allow */
        bool odd = f->write == write_json && strstr(text.data, "\\u0000");
        if (odd)
            assert_true(ended);
        else if (!ended || !all_fit(&t, calls))
            fail_msg("%s, round %d: open, or does not fit %s:\n%.*s", f->name, round, schema,
                     (int)text.len, text.data);
        free(schema);
        json_decref(calls);
        json_decref(tools);
        json_decref(t.parameters);
        json_decref(t.arguments);
        vt_buf_release(&text);
        vt_grammar_unref(g);
    }
}

static void test_tool_when_a_form_cannot_write_it_then_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *form, *parameters, *says;
    } bad[] = {
        {"qwen-xml", "{\"properties\":{\"a>\":{}}}", "cannot be called 'a>'"},
        {"pythonic", "{\"properties\":{\"a b\":{}}}", "#/properties/a b"},
        {"qwen-xml", "{\"properties\":{\"a\":{\"const\":\"x</parameter>\"}}}", "cannot be told"},
        {"glm", "{\"properties\":{\"a\":{\"enum\":[\"1\",2]}}}", "the value '1' cannot be told"},
        {"gemma4", "{\"properties\":{\"a\":{\"enum\":[\"<|\\\"|>\"]}}}", "cannot be told"},
        {"minimax-m2", "{\"const\":{\"a\":1}}", "all arguments"},
        {"kimi-k3", "{\"properties\":{\"a\":{\"not\":{\"format\":\"date\"}}}}",
         "#/properties/a/not/format"},
        {"hermes", "{\"type\":\"string\"}", "#/type: arguments are an object"},
        {"qwen-xml", "{\"type\":[\"string\",\"null\"]}", "#/type: arguments are an object"},
        {"hermes", "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"string\"}}}",
         "no text of finite length"},
        {"nothing", "{}", "no grammar"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[512];
        size_t n = 0;
        vt_grammar *g = NULL;
        vt_err err = {0};
        vt_append(text, sizeof text, &n,
                  "{\"form\":\"%s\",\"tools\":[{\"name\":\"f\",\"parameters\":%s}]}", bad[i].form,
                  bad[i].parameters);
        if (vt_grammar_compile(vocab, VT_GRAMMAR_CALLS, text, n, &g, &err) == VT_OK)
            fail_msg("%s is not refused", text);
        if (!strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", text, err.message, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_call_when_written_in_its_form_then_accepted_and_read_the_same),
        cmocka_unit_test(test_whatever_a_grammar_allows_is_read_as_calls_that_fit),
        cmocka_unit_test(test_tool_when_a_form_cannot_write_it_then_refused_with_its_place),
    };
    return cmocka_run_group_tests(tests, grammar_set_up, grammar_tear_down);
}
