/* Counts that no token gets to the end of.
 *
 * In "[a-z ]{600}" every place is a lexer state of its own, and a walk of the vocabulary from each
 * takes a millisecond. But a token of n bytes goes round at most n times: as long as more than that
 * is left, it does not matter how much. So a state borrows the split of one without such counts:
 *
 *   [a-z ]{600}x     more than n have to come    [a-z ]* and an end that never comes
 *   [a-z ]{0,600}x   n and more may come         [a-z ]*x
 *
 * This holds if no walk from the other state gets deeper than n bytes: then both lead on by the
 * same bytes, and to an end behind the same bytes.
 *
 * Only states of few parts are looked at: in ambiguous ones, as "(a{30,40}){20}", each byte brings
 * hundreds of counts, and leaving them out takes longer than a walk.
 *
 * In an intersection how much has to come may decide whether there is an end at all, and is kept.
 * How much may come is left out there if all tokens, and the way from each to an end, need less. */
#include <string.h>

#include "grammar/machine.h"

enum { MAX_PARTS = 100, MAX_SLOTS = 4, MAX_KIDS = 64, MAX_FAR = RX_MAX_REPEAT * 16 };

/* An expression without counts, and how many bytes its end has come nearer behind any token. */
typedef struct loose {
    rx is;
    int32_t nearer;
} loose;

typedef struct loosening {
    rx_store *s;
    int32_t n;    /* bytes of a token, at most */
    int32_t most; /* the least of what may come where it was left out of an intersection */
} loosening;

/* Returns true if a count in an expression is beyond n bytes. *left: parts that may still be looked
 * at; below 0: there are more. */
static bool is_counted(const rx_store *s, rx a, int32_t n, int32_t *left)
{
    const rx_node *x = rx_at(s, a);
    const rx *kid = x->data;
    bool is = false;
    if (--*left < 0)
        return false;
    switch (x->kind) {
    case RX_KIND_REPEAT:
        return x->min > n || x->max >= n;
    case RX_KIND_CLOSE:
        return is_counted(s, x->a, n, left);
    case RX_KIND_CAT:
        is = is_counted(s, x->a, n, left);
        return is_counted(s, x->b, n, left) || is;
    case RX_KIND_ALT:
    case RX_KIND_AND:
        for (int32_t i = 0; i < x->n && *left >= 0; i++)
            is |= is_counted(s, kid[i], n, left);
        return is;
    default:
        return false;
    }
}

static loose loosen(loosening *l, rx a, bool first);

/* Bytes of `count` times x and then `behind`, but for the one byte of an end that never comes. */
static int32_t nearer(rx_store *s, rx x, int32_t count, rx behind)
{
    int64_t bytes = (int64_t)rx_least(s, x) * count + rx_least(s, behind) - 1;
    return bytes < 0 ? 0 : bytes < MAX_FAR ? (int32_t)bytes : MAX_FAR;
}

/* `first`: every token goes round once at least. */
static loose loosen_repeat(const loosening *l, rx a, rx behind, bool first)
{
    const rx_node x = *rx_at(l->s, a); /* a copy: new nodes move the others */
    if (x.min > l->n)
        return (loose){rx_cat(l->s, rx_repeat(l->s, x.a, 0, RX_NO_MOST), rx_never(l->s)),
                       nearer(l->s, x.a, x.min - first, behind)};
    bool free_most = x.max >= l->n;
    rx is = free_most ? rx_repeat(l->s, x.a, x.min, RX_NO_MOST) : a;
    return (loose){is, 0};
}

static loose loosen_cat(loosening *l, rx a, bool first)
{
    const rx_node x = *rx_at(l->s, a);
    const rx_node head = *rx_at(l->s, x.a);
    if (head.kind == RX_KIND_REPEAT && head.min > l->n) /* no token gets to x.b */
        return loosen_repeat(l, x.a, x.b, first);
    loose one = loosen(l, x.a, first), two = loosen(l, x.b, false);
    int32_t sum = one.nearer + two.nearer;
    return (loose){one.is == x.a && two.is == x.b ? a : rx_cat(l->s, one.is, two.is),
                   sum < MAX_FAR ? sum : MAX_FAR};
}

static loose loosen_alt(loosening *l, rx a, bool first)
{
    const rx_node x = *rx_at(l->s, a);
    const rx *from = x.data;
    rx kid[MAX_KIDS];
    loose made = {a, 0};
    bool changed = false;
    if (x.n > MAX_KIDS)
        return made;
    for (int32_t i = 0; i < x.n; i++) {
        loose one = loosen(l, from[i], first);
        made.nearer = one.nearer > made.nearer ? one.nearer : made.nearer;
        changed |= one.is != from[i];
        kid[i] = one.is;
    }
    if (changed)
        made.is = rx_alt(l->s, kid, x.n);
    return made;
}

