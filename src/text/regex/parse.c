/* Regular expressions, part 1: pattern text to a tree of nodes and character sets.
 *
 * Recursive descent, one function per level: alternation, sequence, repetition, atom. A class is a
 * little language of its own ([a-z&&[^b]\p{L}]). Case-insensitive letters become sets at once, so
 * that nothing later knows of case. Folding is one character to one, including U+017F with s and
 * U+212A with k; Oniguruma also knows sequences (ss and sharp s), which no tokenizer's contractions
 * need.
 */
#include <stdlib.h>
#include <string.h>

#include "text/regex/internal.h"

typedef struct parser {
    vt_arena *arena;
    const char *pattern;
    size_t at, len;
    bool fold; /* (?i) */
    int depth;
    vt_err *err;
} parser;

#define FAIL(p, ...) vt_fail((p)->err, VT_ERR_UNSUPPORTED, "regex: " __VA_ARGS__)

static vt_status parse_alternation(parser *p, regex_node **out);

static vt_status no_memory(parser *p)
{
    return vt_fail(p->err, VT_ERR_MEMORY, "regex: the pattern needs too much memory");
}

static bool more(const parser *p) { return p->at < p->len; }
static bool looking_at(const parser *p, const char *s)
{
    size_t n = strlen(s);
    return p->len - p->at >= n && memcmp(p->pattern + p->at, s, n) == 0;
}
static bool take(parser *p, const char *s)
{
    if (!looking_at(p, s))
        return false;
    p->at += strlen(s);
    return true;
}
static uint32_t take_char(parser *p)
{
    uint32_t c;
    p->at += (size_t)vt_utf8_next(p->pattern + p->at, &c);
    return c;
}

static regex_node *node_new(parser *p, regex_kind kind, regex_node *child)
{
    regex_node *n = vt_arena_alloc(p->arena, 1, sizeof *n);
    if (n) {
        n->kind = kind;
        n->child = child;
    }
    return n;
}

/* ---- sets ---- */

static regex_set *set_new(parser *p) { return vt_arena_alloc(p->arena, 1, sizeof(regex_set)); }

static vt_status set_add_range(parser *p, regex_set *s, uint32_t low, uint32_t high)
{
    if (s->n_range == s->cap_range) {
        int32_t cap = s->cap_range ? s->cap_range * 2 : 8;
        uint32_t(*grown)[2] = vt_arena_alloc(p->arena, (size_t)cap, sizeof *grown);
        if (!grown)
            return no_memory(p);
        if (s->n_range)
            memcpy(grown, s->range, (size_t)s->n_range * sizeof *grown);
        s->range = grown;
        s->cap_range = cap;
    }
    s->range[s->n_range][0] = low;
    s->range[s->n_range++][1] = high;
    return VT_OK;
}

/* Adds low..high and, under (?i), the other cases of its characters. */
static vt_status set_add_folded(parser *p, regex_set *s, uint32_t low, uint32_t high)
{
    TRY(set_add_range(p, s, low, high));
    if (!p->fold)
        return VT_OK;
    for (uint32_t c = low; c <= high && c < 0x80; c++) {
        uint32_t lower = vt_unicode_lower_of(c);
        if (lower < 'a' || lower > 'z')
            continue;
        TRY(set_add_range(p, s, lower, lower));
        TRY(set_add_range(p, s, lower - 32, lower - 32));
        if (lower == 's')
            TRY(set_add_range(p, s, 0x17F, 0x17F));
        if (lower == 'k')
            TRY(set_add_range(p, s, 0x212A, 0x212A));
    }
    if (high < 0x80)
        return VT_OK;
    for (int32_t i = 0; i < vt_ulower_count; i++) {
        uint32_t upper = vt_ulower[i][0], lower = vt_ulower[i][1];
        if (upper >= low && upper <= high)
            TRY(set_add_range(p, s, lower, lower));
        if (lower >= low && lower <= high)
            TRY(set_add_range(p, s, upper, upper));
    }
    return VT_OK;
}

