#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "grammar/internal.h"
#include "grammar/pattern.h"

enum { COMPILE_FUEL = 1000000, MAX_CHOICES = 10000 };

/* ---- compiling ---- */

static vt_status compile_regex(rules *g, const char *text, size_t len, symbol *root, vt_err *err)
{
    rx whole;
    TRY(pattern_compile(&g->rx, text, len, CHARS_RAW, true, &whole, err));
    *root = rules_new(g, NULL);
    symbol s = rules_lexeme(g, whole);
    rules_add(g, *root, &s, 1);
    return VT_OK;
}

static vt_status compile_choice(rules *g, const char *text, size_t len, symbol *root, vt_err *err)
{
    json_t *list;
    vt_status status = VT_OK;
    TRY(vt_json_load("choice", text, len, 0, UINT64_C(64) << 20, &list, err));
    size_t n = json_array_size(list);
    rx *one = vt_calloc(n + 1, sizeof *one);
    if (!one)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar");
    else if (n == 0 || n > MAX_CHOICES)
        status = vt_fail(err, VT_ERR_USAGE, "choice: expected a list of 1 to %d strings",
                         MAX_CHOICES);
    for (size_t i = 0; status == VT_OK && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v) || json_string_length(v) == 0)
            status = vt_fail(err, VT_ERR_USAGE, "choice: entry %zu is not a string with text", i);
        else
            one[i] = rx_string(&g->rx, json_string_value(v), json_string_length(v));
    }
    if (status == VT_OK) {
        *root = rules_new(g, NULL);
        symbol s = rules_lexeme(g, rx_alt(&g->rx, one, (int32_t)n));
        rules_add(g, *root, &s, 1);
    }
    free(one);
    json_decref(list);
    return status;
}

static vt_status compile_schema(vt_grammar *g, vt_grammar_kind kind, const char *text, size_t len,
                                symbol *root, vt_err *err)
{
    const vt_grammar_vocab *v = g->m.vocab;
    static const char object[] = "{\"type\":\"object\"}";
    json_t *schema;
    bool any = kind == VT_GRAMMAR_JSON_OBJECT;
    TRY(vt_json_load("schema", any ? object : text, any ? sizeof object - 1 : len,
                     JSON_DECODE_ANY | JSON_ALLOW_NUL, UINT64_C(64) << 20, &schema, err));
    vt_status status = kind == VT_GRAMMAR_CALLS
                           ? calls_compile(&g->m.g, v, schema, root, &g->opening, err)
                           : schema_compile(&g->m.g, schema, kind == VT_GRAMMAR_JSON_STRICT, root,
                                            err);
    json_decref(schema);
    return status;
}

bool grammar_enter(vt_grammar *g, bool hurried)
{
    if (hurried && pthread_mutex_trylock(&g->lock) != 0)
        return false;
    if (!hurried)
        pthread_mutex_lock(&g->lock);
    machine_call(&g->m, hurried);
    return true;
}

