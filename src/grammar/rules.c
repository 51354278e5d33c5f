#include "grammar/rules.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

bool rules_init(rules *g, vt_arena *arena, char_form form)
{
    *g = (rules){.arena = arena};
    if (!rx_store_init(&g->rx, arena))
        return false;
    g->json_char = char_any(&g->rx, form);
    g->rx.any = rx_repeat(&g->rx, g->json_char, 0, RX_NO_MOST);
    g->rx.node[g->rx.any].text = true;
    if (form == CHARS_JSON)
        g->any_char = char_any_escape(&g->rx);
    return !g->rx.failed;
}

void rules_raw(rules *g)
{
    if (g->rx.raw)
        return;
    g->raw_char = char_any(&g->rx, CHARS_RAW);
    rx_mark_character(&g->rx, g->raw_char, false, true);
    rx all = rx_repeat(&g->rx, g->raw_char, 0, RX_NO_MOST);
    g->rx.node[all].text = false; /* some of its characters JSON writes in another way */
    g->rx.raw = all;
}

void rules_release(rules *g)
{
    rx_store_release(&g->rx);
    free(g->symbol);
    free(g->rest);
    free(g->rule);
    free(g->alternative);
    free(g->lexeme);
    free(g->lexeme_of);
    *g = (rules){0};
}

/* Makes room for one more of n elements. */
bool rules_no_memory(rules *g)
{
    g->failed = true;
    g->rx.failed = g->rx.failed ? g->rx.failed : rx_no_memory;
    return false;
}

static bool room(rules *g, void *array, int32_t n, int32_t *cap, size_t size)
{
    void **at = array;
    if (n < *cap)
        return true;
    int32_t more = *cap ? 2 * *cap : 64;
    void *p = realloc(*at, (size_t)more * size);
    if (!p)
        return rules_no_memory(g);
    *at = p;
    *cap = more;
    return true;
}

symbol rules_new(rules *g, const char *name)
{
    void *array = g->rule;
    if (!room(g, &array, g->n_rules, &g->cap_rules, sizeof *g->rule))
        return g->n_rules;
    g->rule = array;
    g->rule[g->n_rules++] = (grammar_rule){.name = name, .first = -1, .last = -1, .least = -1};
    return g->n_rules;
}

symbol rules_lexeme(rules *g, rx a)
{
    if (a >= g->n_lexeme_of) {
        int32_t n = 2 * a + 64;
        int32_t *more = realloc(g->lexeme_of, (size_t)n * sizeof *more);
        if (!more) {
            (void)rules_no_memory(g);
            return -1;
        }
        memset(more + g->n_lexeme_of, 0, (size_t)(n - g->n_lexeme_of) * sizeof *more);
        g->lexeme_of = more;
        g->n_lexeme_of = n;
    }
    if (g->lexeme_of[a])
        return -g->lexeme_of[a];
    void *array = g->lexeme;
    if (!room(g, &array, g->n_lexemes, &g->cap_lexemes, sizeof *g->lexeme))
        return -1;
    g->lexeme = array;
    g->lexeme[g->n_lexemes] = (grammar_lexeme){
        .is = a, .least = rx_least(&g->rx, a), .nullable = rx_at(&g->rx, a)->nullable};
    g->lexeme_of[a] = ++g->n_lexemes;
    return -g->n_lexemes;
}

symbol rules_text(rules *g, const char *text)
{
    return rules_lexeme(g, rx_string(&g->rx, text, strlen(text)));
}

static bool push_symbol(rules *g, symbol s)
{
    void *array = g->symbol;
    if (g->n_symbols >= VT_GRAMMAR_MAX_SYMBOLS ||
        !room(g, &array, g->n_symbols, &g->cap_symbols, sizeof *g->symbol))
        return false;
    g->symbol = array;
    g->symbol[g->n_symbols++] = s;
    return true;
}

void rules_add(rules *g, symbol r, const symbol *s, int32_t n)
{
    void *array = g->alternative;
    int32_t at = g->n_symbols;
    if (!room(g, &array, g->n_alternatives, &g->cap_alternatives, sizeof *g->alternative))
        return;
    g->alternative = array;
    for (int32_t i = 0; i < n && !g->failed; i++)
        g->failed = !push_symbol(g, s[i]);
    if (g->failed || !push_symbol(g, SYMBOL_END)) {
        g->failed = true;
        return;
    }
    grammar_rule *to = &g->rule[rule_of(r)];
    g->alternative[g->n_alternatives] = (alternative){at, -1};
    if (to->last >= 0)
        g->alternative[to->last].next = g->n_alternatives;
    else
        to->first = g->n_alternatives;
    to->last = g->n_alternatives++;
}

/* ---- lengths ---- */

static int32_t symbol_least(const rules *g, symbol s)
{
    return s > 0 ? g->rule[rule_of(s)].least : g->lexeme[lexeme_of(s)].least;
}

