/* Regular expressions, part 3: the matcher.
 *
 * A backtracking loop over the program with an explicit stack of choices, so the depth of a text
 * is never the depth of the C stack; only lookaround and atomic groups recurse, as deep as the
 * pattern nests. A frame is one choice: what is left of an alternation (a mask), how far a
 * repetition may still give back, or a slot's old value.
 *
 * Steps are counted against the caller's budget: exponential patterns end in an error, not in a
 * hang. An instruction takes a step, eight bytes walked over by a repetition or a lookbehind take
 * one, and so does each part of a character class that has to be searched.
 *
 * A Pike machine (linear in the text) was not taken: possessive groups, lookahead and the order of
 * alternatives need extra machinery there, and on these patterns, made possessive by the compiler,
 * backtracking hardly happens.
 *
 * Why an engine of our own: it alone cuts every text as Hugging Face's tokenizers do, at the speed
 * of a compiled matcher and three to four times that of Oniguruma, from which Hugging Face's is
 * built. bench/micro/regex.c measured it against Debian 12's libraries, Oniguruma 6.9.8 and PCRE2
 * 10.42 with JIT, on an AMD EPYC (2 cores, shared), November 2026. "Equal" counts the texts of
 * tests/golden/tokenizers/texts.bin that are cut as ours are; those give Hugging Face's ids with
 * ours (test_tokenizer_golden). Speed is MB/s on one core, of English, C, and a mixture of scripts:
 *
 *   pattern          equal of 367        English               C                     mixture
 *                    Onig.    PCRE2    ours  Onig. PCRE2   ours  Onig. PCRE2   ours  Onig. PCRE2
 *   gpt2               346      346      81    20    84      53    12    56     100    26   106
 *   llama3             342      342      83    19    82      50    13    53     108    26    97
 *   qwen2              342      342      81    19    76      57    14    44      80    18    76
 *   o200k              342      342      48    18    70      34    12    44      70    18    75
 *   kimi               342       52      58    17    29      43    14    35      45    17    51
 *   deepseek-v3        343      343      81    25    82      53    19    64     104    30   118
 *   bloom              367  refused     125    30     -     121    36     -     135    48     -
 *   exaone-moe         342      342      56    47   144      39    15    52      76    26   105
 *   superbpe           366      366      86    41   169      52    52   217     102    62   225
 *   tiny_aya digits    362      338     883    81   461     457    64   301     132    66   252
 *
 * The texts that Oniguruma cuts otherwise hold characters that are newer than its Unicode 14 (with
 * those replaced, all 367 are equal); PCRE2 10.42 also lacks [..&&..] and nested classes. Neither
 * library can take our tables.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "text/regex/internal.h"

typedef enum frame_kind {
    FRAME_ALT,
    FRAME_GOTO,
    FRAME_GIVE_BACK,
    FRAME_TAKE_MORE,
    FRAME_SLOT
} frame_kind;

typedef struct regex_frame {
    frame_kind kind;
    int32_t pc;
    size_t pos;
    uint64_t
        extra; /* mask; lowest position to give back to; how many more to take; old slot value */
} regex_frame;

/* Bytes that a repetition walks over for one step, which takes about as long as an instruction
 * takes. */
enum { CHARS_PER_STEP = 8, LONG_WALK = 64 };

typedef struct matcher {
    const vt_regex *re;
    vt_regex_scratch *s;
    const char *text;
    size_t n;
    size_t slot[REGEX_MAX_SLOT];
    bool gave_up;
} matcher;

void vt_regex_scratch_begin(vt_regex_scratch *s, size_t n)
{
    s->steps = 10000000 + 100 * (uint64_t)n;
}

void vt_regex_scratch_release(vt_regex_scratch *s)
{
    free(s->frame);
    *s = (vt_regex_scratch){0};
}

static bool push(matcher *m, frame_kind kind, int32_t pc, size_t pos, uint64_t extra)
{
    vt_regex_scratch *s = m->s;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        regex_frame *grown = cap > REGEX_MAX_FRAMES ? NULL : realloc(s->frame, cap * sizeof *grown);
        if (!grown) {
            m->gave_up = true;
            return false;
        }
        s->frame = grown;
        s->cap = cap;
    }
    s->frame[s->n++] = (regex_frame){kind, pc, pos, extra};
    return true;
}

/* Takes steps for work that is no instruction. */
static void charge(matcher *m, uint64_t steps)
{
    m->s->steps = m->s->steps > steps ? m->s->steps - steps : 1;
}

/* Length of the character at pos if it is in the set, else 0. */
static inline size_t set_step(matcher *m, const regex_set *set, size_t pos)
{
    if (pos >= m->n)
        return 0;
    unsigned char b = (unsigned char)m->text[pos];
    if (b < 0x80)
        return regex_set_ascii(set, b);
    uint32_t c;
    size_t length = (size_t)vt_utf8_next(m->text + pos, &c);
    if (!set->pure && set->cost > 1)
        charge(m, (uint64_t)set->cost);
    return regex_set_has(set, c) ? length : 0;
}

