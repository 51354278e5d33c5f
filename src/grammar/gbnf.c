/* GBNF, the notation of llama.cpp's grammars, as far as it speaks of text:
 *
 *   root  ::= item ("," item)*          # a comment
 *   item  ::= [a-z]+ | "x"{2,3} | ( item "!" )?
 *
 * Also EBNF files of other engines that are written in it. A rule that uses no rule that leads back
 * to itself is regular: it becomes one expression, and so one lexeme. What is left are rules.
 *
 *   1. Read the text into a tree.
 *   2. Find the rules that are part of a circle, or that lead to one.
 *   3. Turn regular subtrees into expressions, the others into rules over them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/internal.h"

enum { MAX_RULES = 10000, MAX_DEPTH = 100, MAX_NODES = 200000, MAX_INLINE = 1000000 };

typedef enum kind { TEXT, CALL, CAT, ALT, REPEAT } kind;

typedef struct node {
    kind kind;
    rx text;                   /* TEXT */
    int32_t rule;              /* CALL */
    int32_t min, max;          /* REPEAT */
    struct node *first, *next; /* kids: a list */
} node;

typedef struct definition {
    const char *name;
    node *is; /* NULL: not defined */
    bool circular;
    uint8_t mark; /* 1 being looked at, 2 done */
    rx regular;   /* once made; -1 */
    symbol rule;  /* once made; 0 */
} definition;

typedef struct reader {
    rules *g;
    const char *text, *p, *end;
    definition *def;
    int32_t n, cap, n_nodes;
    int depth;
    vt_err *err;
} reader;

static vt_status refuse(const reader *r, const char *fmt, const char *name)
{
    char why[200];
    int line = 1;
    for (const char *p = r->text; p < r->p; p++)
        line += *p == '\n';
    snprintf(why, sizeof why, fmt, name);
    return vt_fail(r->err, VT_ERR_USAGE, "grammar: line %d: %s", line, why);
}

/* ---- reading ---- */

static node *new_node(reader *r, kind k)
{
    node *n = r->n_nodes++ < MAX_NODES ? vt_arena_alloc(r->g->arena, 1, sizeof *n) : NULL;
    if (n)
        n->kind = k;
    return n;
}

/* Blanks and comments; newlines too where a rule cannot end. */
static void skip(reader *r, bool newlines)
{
    while (r->p < r->end) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n')
                r->p++;
        else if (*r->p == ' ' || *r->p == '\t' || (newlines && (*r->p == '\n' || *r->p == '\r')))
            r->p++;
        else
            return;
    }
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '-' || c == '_'; }

static vt_status find_rule(reader *r, const char *name, size_t len, int32_t *out)
{
    for (int32_t i = 0; i < r->n; i++)
        if (strlen(r->def[i].name) == len && memcmp(r->def[i].name, name, len) == 0)
            return *out = i, VT_OK;
    if (r->n == MAX_RULES)
        return refuse(r, "more than %s rules", "10000");
    if (r->n == r->cap) {
        int32_t cap = r->cap ? 2 * r->cap : 64;
        definition *more = realloc(r->def, (size_t)cap * sizeof *more);
        if (!more)
            return vt_fail(r->err, VT_ERR_MEMORY, "out of memory for a grammar");
        r->def = more;
        r->cap = cap;
    }
    const char *copy = vt_arena_strdup(r->g->arena, name, len);
    if (!copy)
        return refuse(r, "%s", "it takes too much memory");
    r->def[r->n] = (definition){.name = copy, .regular = -1};
    *out = r->n++;
    return VT_OK;
}

static bool hex(reader *r, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        char c = r->p < r->end ? *r->p : 0;
        if (!isxdigit((unsigned char)c))
            return false;
        *out = *out * 16 + (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
        r->p++;
    }
    return *out <= 0x10FFFF;
}

/* A character of "..." or [...]. */
static vt_status character(reader *r, uint32_t *out)
{
    static const char simple[] = "n\nr\rt\t\\\\\"\"[[]]^^--''//";
    if (*r->p != '\\') {
        r->p += vt_utf8_next(r->p, out);
        return VT_OK;
    }
    r->p++;
    char c = r->p < r->end ? *r->p : 0;
    if (c == 'x' || c == 'u' || c == 'U') {
        r->p++;
        if (!hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, out))
            return refuse(r, "%s", "expected hexadecimal digits of a character");
        return VT_OK;
    }
    for (size_t i = 0; c && i + 1 < sizeof simple; i += 2)
        if (simple[i] == c) {
            r->p++;
            *out = (unsigned char)simple[i + 1];
            return VT_OK;
        }
    return refuse(r, "%s", "an unknown escape");
}