static bool in_ranges(const regex_set *s, uint32_t c)
{
    int32_t low = 0, high = s->n_range;
    while (low < high) { /* the first range that ends at or after c */
        int32_t mid = low + (high - low) / 2;
        if (s->range[mid][1] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_range && s->range[low][0] <= c;
}

bool regex_set_has_slow(const regex_set *s, uint32_t c)
{
    vt_uprop u = vt_uprop_of(c);
    bool in = (s->categories >> u.category & 1) || (s->flags & u.flags);
    in = in || in_ranges(s, c);
    for (const regex_set *part = s->part; !in && part; part = part->next)
        in = regex_set_has_slow(part, c);
    for (const regex_set *also = s->also; in && also; also = also->next)
        in = regex_set_has_slow(also, c);
    return in != s->negate;
}

/* True if the answer for characters above U+007F depends on their property record alone. */
static bool set_is_pure(const regex_set *s)
{
    for (int32_t i = 0; i < s->n_range; i++)
        if (s->range[i][1] >= 0x80 && !(s->range[i][0] <= 0x80 && s->range[i][1] >= 0x10FFFF))
            return false;
    for (const regex_set *part = s->part; part; part = part->next)
        if (!set_is_pure(part))
            return false;
    for (const regex_set *also = s->also; also; also = also->next)
        if (!set_is_pure(also))
            return false;
    return true;
}

/* True if the set may hold characters above U+007F; true too where only a search would tell. */
static bool set_above_ascii(const regex_set *s)
{
    if (s->negate || s->categories || s->flags || s->part)
        return true;
    for (int32_t i = 0; i < s->n_range; i++)
        if (s->range[i][1] >= 0x80)
            return true;
    return false;
}

static void set_add_part(regex_set *s, regex_set *part)
{
    part->next = s->part;
    s->part = part;
}

static int by_start(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Sorts the ranges and joins those that overlap or touch. */
static void sort_ranges(regex_set *s)
{
    int32_t n = 0;
    if (s->n_range > 1)
        qsort(s->range, (size_t)s->n_range, sizeof *s->range, by_start);
    for (int32_t i = 0; i < s->n_range; i++) {
        if (n > 0 && s->range[i][0] <= s->range[n - 1][1] + 1) {
            if (s->range[i][1] > s->range[n - 1][1])
                s->range[n - 1][1] = s->range[i][1];
        } else {
            memmove(s->range[n++], s->range[i], sizeof *s->range);
        }
    }
    s->n_range = n;
}

/* Adds everything that is in none of the part's ranges. */
static vt_status add_complement(parser *p, regex_set *s, const regex_set *part)
{
    uint32_t from = 0;
    for (int32_t i = 0; i < part->n_range; i++) {
        if (part->range[i][0] > from)
            TRY(set_add_range(p, s, from, part->range[i][0] - 1));
        from = part->range[i][1] + 1;
    }
    return from < 0x110000 ? set_add_range(p, s, from, 0x10FFFF) : VT_OK;
}

static vt_status set_merge(parser *p, regex_set *s);

/* Adds the members of one part to s itself where s can express them; else keeps the part. */
static vt_status absorb(parser *p, regex_set *s, regex_set *part)
{
    const uint32_t every_category = (2u << VT_U_CN) - 1;
    bool plain = !part->part && !part->also;
    if (!part->negate && !part->also) {
        s->categories |= part->categories;
        s->flags |= part->flags;
        for (int32_t i = 0; i < part->n_range; i++)
            TRY(set_add_range(p, s, part->range[i][0], part->range[i][1]));
        for (regex_set *inner = part->part, *next; inner; inner = next) {
            next = inner->next;
            set_add_part(s, inner);
        }
    } else if (plain && !part->flags && !part->categories) {
        TRY(add_complement(p, s, part));
    } else if (plain && !part->flags && !part->n_range) {
        s->categories |= every_category & ~part->categories; /* each character has one category */
    } else {
        set_add_part(s, part);
    }
    return VT_OK;
}

/* Merges the parts of a set into it, from the innermost outwards, sorts its ranges and counts what
 * a look-up will cost. */
static vt_status set_merge(parser *p, regex_set *s)
{
    regex_set *list = s->part;
    int32_t parts = 0;
    s->part = NULL;
    for (regex_set *part = list, *next; part; part = next) {
        next = part->next;
        TRY(set_merge(p, part));
        TRY(absorb(p, s, part));
    }
    sort_ranges(s);
    for (int32_t n = s->n_range; n > 0; n >>= 4) /* a quarter of a step for each halving */
        s->cost++;
    for (regex_set *part = s->part; part; part = part->next, parts++)
        s->cost += 1 + part->cost;
    for (regex_set *also = s->also; also; also = also->next, parts++) {
        TRY(set_merge(p, also));
        s->cost += 1 + also->cost;
    }
    return parts <= REGEX_MAX_PARTS
               ? VT_OK
               : FAIL(p, "a class of more than %d sets that cannot be merged", REGEX_MAX_PARTS);
}

static vt_status set_finish(parser *p, regex_set *s)
{
    TRY(set_merge(p, s));
    for (uint32_t c = 0; c < 0x80; c++)
        if (regex_set_has_slow(s, c))
            s->ascii[c >> 6] |= 1ull << (c & 63);
    s->ascii_only = !set_above_ascii(s);
    s->pure = !s->ascii_only && set_is_pure(s);
    if (!s->pure)
        return VT_OK;
    /* One character of every record that occurs above U+007F stands for all of them; equal blocks
     * are looked at once. */
    bool seen[256] = {false}, seen_block[1024] = {false};
    for (uint32_t block = 1; block < 0x110000 >> 7; block++) {
        uint32_t same = vt_uprop_block[block];
        if (same < 1024 && seen_block[same])
            continue;
        if (same < 1024)
            seen_block[same] = true;
        for (uint32_t i = 0; i < 128; i++) {
            uint8_t r = vt_uprop_index[same][i];
            if (!seen[r] && regex_set_has_slow(s, (block << 7) + i))
                s->record[r >> 6] |= 1ull << (r & 63);
            seen[r] = true;
        }
    }
    return VT_OK;
}

static const struct {
    const char *name;
    uint32_t first, last; /* categories */
} category_names[] = {
    {"L", VT_U_LU, VT_U_LO},           {"Letter", VT_U_LU, VT_U_LO}, {"Lu", VT_U_LU, VT_U_LU},
    {"Ll", VT_U_LL, VT_U_LL},          {"Lt", VT_U_LT, VT_U_LT},     {"Lm", VT_U_LM, VT_U_LM},
    {"Lo", VT_U_LO, VT_U_LO},          {"M", VT_U_MN, VT_U_ME},      {"Mark", VT_U_MN, VT_U_ME},
    {"Mn", VT_U_MN, VT_U_MN},          {"Mc", VT_U_MC, VT_U_MC},     {"Me", VT_U_ME, VT_U_ME},
    {"N", VT_U_ND, VT_U_NO},           {"Number", VT_U_ND, VT_U_NO}, {"Nd", VT_U_ND, VT_U_ND},
    {"Nl", VT_U_NL, VT_U_NL},          {"No", VT_U_NO, VT_U_NO},     {"P", VT_U_PC, VT_U_PO},
    {"Punctuation", VT_U_PC, VT_U_PO}, {"Pc", VT_U_PC, VT_U_PC},     {"Pd", VT_U_PD, VT_U_PD},
    {"Ps", VT_U_PS, VT_U_PS},          {"Pe", VT_U_PE, VT_U_PE},     {"Pi", VT_U_PI, VT_U_PI},
    {"Pf", VT_U_PF, VT_U_PF},          {"Po", VT_U_PO, VT_U_PO},     {"S", VT_U_SM, VT_U_SO},
    {"Symbol", VT_U_SM, VT_U_SO},      {"Sm", VT_U_SM, VT_U_SM},     {"Sc", VT_U_SC, VT_U_SC},
    {"Sk", VT_U_SK, VT_U_SK},          {"So", VT_U_SO, VT_U_SO},     {"Z", VT_U_ZS, VT_U_ZP},
    {"Separator", VT_U_ZS, VT_U_ZP},   {"Zs", VT_U_ZS, VT_U_ZS},     {"Zl", VT_U_ZL, VT_U_ZL},
    {"Zp", VT_U_ZP, VT_U_ZP},          {"C", VT_U_CC, VT_U_CN},      {"Other", VT_U_CC, VT_U_CN},
    {"Cc", VT_U_CC, VT_U_CC},          {"Cf", VT_U_CF, VT_U_CF},     {"Cs", VT_U_CS, VT_U_CS},
    {"Co", VT_U_CO, VT_U_CO},          {"Cn", VT_U_CN, VT_U_CN},
};

/* Property names compare without case, spaces, '-' and '_'. */
static bool same_name(const char *name, const char *s, size_t n)
{
    size_t i = 0;
    for (; n > 0; s++, n--) {
        if (*s == ' ' || *s == '-' || *s == '_')
            continue;
        if (name[i] == 0 || /* the pattern may hold NULs */
            vt_unicode_lower_of((unsigned char)*s) != vt_unicode_lower_of((unsigned char)name[i]))
            return false;
        i++;
    }
    return name[i] == 0;
}

/* After \p or \P: {Name}, {^Name}. */
static vt_status parse_property(parser *p, bool negate, regex_set **out)
{
    if (!take(p, "{"))
        return FAIL(p, "\\p without {name} at byte %zu", p->at);
    if (take(p, "^"))
        negate = !negate;
    const char *name = p->pattern + p->at;
    while (more(p) && p->pattern[p->at] != '}')
        p->at++;
    size_t n = (size_t)(p->pattern + p->at - name);
    if (!take(p, "}"))
        return FAIL(p, "\\p{ without } at the end of the pattern");
    regex_set *s = set_new(p);
    if (!s)
        return no_memory(p);
    s->negate = negate;
    *out = s;
    for (size_t i = 0; i < sizeof category_names / sizeof *category_names; i++)
        if (same_name(category_names[i].name, name, n)) {
            for (uint32_t c = category_names[i].first; c <= category_names[i].last; c++)
                s->categories |= 1u << c;
            return VT_OK;
        }
    for (const vt_uscript *script = vt_uscripts; script->name; script++)
        if (same_name(script->name, name, n)) {
            for (uint32_t i = 0; i < script->n; i++) {
                const uint32_t *range = vt_uscript_range[script->first + i];
                TRY(set_add_range(p, s, range[0], range[1]));
            }
            return VT_OK;
        }
    return FAIL(p, "property \\p{%.*s} is not known", (int)(n > 40 ? 40 : n), name);
}

static vt_status parse_hex(parser *p, int min, int max, uint32_t *out)
{
    uint32_t value = 0;
    int n = 0;
    for (; n < max && more(p); n++) {
        char c = p->pattern[p->at];
        uint32_t lower = vt_unicode_lower_of((unsigned char)c);
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + lower - 'a' + 10;
        else
            break;
        p->at++;
    }
    if (n < min || value >= 0x110000)
        return FAIL(p, "a hexadecimal character number is wrong at byte %zu", p->at);
    *out = value;
    return VT_OK;
}

/* After a backslash: a class such as \s (then *set) or one character (then *code). */
static vt_status parse_escape(parser *p, bool in_class, regex_set **set, uint32_t *code)
{
    *set = NULL;
    uint32_t c = take_char(p);
    uint32_t lower = vt_unicode_lower_of(c);
    switch (c) {
    case 'n':
        *code = '\n';
        return VT_OK;
    case 'r':
        *code = '\r';
        return VT_OK;
    case 't':
        *code = '\t';
        return VT_OK;
    case 'f':
        *code = '\f';
        return VT_OK;
    case 'v':
        *code = '\v';
        return VT_OK;
    case 'a':
        *code = '\a';
        return VT_OK;
    case 'e':
        *code = 27;
        return VT_OK;
    case 'u':
        return parse_hex(p, 4, 4, code);
    case 'x':
        if (take(p, "{")) {
            TRY(parse_hex(p, 1, 8, code));
            return take(p, "}") ? VT_OK : FAIL(p, "\\x{ without } at byte %zu", p->at);
        }
        return parse_hex(p, 1, 2, code);
    case 'p':
    case 'P':
        return parse_property(p, c == 'P', set);
    default:
        break;
    }
    if (lower == 's' || lower == 'd' || lower == 'w' || lower == 'h') {
        regex_set *s = set_new(p);
        if (!s)
            return no_memory(p);
        s->negate = c != lower;
        if (lower == 's')
            s->flags = VT_U_SPACE;
        else if (lower == 'd')
            s->categories = 1u << VT_U_ND;
        else if (lower == 'w')
            s->flags = in_class ? VT_U_CLASS_WORD : VT_U_REGEX_WORD;
        else {
            TRY(set_add_range(p, s, '0', '9'));
            TRY(set_add_range(p, s, 'a', 'f'));
            TRY(set_add_range(p, s, 'A', 'F'));
        }
        *set = s;
        return VT_OK;
    }
    if ((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9'))
        return FAIL(p, "\\%c is not supported", (int)c);
    *code = c;
    return VT_OK;
}

/* One member of a class that has no special meaning: a character, an escape, or a range of them. */
static vt_status parse_class_range(parser *p, regex_set *s)
{
    uint32_t low = 0, high;
    regex_set *escaped = NULL;
    if (take(p, "\\")) {
        if (!more(p))
            return FAIL(p, "a backslash ends the pattern");
        if (looking_at(p, "b")) { /* in a class \b is the backspace */
            p->at++;
            low = 8;
        } else {
            TRY(parse_escape(p, true, &escaped, &low));
        }
    } else {
        low = take_char(p);
    }
    if (escaped) {
        set_add_part(s, escaped);
        return VT_OK;
    }
    high = low;
    if (looking_at(p, "-") && p->at + 1 < p->len && p->pattern[p->at + 1] != ']') {
        size_t dash = p->at;
        p->at++;
        if (take(p, "\\")) {
            if (!more(p))
                return FAIL(p, "a backslash ends the pattern");
            TRY(parse_escape(p, true, &escaped, &high));
        } else if (looking_at(p, "[") || looking_at(p, "&&")) {
            escaped = s; /* not a range: the dash is itself */
        } else {
            high = take_char(p);
        }
        if (escaped) {
            p->at = dash;
            high = low;
        }
    }
    if (high < low)
        return FAIL(p, "an empty range in a class at byte %zu", p->at);
    return set_add_folded(p, s, low, high);
}

/* After '['. */
static vt_status parse_class(parser *p, regex_set **out)
{
    if (++p->depth > REGEX_MAX_DEPTH)
        return FAIL(p, "nested deeper than %d", REGEX_MAX_DEPTH);
    regex_set *whole = set_new(p), *s = whole;
    if (!s)
        return no_memory(p);
    whole->negate = take(p, "^");
    for (bool first = true;; first = false) {
        if (!more(p))
            return FAIL(p, "[ without ]");
        if (!first && take(p, "]"))
            break;
        if (looking_at(p, "[:"))
            return FAIL(p, "POSIX bracket [: is not supported");
        if (take(p, "&&")) {
            regex_set *also = set_new(p);
            if (!also)
                return no_memory(p);
            also->next = whole->also;
            whole->also = also;
            s = also;
        } else if (take(p, "[")) {
            regex_set *part;
            TRY(parse_class(p, &part));
            set_add_part(s, part);
        } else {
            TRY(parse_class_range(p, s));
        }
    }
    p->depth--;
    *out = whole;
    return VT_OK;
}

/* ---- structure ---- */

static vt_status set_node(parser *p, regex_set *s, regex_node **out)
{
    TRY(set_finish(p, s));
    *out = node_new(p, RE_SET, NULL);
    if (!*out)
        return no_memory(p);
    (*out)->set = s;
    return VT_OK;
}

static vt_status char_node(parser *p, uint32_t c, regex_node **out)
{
    regex_set *s = set_new(p);
    if (!s)
        return no_memory(p);
    TRY(set_add_folded(p, s, c, c));
    return set_node(p, s, out);
}

/* After '('. */
static vt_status parse_group(parser *p, regex_node **out)
{
    static const struct {
        const char *text;
        regex_kind kind;
    } kinds[] = {{"?:", RE_EMPTY},   {"?=", RE_AHEAD},       {"?!", RE_NOT_AHEAD},
                 {"?<=", RE_BEHIND}, {"?<!", RE_NOT_BEHIND}, {"?>", RE_ATOMIC}};
    regex_kind kind = RE_EMPTY;
    bool fold = p->fold, known = !looking_at(p, "?");
    for (size_t i = 0; !known && i < sizeof kinds / sizeof *kinds; i++)
        if (take(p, kinds[i].text)) {
            kind = kinds[i].kind;
            known = true;
        }
    if (!known && (take(p, "?i:") || take(p, "?-i:"))) {
        p->fold = p->pattern[p->at - 3] != '-';
        known = true;
    }
    if (!known && (looking_at(p, "?i)") || looking_at(p, "?-i)"))) {
        /* Holds to the end of the enclosing group, alternatives included. */
        p->fold = p->pattern[p->at + 1] != '-';
        p->at += p->fold ? 3 : 4;
        TRY(parse_alternation(p, out));
        p->fold = fold;
        return VT_OK;
    }
    if (!known)
        return FAIL(p, "group (%.*s is not supported",
                    (int)(p->len - p->at < 3 ? p->len - p->at : 3), p->pattern + p->at);
    regex_node *inner;
    TRY(parse_alternation(p, &inner));
    if (!take(p, ")"))
        return FAIL(p, "( without )");
    p->fold = fold;
    *out = kind == RE_EMPTY ? inner : node_new(p, kind, inner);
    return *out ? VT_OK : no_memory(p);
}

static vt_status parse_atom(parser *p, regex_node **out)
{
    static const struct {
        const char *text;
        regex_kind kind;
    } assertions[] = {{"^", RE_LINE_START},     {"$", RE_LINE_END},      {"\\A", RE_TEXT_START},
                      {"\\z", RE_TEXT_END},     {"\\Z", RE_TEXT_END_NL}, {"\\b", RE_WORD_EDGE},
                      {"\\B", RE_NOT_WORD_EDGE}};
    for (size_t i = 0; i < sizeof assertions / sizeof *assertions; i++)
        if (take(p, assertions[i].text)) {
            *out = node_new(p, assertions[i].kind, NULL);
            return *out ? VT_OK : no_memory(p);
        }
    regex_set *s = NULL;
    if (take(p, "("))
        return parse_group(p, out);
    if (take(p, "[")) {
        TRY(parse_class(p, &s));
        return set_node(p, s, out);
    }
    if (take(p, ".")) {
        s = set_new(p);
        if (!s)
            return no_memory(p);
        s->negate = true;
        TRY(set_add_range(p, s, '\n', '\n'));
        return set_node(p, s, out);
    }
    uint32_t c = 0;
    if (take(p, "\\")) {
        if (!more(p))
            return FAIL(p, "a backslash ends the pattern");
        TRY(parse_escape(p, false, &s, &c));
        return s ? set_node(p, s, out) : char_node(p, c, out);
    }
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?"))
        return FAIL(p, "nothing to repeat at byte %zu", p->at);
    return char_node(p, take_char(p), out);
}

/* Reads {n}, {n,}, {,m} or {n,m}. False where the brace is an ordinary character; nothing is taken
 * then. */
static bool parse_braces(parser *p, int32_t *min, int32_t *max)
{
    size_t start = p->at;
    int64_t value[2] = {-1, -1};
    int which = 0;
    p->at++;
    for (; more(p) && !looking_at(p, "}"); p->at++) {
        char c = p->pattern[p->at];
        if (c == ',' && which == 0)
            which = 1;
        else if (c >= '0' && c <= '9' && value[which] < 100000)
            value[which] = (value[which] < 0 ? 0 : value[which]) * 10 + (c - '0');
        else
            break;
    }
    if (!take(p, "}") || (value[0] < 0 && value[1] < 0)) {
        p->at = start;
        return false;
    }
    *min = value[0] < 0 ? 0 : (int32_t)value[0];
    *max = which == 0 ? *min : (int32_t)value[1];
    return true;
}

static vt_status parse_repeat(parser *p, regex_node **out)
{
    TRY(parse_atom(p, out));
    for (int round = 0;; round++) {
        int32_t min = 0, max = -1;
        bool braces = false;
        if (take(p, "+"))
            min = 1;
        else if (take(p, "?"))
            max = 1;
        else if (!take(p, "*")) {
            if (!looking_at(p, "{") || !parse_braces(p, &min, &max))
                return VT_OK;
            braces = true;
        }
        if ((max >= 0 && max < min) || min > REGEX_MAX_REPEAT || max > REGEX_MAX_REPEAT)
            return FAIL(p, "repetition {%d,%d} is out of range", min, max);
        regex_node *r = node_new(p, RE_REPEAT, *out);
        if (!r)
            return no_memory(p);
        r->min = min;
        r->max = max;
        /* In this syntax x{n}? is (x{n})? and x{n,m}+ repeats once more: both are left to the next
         * round. */
        if (!(braces && min == max) && take(p, "?"))
            r->greed = RE_LAZY;
        else if (!braces && take(p, "+"))
            r->greed = RE_POSSESSIVE;
        *out = r;
        if (round == 4)
            return FAIL(p, "more than four repetitions of one thing at byte %zu", p->at);
    }
}

static vt_status parse_sequence(parser *p, regex_node **out)
{
    regex_node *whole = node_new(p, RE_CAT, NULL), **tail;
    if (!whole)
        return no_memory(p);
    tail = &whole->child;
    while (more(p) && !looking_at(p, "|") && !looking_at(p, ")")) {
        TRY(parse_repeat(p, tail));
        if ((*tail)->next) { /* it is linked into a list already: wrap it */
            regex_node *wrap = node_new(p, RE_CAT, *tail);
            if (!wrap)
                return no_memory(p);
            *tail = wrap;
        }
        tail = &(*tail)->next;
    }
    *out = whole;
    return VT_OK;
}

static vt_status parse_alternation(parser *p, regex_node **out)
{
    if (++p->depth > REGEX_MAX_DEPTH)
        return FAIL(p, "nested deeper than %d", REGEX_MAX_DEPTH);
    regex_node *first;
    TRY(parse_sequence(p, &first));
    *out = first;
    if (looking_at(p, "|")) {
        regex_node *alt = node_new(p, RE_ALT, first);
        if (!alt)
            return no_memory(p);
        for (regex_node **tail = &first->next; take(p, "|"); tail = &(*tail)->next)
            TRY(parse_sequence(p, tail));
        *out = alt;
    }
    p->depth--;
    return VT_OK;
}

vt_status regex_parse(vt_arena *arena, const char *pattern, size_t len, regex_node **out,
                      vt_err *err)
{
    parser p = {.arena = arena, .pattern = pattern, .len = len, .err = err};
    if (vt_utf8_valid(pattern, len) != len)
        return FAIL(&p, "the pattern is not UTF-8");
    TRY(parse_alternation(&p, out));
    if (more(&p))
        return FAIL(&p, ") without ( at byte %zu", p.at);
    return VT_OK;
}
