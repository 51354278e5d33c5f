/* The masks of a constrained sequence (engine/constraint/constraint.h). */
#include "engine/constraint/constraint.h"

#include <string.h>

#include "base/clock.h"

static void note_cost(vt_constrained *c, int64_t n, int64_t took_ns)
{
    c->cost.n += n;
    c->cost.ns += took_ns;
    c->cost.worst_ns = took_ns > c->cost.worst_ns ? took_ns : c->cost.worst_ns;
    c->cost.n_new = c->rules.n_new ? c->rules.n_new(c->rules.state) : 0;
}

static bool make_mask(vt_constrained *c, int32_t i)
{
    uint32_t *words = c->mask + (size_t)i * (size_t)c->n_words, some = 0;
    memset(words, 0, (size_t)c->n_words * sizeof *words);
    vt_allowance allow = c->rules.mask(c->rules.state, words, c->n_words);
    c->any[i] = allow == VT_ALLOW_ANY && !c->allowed;
    for (int32_t w = 0; w < c->n_words; w++) {
        if (allow == VT_ALLOW_ANY)
            words[w] = UINT32_MAX;
        if (c->allowed)
            words[w] &= c->allowed[w];
        some |= words[w];
    }
    return allow != VT_ALLOW_NOTHING && some != 0;
}

static bool is_late(const vt_constrained *c)
{
    return c->rules.is_late && c->rules.is_late(c->rules.state);
}

bool vt_constrained_next(vt_constrained *c, int32_t i)
{
    int64_t begin = vt_now_ns();
    bool some = make_mask(c, i);
    note_cost(c, some || !is_late(c), vt_now_ns() - begin);
    return some;
}

static bool is_too_large(const vt_constrained *c)
{
    return c->rules.is_too_large && c->rules.is_too_large(c->rules.state);
}

static void hurry(vt_constrained *c, bool on)
{
    if (c->rules.hurry)
        c->rules.hurry(c->rules.state, on);
}

/* Takes a token. Sets c->end if it cannot be taken. */
static bool take(vt_constrained *c, int32_t token)
{
    bool ok = c->rules.take(c->rules.state, token);
    c->end = ok ? VT_END_NONE : is_too_large(c) ? VT_END_GRAMMAR_TOO_LARGE : VT_END_INTERNAL;
    return ok;
}

static bool made(vt_constrained *c, bool some)
{
    c->end = some              ? VT_END_NONE
             : is_too_large(c) ? VT_END_GRAMMAR_TOO_LARGE
                               : VT_END_NOTHING_ALLOWED;
    return some;
}

bool vt_constrained_begin(vt_constrained *c)
{
    bool some = made(c, vt_constrained_next(c, 0));
    hurry(c, true);
    return some;
}

vt_follow vt_constrained_follow(vt_constrained *c, int32_t token, bool masked)
{
    c->late_token = token;
    if (!take(c, token))
        return is_late(c) ? VT_FOLLOW_LATE : VT_FOLLOW_ENDS;
    if (!masked || made(c, vt_constrained_next(c, 0)))
        return VT_FOLLOWS;
    c->late_token = -1;
    return is_late(c) ? VT_FOLLOW_LATE : VT_FOLLOW_ENDS;
}

void vt_constrained_unwanted(vt_constrained *c)
{
    __atomic_store_n(&c->unwanted, true, __ATOMIC_RELAXED);
}

void vt_constrained_finish(vt_constrained *c)
{
    if (__atomic_load_n(&c->unwanted, __ATOMIC_RELAXED))
        return;
    hurry(c, false);
    if (c->late_token < 0 || take(c, c->late_token))
        made(c, make_mask(c, 0));
    hurry(c, true);
}

vt_follow vt_constrained_finished(vt_constrained *c)
{
    note_cost(c, 1, 0);
    return c->end == VT_END_NONE ? VT_FOLLOWS : VT_FOLLOW_ENDS;
}

const uint32_t *vt_constrained_mask(const vt_constrained *c, int32_t i)
{
    return c->any[i] ? NULL : c->mask + (size_t)i * (size_t)c->n_words;
}

static bool allows(const vt_constrained *c, int32_t i, int32_t id)
{
    const uint32_t *words = vt_constrained_mask(c, i);
    return id >= 0 && id < 32 * c->n_words && (!words || words[id / 32] >> id % 32 & 1);
}

/* Returns the one token that row i may choose; -1: there are several. */
static int32_t only_token(const vt_constrained *c, int32_t i)
{
    const uint32_t *words = vt_constrained_mask(c, i);
    int32_t id = -1;
    for (int32_t w = 0; words && w < c->n_words; w++) {
        if (words[w] == 0)
            continue;
        if (id >= 0 || (words[w] & (words[w] - 1)) != 0)
            return -1;
        id = 32 * w + __builtin_ctz(words[w]);
    }
    return id;
}

bool vt_constrained_certain(const vt_constrained *c) { return only_token(c, 0) >= 0; }

int32_t vt_constrained_forced(vt_constrained *c, int32_t *out, int32_t max)
{
    int32_t taken = 0, n = 0;
    while (n < max) {
        out[n] = only_token(c, n);
        if (out[n] < 0 || !c->rules.take(c->rules.state, out[n]))
            break;
        taken++;
        if (!vt_constrained_next(c, n + 1))
            break;
        n++;
    }
    if (taken > 0)
        c->rules.undo(c->rules.state, taken);
    return n;
}

int32_t vt_constrained_drafts(vt_constrained *c, const int32_t *guess, int32_t n)
{
    int32_t taken = 0, good = 0;
    while (good < n && allows(c, good, guess[good]) && c->rules.take(c->rules.state, guess[good])) {
        taken++;
        if (!vt_constrained_next(c, good + 1))
            break;
        good++;
    }
    if (taken > 0)
        c->rules.undo(c->rules.state, taken);
    return good;
}