static vt_status string(reader *r, node **out)
{
    vt_buf b = {0};
    vt_status status = VT_OK;
    for (r->p++; status == VT_OK && r->p < r->end && *r->p != '"' && *r->p != '\n';) {
        uint32_t c;
        status = character(r, &c);
        if (status == VT_OK)
            vt_utf8_add(&b, c);
    }
    if (status == VT_OK && (r->p == r->end || *r->p != '"'))
        status = refuse(r, "%s", "a text without its closing quote");
    r->p += status == VT_OK;
    *out = new_node(r, TEXT);
    if (status == VT_OK && (b.failed || !*out))
        status = refuse(r, "%s", "it takes too much memory");
    if (status == VT_OK)
        (*out)->text = rx_string(&r->g->rx, b.data, b.len);
    vt_buf_release(&b);
    return status;
}

static vt_status class_members(reader *r, charset *set)
{
    while (r->p < r->end && *r->p != ']') {
        uint32_t from, to;
        TRY(character(r, &from));
        to = from;
        if (r->end - r->p >= 2 && r->p[0] == '-' && r->p[1] != ']') {
            r->p++;
            TRY(character(r, &to));
        }
        if (to < from)
            return refuse(r, "%s", "a range whose end is in front of its beginning");
        charset_add(set, from, to);
    }
    if (r->p == r->end)
        return refuse(r, "%s", "[ without ]");
    r->p++;
    return VT_OK;
}

static vt_status char_class(reader *r, node **out)
{
    charset set = {0};
    r->p++;
    bool negate = r->p < r->end && *r->p == '^';
    r->p += negate;
    vt_status status = class_members(r, &set);
    if (status == VT_OK && negate)
        charset_negate(&set);
    *out = new_node(r, TEXT);
    if (status == VT_OK && !*out)
        status = refuse(r, "%s", "it takes too much memory");
    if (status == VT_OK)
        (*out)->text = charset_rx(&r->g->rx, &set, CHARS_RAW);
    charset_release(&set);
    return status;
}

static vt_status alternatives(reader *r, bool inside, node **out);

static vt_status primary(reader *r, bool inside, node **out)
{
    char c = *r->p;
    if (c == '"')
        return string(r, out);
    if (c == '[')
        return char_class(r, out);
    if (c == '.') {
        r->p++;
        *out = new_node(r, TEXT);
        if (*out)
            (*out)->text = r->g->json_char;
        return *out ? VT_OK : refuse(r, "%s", "it takes too much memory");
    }
    if (c == '(') {
        r->p++;
        if (++r->depth > MAX_DEPTH)
            return refuse(r, "%s", "brackets are nested too deeply");
        TRY(alternatives(r, true, out));
        r->depth--;
        if (r->p == r->end || *r->p != ')')
            return refuse(r, "%s", "( without )");
        r->p++;
        return VT_OK;
    }
    (void)inside;
    if (c == '<' || c == '!')
        return refuse(r, "%s", "tokens such as <think> are not supported");
    if (!is_name(c))
        return refuse(r, "%s", "expected a text, a class, a rule's name or a bracket");
    const char *name = r->p;
    while (r->p < r->end && is_name(*r->p))
        r->p++;
    *out = new_node(r, CALL);
    return *out ? find_rule(r, name, (size_t)(r->p - name), &(*out)->rule)
                : refuse(r, "%s", "it takes too much memory");
}

static bool number(reader *r, int32_t *out)
{
    int64_t n = 0;
    const char *from = r->p;
    for (; r->p < r->end && isdigit((unsigned char)*r->p); r->p++)
        n = n < 10 * RX_MAX_REPEAT ? 10 * n + (*r->p - '0') : n;
    *out = (int32_t)n;
    return r->p > from;
}

static vt_status braces(reader *r, int32_t *min, int32_t *max)
{
    r->p++;
    skip(r, false);
    if (!number(r, min))
        *min = 0;
    skip(r, false);
    *max = *min;
    if (r->p < r->end && *r->p == ',') {
        r->p++;
        skip(r, false);
        if (!number(r, max))
            *max = RX_NO_MOST;
        skip(r, false);
    }
    if (r->p == r->end || *r->p != '}')
        return refuse(r, "%s", "expected a count such as {2,3}");
    r->p++;
    if (*min > RX_MAX_REPEAT || *max > RX_MAX_REPEAT || (*max != RX_NO_MOST && *max < *min))
        return refuse(r, "%s", "a count above 1,000,000, or whose end is below its beginning");
    return VT_OK;
}