static size_t step_back(const matcher *m, size_t pos)
{
    do
        pos--;
    while (pos > 0 && ((unsigned char)m->text[pos] & 0xC0) == 0x80);
    return pos;
}

static bool is_word(const matcher *m, size_t pos)
{
    uint32_t c;
    if (pos >= m->n)
        return false;
    vt_utf8_next(m->text + pos, &c);
    return vt_uprop_of(c).flags & VT_U_REGEX_WORD;
}

static bool assertion_holds(const matcher *m, regex_kind kind, size_t pos)
{
    switch (kind) {
    case RE_TEXT_START:
        return pos == 0;
    case RE_TEXT_END:
        return pos == m->n;
    case RE_TEXT_END_NL:
        return pos == m->n || (pos + 1 == m->n && m->text[pos] == '\n');
    case RE_LINE_START:
        return pos == 0 || (m->text[pos - 1] == '\n' && pos < m->n);
    case RE_LINE_END:
        return pos == m->n || m->text[pos] == '\n';
    default: {
        bool before = pos > 0 && is_word(m, step_back(m, pos)), after = is_word(m, pos);
        return (before != after) == (kind == RE_WORD_EDGE);
    }
    }
}

static bool run(matcher *m, int32_t pc, size_t pos, size_t *end);

static bool looks(matcher *m, const regex_inst *i, size_t pos)
{
    size_t end, start = pos;
    if (i->op == OP_AHEAD || i->op == OP_NOT_AHEAD) {
        bool found = i->set ? set_step(m, i->set, pos) > 0 : run(m, i->a, pos, &end);
        return found == (i->op == OP_AHEAD);
    }
    charge(m, (uint64_t)i->min / CHARS_PER_STEP);
    for (int32_t k = 0; k < i->min; k++) {
        if (start == 0)
            return i->op == OP_NOT_BEHIND;
        start = step_back(m, start);
    }
    return (run(m, i->a, start, &end) && end == pos) == (i->op == OP_BEHIND);
}

/* Gives characters back until one of `then` is next (NULL: any one); false if there is none. */
static bool give_back(matcher *m, regex_frame *f, const regex_set *then)
{
    size_t from = f->pos;
    bool found;
    do {
        f->pos = step_back(m, f->pos);
        found = !then || set_step(m, then, f->pos) > 0;
    } while (!found && f->pos > f->extra);
    charge(m, (from - f->pos) / CHARS_PER_STEP);
    vt_regex_scratch *w = m->s;
    if (!found && w->walk.re == m->re && w->walk.pc == f->pc && w->walk.end == from &&
        w->walk.least == f->extra)
        w->walk.no_then = true;
    return found;
}

/* Takes the newest choice; false if there is none above `base`. */
static bool backtrack(matcher *m, size_t base, int32_t *pc, size_t *pos)
{
    vt_regex_scratch *s = m->s;
    while (s->n > base) {
        regex_frame *f = &s->frame[s->n - 1];
        switch (f->kind) {
        case FRAME_SLOT:
            m->slot[f->pc] = f->pos;
            s->n--;
            continue;
        case FRAME_ALT: {
            int k = __builtin_ctzll(f->extra);
            *pc = m->re->inst[f->pc].alt->target[k];
            *pos = f->pos;
            f->extra &= f->extra - 1;
            if (f->extra == 0)
                s->n--;
            return true;
        }
        case FRAME_GIVE_BACK:
            *pc = f->pc + 1;
            if (!give_back(m, f, m->re->inst[f->pc].then)) {
                s->n--;
                continue;
            }
            *pos = f->pos;
            if (f->pos <= f->extra)
                s->n--;
            return true;
        case FRAME_TAKE_MORE: {
            size_t step = set_step(m, m->re->inst[f->pc].set, f->pos);
            *pc = f->pc + 1;
            *pos = f->pos += step;
            if (step == 0 || --f->extra == 0)
                s->n--;
            if (step == 0)
                continue;
            return true;
        }
        default:
            *pc = f->pc;
            *pos = f->pos;
            s->n--;
            return true;
        }
    }
    return false;
}

/* Walks over characters of the set from *at: at most `most`, and notes in *least where i->min of
 * them have passed. Returns their number.
 *
 * A long walk is remembered. In a megabyte of spaces, a pattern such as \s*[\r\n]+|\s{512}(?!\S)
 * walks to the end for every match of 512; the next walk of that repetition, from inside the last
 * one, ends where that did. */