bool grammar_leave(vt_grammar *g)
{
    bool late = !machine_is_well(&g->m) && machine_is_late(&g->m);
    if (machine_has_worked(&g->m)) {
        __atomic_store_n(&g->bytes, machine_bytes(&g->m), __ATOMIC_RELAXED);
        __atomic_store_n(&g->failed, g->m.failed != NULL, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&g->lock);
    return late;
}

static vt_status compile(vt_grammar *g, vt_grammar_kind kind, const char *text, size_t len,
                         vt_err *err)
{
    rules *r = &g->m.g;
    symbol root = 0;
    r->rx.fuel = COMPILE_FUEL;
    if (kind == VT_GRAMMAR_REGEX)
        TRY(compile_regex(r, text, len, &root, err));
    else if (kind == VT_GRAMMAR_CHOICE)
        TRY(compile_choice(r, text, len, &root, err));
    else if (kind == VT_GRAMMAR_GBNF)
        TRY(gbnf_compile(r, text, len, &root, err));
    else
        TRY(compile_schema(g, kind, text, len, &root, err));
    TRY(rules_finish(r, root, err));
    (void)grammar_enter(g, false);
    machine_begin(&g->m, root);
    (void)grammar_leave(g);
    if (g->m.failed)
        return vt_fail(err, rx_failure(g->m.failed), "the grammar is too large: %s", g->m.failed);
    return VT_OK;
}

vt_status vt_grammar_compile(vt_grammar_vocab *v, vt_grammar_kind kind, const char *text,
                             size_t len, vt_grammar **out, vt_err *err)
{
    if (len > VT_GRAMMAR_MAX_TEXT)
        return vt_fail(err, VT_ERR_USAGE, "a grammar of %zu bytes, expected at most %d", len,
                       VT_GRAMMAR_MAX_TEXT);
    vt_grammar *g = vt_calloc(1, sizeof *g);
    char *copy = vt_calloc(len + 1, 1); /* front ends look one character ahead */
    if (!g || !copy) {
        free(g);
        free(copy);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar");
    }
    memcpy(copy, text ? text : "", text ? len : 0);
    g->refs = 1;
    pthread_mutex_init(&g->lock, NULL);
    vt_arena_init(&g->m.arena, VT_GRAMMAR_MAX_BYTES);
    bool json = kind <= VT_GRAMMAR_JSON_OBJECT || kind == VT_GRAMMAR_CALLS;
    vt_status status = rules_init(&g->m.g, &g->m.arena, json ? CHARS_JSON : CHARS_RAW) &&
                               machine_init(&g->m, v)
                           ? compile(g, kind, copy, len, err)
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar");
    free(copy);
    if (status != VT_OK)
        vt_grammar_unref(g);
    else
        *out = g;
    return status;
}

/* A string of any characters, and of those that patterns see: walking the vocabulary for these two
 * takes most of the time that a first mask takes. */
vt_status vt_grammar_warm(vt_grammar_vocab *v, vt_err *err)
{
    vt_grammar *g;
    TRY(vt_grammar_compile(v, VT_GRAMMAR_JSON_OBJECT, NULL, 0, &g, err));
    rules *r = &g->m.g;
    rx dots = RX_NOTHING;
    bool ok = pattern_compile(&r->rx, "^.*$", 4, CHARS_JSON, false, &dots, err) == VT_OK;
    const rx_node dot = *rx_at(&r->rx, dots); /* a copy: new nodes move the others */
    const rx character[3] = {r->any_char, r->json_char, dot.a};
    for (int i = 0; ok && i < (dot.kind == RX_KIND_REPEAT ? 3 : 2); i++) {
        rx string = rx_close(&r->rx, rx_repeat(&r->rx, character[i], 0, RX_NO_MOST));
        seed_use use;
        symbol s = rules_lexeme(r, string);
        ok &= seed_find(&g->m, lexeme_of(s), string, &use);
    }
    vt_grammar_unref(g);
    return ok ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar's vocabulary");
}

const char *vt_grammar_opening(const vt_grammar *g, bool *at_start)
{
    *at_start = g->opening.at_start;
    return g->opening.text;
}

vt_grammar *vt_grammar_ref(vt_grammar *g)
{
    __atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

void vt_grammar_unref(vt_grammar *g)
{
    if (!g || __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    machine_release(&g->m);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

size_t vt_grammar_bytes(vt_grammar *g) { return __atomic_load_n(&g->bytes, __ATOMIC_RELAXED); }

bool vt_grammar_is_hopeless(vt_grammar *g)
{
    pthread_mutex_lock(&g->lock);
    bool hopeless = g->m.failed != NULL && !g->m.config[g->m.start]->mask;
    pthread_mutex_unlock(&g->lock);
    return hopeless;
}

bool vt_grammar_is_worn(vt_grammar *g)
{
    return __atomic_load_n(&g->failed, __ATOMIC_RELAXED) ||
           vt_grammar_bytes(g) > VT_GRAMMAR_FRESH_BYTES;
}