/* * + ? and {m,n} behind a part, any number of them. */
static vt_status quantifiers(reader *r, node **part)
{
    while (r->p < r->end && strchr("*+?{", *r->p) && *r->p) {
        int32_t min = *r->p == '+', max = *r->p == '?' ? 1 : RX_NO_MOST;
        if (*r->p == '{')
            TRY(braces(r, &min, &max));
        else
            r->p++;
        node *n = new_node(r, REPEAT);
        if (!n)
            return refuse(r, "%s", "it takes too much memory");
        n->min = min;
        n->max = max;
        n->first = *part;
        *part = n;
        skip(r, r->depth > 0);
    }
    return VT_OK;
}

/* Is this the beginning of the next rule, "name ::="? */
static bool rule_follows(const reader *r)
{
    const char *p = r->p;
    while (p < r->end && is_name(*p))
        p++;
    if (p == r->p)
        return false;
    while (p < r->end && (*p == ' ' || *p == '\t'))
        p++;
    return r->end - p >= 3 && memcmp(p, "::=", 3) == 0;
}

static vt_status sequence(reader *r, bool inside, node **out)
{
    node *n = new_node(r, CAT), **last;
    if (!n)
        return refuse(r, "%s", "it takes too much memory");
    last = &n->first;
    for (skip(r, true); r->p < r->end && *r->p != '|' && *r->p != ')' && !rule_follows(r);
         skip(r, true)) {
        TRY(primary(r, inside, last));
        skip(r, r->depth > 0);
        TRY(quantifiers(r, last));
        last = &(*last)->next;
    }
    *out = n;
    return VT_OK;
}

static vt_status alternatives(reader *r, bool inside, node **out)
{
    node *n = new_node(r, ALT), **last;
    if (!n)
        return refuse(r, "%s", "it takes too much memory");
    last = &n->first;
    for (;;) {
        TRY(sequence(r, inside, last));
        last = &(*last)->next;
        if (r->p == r->end || *r->p != '|')
            break;
        r->p++;
    }
    *out = n;
    return VT_OK;
}

static vt_status read_rules(reader *r)
{
    for (skip(r, true); r->p < r->end; skip(r, true)) {
        const char *name = r->p;
        int32_t i;
        node *is;
        if (!rule_follows(r))
            return refuse(r, "%s", "expected a rule: name ::= ...");
        while (is_name(*r->p))
            r->p++;
        TRY(find_rule(r, name, (size_t)(r->p - name), &i));
        skip(r, false);
        r->p += 3;
        if (r->def[i].is)
            return refuse(r, "rule %.80s is defined twice", r->def[i].name);
        TRY(alternatives(r, false, &is));
        r->def[i].is = is;
        if (r->p < r->end && *r->p == ')')
            return refuse(r, "%s", ") without (");
    }
    for (int32_t i = 0; i < r->n; i++)
        if (!r->def[i].is)
            return refuse(r, "rule %.80s is not defined", r->def[i].name);
    return VT_OK;
}

/* ---- circles ---- */

/* Marks the rules from which a circle can be reached. Returns true if this tree reaches one. */
static bool find_circles(reader *r, const node *n, int depth, bool *too_deep)
{
    bool circular = false;
    if (depth > 2000) {
        *too_deep = true;
        return true;
    }
    if (n->kind == CALL) {
        definition *d = &r->def[n->rule];
        if (d->mark == 1)
            d->circular = true; /* inside itself */
        if (d->mark == 0) {
            d->mark = 1;
            bool inner = find_circles(r, d->is, depth + 1, too_deep);
            d->circular |= inner;
            d->mark = 2;
        }
        return d->circular;
    }
    for (const node *k = n->first; k; k = k->next)
        circular |= find_circles(r, k, depth + 1, too_deep);
    return circular;
}

/* ---- writing ---- */

static bool is_regular(const reader *r, const node *n)
{
    if (n->kind == CALL)
        return !r->def[n->rule].circular;
    for (const node *k = n->first; k; k = k->next)
        if (!is_regular(r, k))
            return false;
    return true;
}

static rx regular(reader *r, const node *n);

/* One union of all: a list for each alternative with those before it would grow with the square. */
static rx regular_union(reader *r, const node *first)
{
    rx_store *x = &r->g->rx;
    int32_t n = 0;
    for (const node *k = first; k; k = k->next)
        n++;
    rx *one = vt_calloc((size_t)n + 1, sizeof *one);
    if (!one) {
        x->failed = x->failed ? x->failed : rx_no_memory;
        return RX_NOTHING;
    }
    n = 0;
    for (const node *k = first; k; k = k->next)
        one[n++] = regular(r, k);
    rx made = rx_alt(x, one, n);
    free(one);
    return made;
}