static int32_t walk(matcher *m, const regex_inst *i, int32_t pc, int32_t most, size_t *at,
                    size_t *least)
{
    const regex_set *set = i->set;
    vt_regex_scratch *s = m->s;
    size_t start = *at;
    int32_t count = 0;
    bool known = most == INT32_MAX && i->min <= 1 && s->walk.re == m->re && s->walk.pc == pc &&
                 start >= s->walk.start && start < s->walk.end;
    if (known) {
        *least = start + (i->min ? set_step(m, set, start) : 0);
        *at = s->walk.end;
        return 1;
    }
    while (count < most) {
        unsigned char b;
        if (*at < m->n && (b = (unsigned char)m->text[*at]) < 0x80) {
            if (!regex_set_ascii(set, b))
                break;
            ++*at;
        } else {
            size_t step = set_step(m, set, *at);
            if (step == 0)
                break;
            *at += step;
        }
        if (++count == i->min)
            *least = *at;
    }
    charge(m, (*at - start) / CHARS_PER_STEP);
    if (most == INT32_MAX && i->min <= 1 && *at - start >= LONG_WALK) {
        s->walk.re = m->re;
        s->walk.pc = pc;
        s->walk.start = start;
        s->walk.least = *least;
        s->walk.end = *at;
        s->walk.no_then = false;
    }
    return count;
}

/* OP_REPEAT, OP_TAKE, OP_LAZY at *pos; false on failure. */
static bool repeat(matcher *m, const regex_inst *i, int32_t pc, size_t *pos)
{
    size_t at = *pos, least = at;
    if (walk(m, i, pc, i->op == OP_LAZY ? i->min : i->max, &at, &least) < i->min)
        return false;
    *pos = at;
    if (i->op == OP_REPEAT && at > least) {
        const vt_regex_scratch *s = m->s; /* nothing that could follow begins inside the walk? */
        bool useless = s->walk.no_then && s->walk.re == m->re && s->walk.pc == pc &&
                       least >= s->walk.least && at == s->walk.end;
        return useless || push(m, FRAME_GIVE_BACK, pc, at, least);
    }
    if (i->op == OP_LAZY && i->max > i->min)
        return push(m, FRAME_TAKE_MORE, pc, at, (uint64_t)(i->max - i->min));
    return true;
}

/* Tries one alternative of an OP_ALT and keeps the others for later; its target or -1. */
static int32_t alternative(matcher *m, const regex_alt *alt, int32_t pc, size_t pos)
{
    uint64_t mask = alt->can[pos < m->n ? (unsigned char)m->text[pos] : 256];
    if (mask == 0)
        return -1;
    int k = __builtin_ctzll(mask);
    mask &= mask - 1;
    if (mask && !push(m, FRAME_ALT, pc, pos, mask))
        return -1;
    return alt->target[k];
}

static bool run(matcher *m, int32_t pc, size_t pos, size_t *end)
{
    const size_t base = m->s->n;
    for (;;) {
        const regex_inst *i = &m->re->inst[pc];
        bool ok = true;
        size_t step;
        if (m->s->steps-- <= 1) {
            m->s->steps = 1;
            m->gave_up = true;
        }
        switch (i->op) {
        case OP_SET:
            step = set_step(m, i->set, pos);
            pos += step;
            pc++;
            ok = step > 0;
            break;
        case OP_REPEAT:
        case OP_TAKE:
        case OP_LAZY:
            ok = repeat(m, i, pc, &pos);
            pc++;
            break;
        case OP_ALT:
            pc = alternative(m, i->alt, pc, pos);
            ok = pc >= 0;
            break;
        case OP_SPLIT:
            ok = push(m, FRAME_GOTO, i->b, pos, 0);
            pc = i->a;
            break;
        case OP_JUMP:
            pc = i->a;
            break;
        case OP_MARK:
            ok = push(m, FRAME_SLOT, i->a, m->slot[i->a], 0);
            m->slot[i->a] = pos;
            pc++;
            break;
        case OP_MOVED:
            ok = m->slot[i->a] != pos;
            pc++;
            break;
        case OP_AHEAD:
        case OP_NOT_AHEAD:
        case OP_BEHIND:
        case OP_NOT_BEHIND:
            ok = looks(m, i, pos);
            pc = i->b;
            break;
        case OP_ATOMIC:
            ok = run(m, i->a, pos, &pos);
            pc = i->b;
            break;
        case OP_ASSERT:
            ok = assertion_holds(m, (regex_kind)i->a, pos);
            pc++;
            break;
        case OP_MATCH:
            *end = pos;
            m->s->n = base;
            return true;
        }
        if (m->gave_up || (!ok && !backtrack(m, base, &pc, &pos))) {
            m->s->n = base;
            return false;
        }
    }
}

int vt_regex_find(const vt_regex *re, vt_regex_scratch *s, const char *text, size_t n, size_t from,
                  size_t *start, size_t *end)
{
    matcher m; /* its slots are set before they are read: not worth clearing for every word */
    m.re = re;
    m.s = s;
    m.text = text;
    m.n = n;
    m.gave_up = false;
    s->n = 0;
    if (from == 0)
        s->walk.re = NULL;
    for (size_t at = from; at <= n;) {
        if (re->first[at < n ? (unsigned char)text[at] : 256] && run(&m, 0, at, end)) {
            *start = at;
            return 1;
        }
        if (m.gave_up)
            return -1;
        if (at == n)
            break;
        at++;
        while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80)
            at++;
    }
    return 0;
}
