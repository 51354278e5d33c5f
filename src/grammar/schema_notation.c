/* How values are written: as JSON, or as the calls of some models want them (argument_form).
 *
 *   JSON     {"k": "v", "n": 1}          PYTHON   k="v", n=1      inside of values {"k": True}
 *   GEMMA    {k:<|"|>v<|"|>,n:1}         TAGS     <parameter=k>v</parameter><parameter=n>1...
 *
 * Between tags a string has neither quotes nor escapes, so it cannot hold its end tag. Where the
 * reader of answers does not know from the schema that an argument is a string, it takes what looks
 * like JSON for JSON: such texts are no strings there. */
#include <string.h>

#include "grammar/pattern.h"
#include "grammar/schema.h"
#include "text/answer/answer.h"

static const char *const marks[SCHEMA_MARKS] = {
    [MARK_ARGUMENTS] = "object", [MARK_STRING] = "string", [MARK_TEXT] = "string",
    [MARK_OTHER] = NULL,         [MARK_NUMBER] = "number", [MARK_BOOLEAN] = "boolean",
    [MARK_NULL] = "null",        [MARK_OBJECT] = "object", [MARK_ARRAY] = "array",
};

vt_status notation_begin(compiler *c)
{
    bool ok = true;
    for (int i = 0; c->form && i < SCHEMA_MARKS; i++) {
        c->mark[i] = marks[i] ? json_pack("{s:s}", "type", marks[i])
                              : json_pack("{s:[sssss]}", "type", "number", "boolean", "null",
                                          "object", "array");
        ok &= c->mark[i] != NULL;
    }
    if (c->form)
        rules_raw(c->g);
    return ok ? VT_OK : vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
}

void notation_end(compiler *c)
{
    for (int i = 0; i < SCHEMA_MARKS; i++)
        json_decref(c->mark[i]);
}

bool notation_has(const compiler *c, const schema_set *set, schema_mark mark)
{
    for (int32_t i = 0; set && i < set->n; i++)
        if (set->at[i].is == c->mark[mark])
            return true;
    return false;
}

static argument_writing writing(const compiler *c)
{
    return c->form ? c->form->writing : WRITE_JSON;
}

bool notation_is_bare(const compiler *c, const schema_set *set)
{
    return notation_has(c, set, MARK_STRING) || notation_has(c, set, MARK_TEXT);
}

char_form notation_chars(const compiler *c, const schema_set *set)
{
    return writing(c) == WRITE_GEMMA || notation_is_bare(c, set) ? CHARS_RAW : CHARS_JSON;
}

rx notation_char(const compiler *c, const schema_set *set)
{
    return notation_chars(c, set) == CHARS_RAW ? c->g->raw_char
           : writing(c) == WRITE_PYTHON        ? c->g->json_char /* Python has no \/ */
                                               : c->g->any_char;
}

const char *notation_word(const compiler *c, const char *json)
{
    if (writing(c) != WRITE_PYTHON)
        return json;
    return *json == 't' ? "True" : *json == 'f' ? "False" : "None";
}

/* ---- strings ---- */

/* Any bytes with this text in them. */
static rx holding(rx_store *x, const char *text)
{
    return rx_cat(x, RX_ALL, rx_cat(x, rx_string(x, text, strlen(text)), RX_ALL));
}

/* Accepts the texts that the reader of answers would not leave a string: a number or a word, with
 * blanks around it, and all that begins with a bracket. */
static rx looks_like_json(compiler *c)
{
    static const char pattern[] = "[ \\t\\n\\r]*(?:true|false|null|True|False|None|"
                                  "-?[0-9]+(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)[ \\t\\n\\r]*|"
                                  "[ \\t\\n\\r]*[{\\[][^]*";
    rx made = RX_NOTHING;
    vt_err why;
    if (pattern_compile(&c->g->rx, pattern, sizeof pattern - 1, CHARS_RAW, true, &made, &why) !=
        VT_OK)
        (void)rules_no_memory(c->g);
    return made;
}

/* The strings of a set that end where they should. */
static rx that_end(compiler *c, const schema_set *set, rx body)
{
    rx_store *x = &c->g->rx;
    for (int i = 0; c->form && i < 2 && c->form->banned[i]; i++)
        body = rx_and2(x, body, rx_not(x, holding(x, c->form->banned[i])));
    return notation_has(c, set, MARK_TEXT) ? rx_and2(x, body, rx_not(x, looks_like_json(c))) : body;
}

static rx gemma_quote(compiler *c) { return calls_text(c->g, c->vocab, "<|\"|>"); }

rx notation_string(compiler *c, const schema_set *set, rx body)
{
    rx_store *x = &c->g->rx;
    bool bare = notation_is_bare(c, set);
    if (!bare && writing(c) == WRITE_TAGS) /* JSON inside of tags: its reader stops at the tag */
        body = that_end(c, set, body);
    if (!bare && writing(c) != WRITE_GEMMA)
        return rx_cat(x, rx_string(x, "\"", 1),
                      rx_close(x, writing(c) == WRITE_PYTHON ? that_end(c, set, body) : body));
    body = that_end(c, set, body);
    if (bare)
        return rx_cat(x, body, calls_text(c->g, c->vocab, c->form->value_end));
    return rx_cat(x, gemma_quote(c), rx_cat(x, body, gemma_quote(c)));
}