static rx regular(reader *r, const node *n)
{
    rx_store *x = &r->g->rx;
    rx made = RX_EMPTY;
    switch (n->kind) {
    case TEXT:
        return n->text;
    case CALL:
        if (r->def[n->rule].regular < 0)
            r->def[n->rule].regular = regular(r, r->def[n->rule].is);
        return r->def[n->rule].regular;
    case REPEAT:
        return rx_repeat(x, regular(r, n->first), n->min, n->max);
    case CAT:
        for (const node *k = n->first; k; k = k->next)
            made = rx_cat(x, made, regular(r, k));
        return made;
    default:
        return regular_union(r, n->first);
    }
}

static symbol write_node(reader *r, const node *n);

/* x{min,max} as rules: x .. x, then either any number, or max - min times at most. */
static symbol write_repeat(reader *r, const node *n)
{
    rules *g = r->g;
    symbol x = write_node(r, n->first), rest = rules_new(g, NULL), s[2];
    int32_t most = n->max == RX_NO_MOST ? 0 : n->max - n->min;
    if (n->max == RX_NO_MOST) {
        s[0] = x;
        s[1] = rest;
        rules_add(g, rest, s, 2);
    }
    rules_add(g, rest, NULL, 0);
    for (int32_t i = 0; i < most && !g->failed; i++) { /* rest = (x rest)? */
        symbol outer = rules_new(g, NULL);
        s[0] = x;
        s[1] = rest;
        rules_add(g, outer, s, 2);
        rules_add(g, outer, NULL, 0);
        rest = outer;
    }
    for (int32_t i = 0; i < n->min && !g->failed; i++) {
        symbol outer = rules_new(g, NULL);
        s[0] = x;
        s[1] = rest;
        rules_add(g, outer, s, 2);
        rest = outer;
    }
    return rest;
}

/* Neighbours that are regular become one lexeme. */
static void write_sequence(reader *r, const node *n, symbol rule)
{
    rules *g = r->g;
    symbol few[32] = {0}, *s = few;
    int32_t count = 0, used = 0;
    for (const node *k = n->first; k; k = k->next)
        count++;
    if (count > 32)
        s = vt_calloc((size_t)count, sizeof *s);
    if (!s) {
        (void)rules_no_memory(g);
        return;
    }
    for (const node *k = n->first; k;) {
        rx run = RX_EMPTY;
        for (; k && is_regular(r, k); k = k->next)
            run = rx_cat(&g->rx, run, regular(r, k));
        if (run != RX_EMPTY)
            s[used++] = rules_lexeme(g, run);
        if (k) {
            s[used++] = write_node(r, k);
            k = k->next;
        }
    }
    rules_add(g, rule, s, used);
    if (s != few)
        free(s);
}

static symbol write_node(reader *r, const node *n)
{
    rules *g = r->g;
    if (g->failed)
        return 1;
    if (is_regular(r, n))
        return rules_lexeme(g, regular(r, n));
    if (n->kind == REPEAT)
        return write_repeat(r, n);
    if (n->kind == CALL) {
        definition *d = &r->def[n->rule];
        if (!d->rule) {
            d->rule = rules_new(g, d->name);
            for (const node *k = d->is->first; k; k = k->next)
                write_sequence(r, k, d->rule);
        }
        return d->rule;
    }
    symbol rule = rules_new(g, NULL);
    if (n->kind == CAT)
        write_sequence(r, n, rule);
    for (const node *k = n->first; n->kind == ALT && k; k = k->next)
        write_sequence(r, k, rule);
    return rule;
}

vt_status gbnf_compile(rules *g, const char *text, size_t len, symbol *root, vt_err *err)
{
    reader r = {.g = g, .text = text, .p = text, .end = text + len, .err = err};
    int32_t start;
    bool too_deep = false;
    vt_status status = vt_utf8_valid(text, len) == len && !memchr(text, 0, len)
                           ? read_rules(&r)
                           : vt_fail(err, VT_ERR_USAGE, "grammar: it is not UTF-8 text");
    int32_t n = r.n;
    if (status == VT_OK && (find_rule(&r, "root", 4, &start) != VT_OK || start == n))
        status = vt_fail(err, VT_ERR_USAGE, "grammar: no rule is called root");
    if (status == VT_OK) {
        node call = {.kind = CALL, .rule = start};
        (void)find_circles(&r, &call, 0, &too_deep);
        if (too_deep)
            status = vt_fail(err, VT_ERR_USAGE, "grammar: rules are nested too deeply");
    }
    if (status == VT_OK) {
        node call = {.kind = CALL, .rule = start};
        symbol s = write_node(&r, &call);
        *root = rules_new(g, "root");
        rules_add(g, *root, &s, 1);
    }
    free(r.def);
    return status;
}