static loose loosen(loosening *l, rx a, bool first)
{
    const rx_node x = *rx_at(l->s, a);
    loose in;
    switch (x.kind) {
    case RX_KIND_REPEAT:
        return loosen_repeat(l, a, RX_EMPTY, first);
    case RX_KIND_CAT:
        return loosen_cat(l, a, first);
    case RX_KIND_ALT:
        return loosen_alt(l, a, first);
    case RX_KIND_CLOSE:
        in = loosen(l, x.a, first);
        return (loose){in.is == x.a ? a : rx_close(l->s, in.is), in.nearer};
    default:
        return (loose){a, 0};
    }
}

/* An intersection without how much of its parts may come, where nothing of them has to. */
static rx loosen_and(loosening *l, rx a)
{
    const rx_node x = *rx_at(l->s, a);
    const rx *from = x.data;
    rx kid[MAX_SLOTS];
    if (x.kind != RX_KIND_AND || x.n > MAX_SLOTS)
        return a;
    for (int32_t i = 0; i < x.n; i++) {
        const rx_node count = *rx_at(l->s, from[i]);
        kid[i] = from[i];
        if (count.kind != RX_KIND_REPEAT || count.min > 0 || count.max == RX_NO_MOST ||
            !rx_at(l->s, count.a)->character)
            continue;
        l->most = count.max < l->most ? count.max : l->most;
        kid[i] = rx_repeat(l->s, count.a, 0, RX_NO_MOST);
    }
    return rx_and(l->s, kid, x.n);
}

static loose loosen_any(loosening *l, rx a)
{
    const rx_node x = *rx_at(l->s, a);
    if (x.plain)
        return loosen(l, a, true);
    return (loose){x.kind == RX_KIND_CLOSE ? rx_close(l->s, loosen_and(l, x.a)) : loosen_and(l, a),
                   0};
}

/* The same state without the counts that are beyond l->n; 0: there are none, or it has so many
 * parts that a walk may be less work. */
static int32_t loosen_state(loosening *l, machine *m, int32_t lexer, int32_t *nearer)
{
    const lexer_state *s = m->lexer[lexer];
    lexer_slot slot[MAX_SLOTS];
    bool changed = false, counted = false;
    int32_t left = MAX_PARTS;
    *nearer = 0;
    if (s->n > MAX_SLOTS)
        return 0;
    for (int32_t i = 0; i < s->n; i++)
        counted |= is_counted(l->s, s->slot[i].rest, l->n, &left);
    if (!counted || left < 0)
        return 0;
    for (int32_t i = 0; i < s->n; i++) {
        loose one = loosen_any(l, s->slot[i].rest);
        slot[i] = (lexer_slot){s->slot[i].lexeme, one.is};
        *nearer = one.nearer > *nearer ? one.nearer : *nearer;
        changed |= one.is != s->slot[i].rest;
    }
    return machine_is_well(m) && changed ? machine_lexer(m, slot, s->n) : 0;
}

/* Bytes of the longest token that a split is about. */
static int32_t deepest(split *s, const vt_grammar_vocab *v)
{
    int32_t most = __atomic_load_n(&s->longest, __ATOMIC_RELAXED);
    if (most >= 0)
        return most;
    most = s->deepest;
    for (int32_t w = 0; s->bits && w < v->n_words; w++)
        for (uint32_t left = s->bits[w]; left; left &= left - 1) {
            int32_t n = grammar_piece_len(v, 32 * w + __builtin_ctz(left));
            most = n > most ? n : most;
        }
    __atomic_store_n(&s->longest, most, __ATOMIC_RELAXED); /* whoever else counts gets the same */
    return most;
}

split_use *split_uncounted(machine *m, int32_t lexer)
{
    const int32_t longest = m->vocab->longest, tries[] = {16, 32, longest};
    for (int i = 0; i < 3 && !m->failed; i++) {
        loosening l = {&m->g.rx, tries[i] < longest ? tries[i] : longest, INT32_MAX};
        int32_t nearer, other = loosen_state(&l, m, lexer, &nearer);
        if (m->failed || (other && !machine_split(m, other)))
            return NULL;
        split_use *use = other ? m->lexer[other]->split : NULL;
        if (!use) /* no count is that high, so none is higher */
            return NULL;
        split *s = use->s;
        int32_t more = nearer + m->lexer[other]->farther, far = s->far + m->lexer[other]->farther;
        bool beyond = longest <= l.n && longest + far <= l.most;
        if (!beyond && (deepest(s, m->vocab) > l.n || deepest(s, m->vocab) + far > l.most))
            continue;
        m->lexer[lexer]->farther = more < MAX_FAR ? more : MAX_FAR;
        return use;
    }
    return NULL;
}