vt_status notation_given(compiler *c, const schema_set *set, const char *s, size_t n, rx *out)
{
    rx body = schema_literal(c, s, n, notation_chars(c, set));
    if (c->form && n > 0 && rx_least(&c->g->rx, that_end(c, set, body)) == RX_LEAST_NONE)
        return schema_refuse(c, NULL,
                             "the value '%.60s' cannot be told from what stands around it in this "
                             "model's calls",
                             s);
    *out = c->form ? notation_string(c, set, body)
                   : rx_cat(&c->g->rx, rx_string(&c->g->rx, "\"", 1),
                            rx_cat(&c->g->rx, body, rx_string(&c->g->rx, "\"", 1)));
    return VT_OK;
}

/* ---- names ---- */

/* Names that need no quotes. */
static rx plain_names(compiler *c)
{
    static const char python[] = "[A-Za-z_][A-Za-z0-9_]*", tags[] = "[A-Za-z_][A-Za-z0-9_.-]*";
    const char *pattern = writing(c) == WRITE_PYTHON ? python : tags;
    rx made = RX_NOTHING;
    vt_err why;
    if (pattern_compile(&c->g->rx, pattern, strlen(pattern), CHARS_RAW, true, &made, &why) != VT_OK)
        (void)rules_no_memory(c->g);
    return made;
}

/* Names with U+0000, which few readers of JSON take: the reader of answers would not take the call.
 */
static rx with_nul(compiler *c)
{
    rx_store *x = &c->g->rx;
    return writing(c) == WRITE_GEMMA ? rx_cat(x, RX_ALL, rx_cat(x, rx_string(x, "", 1), RX_ALL))
                                     : holding(x, "\\u0000");
}

rx notation_names(compiler *c, rx names)
{
    rx_store *x = &c->g->rx;
    if (c->form)
        names = rx_and2(x, that_end(c, NULL, names), rx_not(x, with_nul(c)));
    if (writing(c) != WRITE_GEMMA)
        return rx_cat(x, rx_string(x, "\"", 1), rx_close(x, names));
    rx plain = plain_names(c), quoted = rx_and2(x, names, rx_not(x, plain));
    quoted = rx_cat(x, gemma_quote(c), rx_cat(x, quoted, gemma_quote(c)));
    return rx_alt2(x, rx_and2(x, names, plain), quoted);
}

rx notation_argument_names(compiler *c, rx names)
{
    return rx_and2(&c->g->rx, names, plain_names(c));
}

/* Returns true if a name can stand in a tag, and is read as it is. */
static bool fits_tag(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || strchr("<>\"\\&#~%", name[i]))
            return false;
    return n > 0 && n <= VT_CALL_MAX_NAME && name[0] != ' ' && name[n - 1] != ' ';
}

vt_status notation_check_name(compiler *c, const char *name)
{
    rx_store *x = &c->g->rx;
    bool fits = writing(c) == WRITE_TAGS
                    ? fits_tag(name)
                    : rx_least(x, notation_argument_names(c, rx_string(x, name, strlen(name)))) >=
                              0 &&
                          *name;
    return fits ? VT_OK
                : schema_refuse(c, NULL,
                                "an argument of this model's calls cannot be called '%.60s'", name);
}

/* ---- arguments ---- */

/* One way to write an argument: a name, `tag` behind it, and a value of these types. */
static vt_status add_way(compiler *c, rx names, const char *told, const schema_set *value,
                         schema_mark mark, symbol rule)
{
    rx_store *x = &c->g->rx;
    const argument_form *f = c->form;
    char tag[128];
    const char *type = strchr(f->key_end, '%');
    size_t n = 0;
    schema_set one = *value;
    symbol s[3];
    vt_append(tag, sizeof tag, &n, "%.*s%s%s",
              type ? (int)(type - f->key_end) : (int)strlen(f->key_end), f->key_end,
              type ? told : "", type ? type + 1 : "");
    if (!schema_add(&one, c->mark[mark]))
        return schema_refuse(c, NULL, "more than %d schemas hold at one place", SCHEMA_MAX_SET);
    s[0] = rules_lexeme(c->g, rx_cat(x, calls_text(c->g, c->vocab, f->key),
                                     rx_cat(x, names, calls_text(c->g, c->vocab, tag))));
    TRY(schema_rule(c, &one, &s[1]));
    bool bare = mark == MARK_STRING || mark == MARK_TEXT;
    s[2] = bare ? 0 : rules_lexeme(c->g, calls_text(c->g, c->vocab, f->value_end));
    rules_add(c->g, rule, s, bare ? 2 : 3);
    return VT_OK;
}

vt_status notation_argument(compiler *c, rx names, const char *name, const schema_set *value,
                            symbol *out)
{
    static const schema_mark named[] = {MARK_NUMBER, MARK_BOOLEAN, MARK_NULL, MARK_OBJECT,
                                        MARK_ARRAY};
    schema_set set = *value;
    *out = rules_new(c->g, NULL);
    if (writing(c) == WRITE_PYTHON) {
        symbol s[3] = {c->blanks,
                       rules_lexeme(c->g, rx_cat(&c->g->rx, names, rx_string(&c->g->rx, "=", 1)))};
        TRY(schema_rule(c, &set, &s[2]));
        rules_add(c->g, *out, s, 3);
        return VT_OK;
    }
    bool is_string = c->form->types != TYPES_UNTOLD ||
                     (name && vt_answer_takes_string(c->root, name));
    TRY(add_way(c, names, c->form->types == TYPES_NAMED ? "string" : "true", value,
                is_string ? MARK_STRING : MARK_TEXT, *out));
    for (int i = 0; c->form->types == TYPES_NAMED && i < 5; i++)
        TRY(add_way(c, names, marks[named[i]], value, named[i], *out));
    return c->form->types == TYPES_NAMED ? VT_OK
                                         : add_way(c, names, "false", value, MARK_OTHER, *out);
}