/* Fills `rest` of an alternative. Returns its shortest text's bytes; -1: none. */
static int32_t measure(rules *g, int32_t at)
{
    int32_t end = at, sum = 0;
    while (g->symbol[end] != SYMBOL_END)
        end++;
    g->rest[end] = 0;
    for (int32_t i = end - 1; i >= at; i--) {
        int32_t least = symbol_least(g, g->symbol[i]);
        sum = sum < 0 || least < 0 ? -1 : sum + least;
        sum = sum > RX_MAX_REPEAT * 16 ? RX_MAX_REPEAT * 16 : sum;
        g->rest[i] = sum;
    }
    return sum;
}

static bool measure_rule(rules *g, grammar_rule *r)
{
    bool changed = false;
    for (int32_t a = r->first; a >= 0; a = g->alternative[a].next) {
        int32_t least = measure(g, g->alternative[a].at);
        if (least >= 0 && (r->least < 0 || least < r->least)) {
            r->least = least;
            changed = true;
        }
    }
    return changed;
}

/* Rules are made before those that they use, so that going backwards settles most at once. */
static void measure_all(rules *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = g->n_rules - 1; i >= 0; i--)
            changed |= measure_rule(g, &g->rule[i]);
    }
    for (int32_t i = 0; i < g->n_rules; i++) {
        grammar_rule *r = &g->rule[i];
        int32_t *link = &r->first;
        measure_rule(g, r);
        r->nullable = r->least == 0;
        while (*link >= 0) { /* drop what has no text */
            alternative *a = &g->alternative[*link];
            if (g->rest[a->at] < 0)
                *link = a->next;
            else
                link = &a->next;
        }
    }
}

/* ---- rules that begin with themselves ---- */

static bool symbol_nullable(const rules *g, symbol s)
{
    return s > 0 ? g->rule[rule_of(s)].nullable : g->lexeme[lexeme_of(s)].nullable;
}

enum { UNSEEN, OPEN, DONE, MAX_CALLS = 20000 };

typedef struct call {
    int32_t rule, alternative, at;
} call;

/* Walks from rule to rule that may stand at its beginning, with a stack of its own. Returns a rule
 * that was met inside itself; -1: none; -2: too deep or out of memory. */
static int32_t find_left_recursion(rules *g, int32_t root, call *stack)
{
    int32_t n = 0;
    stack[n++] = (call){root, g->rule[root].first, -1};
    g->rule[root].mark = OPEN;
    while (n > 0) {
        call *c = &stack[n - 1];
        if (c->alternative < 0) {
            g->rule[c->rule].mark = DONE;
            n--;
            continue;
        }
        c->at = c->at < 0 ? g->alternative[c->alternative].at : c->at;
        symbol s = g->symbol[c->at];
        if (s == SYMBOL_END) {
            c->alternative = g->alternative[c->alternative].next;
            c->at = -1;
            continue;
        }
        if (symbol_nullable(g, s)) {
            c->at++;
        } else {
            c->alternative = g->alternative[c->alternative].next;
            c->at = -1;
        }
        if (s < 0 || g->rule[rule_of(s)].mark == DONE)
            continue;
        if (g->rule[rule_of(s)].mark == OPEN)
            return rule_of(s);
        if (n == MAX_CALLS)
            return -2;
        g->rule[rule_of(s)].mark = OPEN;
        stack[n++] = (call){rule_of(s), g->rule[rule_of(s)].first, -1};
    }
    return -1;
}

vt_status rules_finish(rules *g, symbol root, vt_err *err)
{
    if (g->rx.failed)
        return vt_fail(err, rx_failure(g->rx.failed), "the grammar is too large: %s", g->rx.failed);
    if (g->failed)
        return vt_fail(err, VT_ERR_USAGE, "the grammar is too large: more than %d symbols",
                       VT_GRAMMAR_MAX_SYMBOLS);
    g->rest = vt_calloc((size_t)g->n_symbols + 1, sizeof *g->rest);
    if (!g->rest)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar");
    measure_all(g);
    if (g->rule[rule_of(root)].least < 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "no text of finite length satisfies it: what it demands contradicts itself, "
                       "or never ends");
    call *stack = vt_calloc(MAX_CALLS, sizeof *stack);
    int32_t found = stack ? find_left_recursion(g, rule_of(root), stack) : -2;
    for (int32_t i = 0; stack && found == -1 && i < g->n_rules; i++)
        if (g->rule[i].mark == UNSEEN && g->rule[i].least >= 0)
            found = find_left_recursion(g, i, stack);
    free(stack);
    if (found >= 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "rule %.80s begins with itself: write it the other way "
                       "round, with the repetition at its end",
                       g->rule[found].name ? g->rule[found].name : "of the schema");
    if (found == -2)
        return vt_fail(err, VT_ERR_USAGE, "rules are nested too deeply, more than %d", MAX_CALLS);
    return VT_OK;
}
