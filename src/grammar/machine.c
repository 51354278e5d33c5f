#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

static int32_t fail(machine *m, const char *why)
{
    if (!m->failed)
        m->failed = why;
    return 0;
}

_Static_assert(MACHINE_CALL_STEPS == 1000000, "the text says so");
static const char too_long[] = "a token takes more than 1,000,000 steps: the grammar can be "
                               "followed in too many ways at once";
static const char too_large[] = "the grammar's states take more than 64 MiB";

static bool room(machine *m, void *array, int32_t n, int32_t *cap, size_t size)
{
    void **at = array;
    if (n < *cap)
        return true;
    int32_t more = *cap ? 2 * *cap : 64;
    void *p = realloc(*at, (size_t)more * size);
    if (!p)
        return fail(m, rx_no_memory);
    *at = p;
    *cap = more;
    return true;
}

static void *take(machine *m, size_t n, size_t size)
{
    void *p = vt_arena_alloc(&m->arena, n ? n : 1, size);
    if (!p)
        fail(m, too_large);
    return p;
}

bool machine_init(machine *m, vt_grammar_vocab *v)
{
    m->vocab = v;
    m->hurried_steps = MACHINE_HURRIED_STEPS;
    m->n_lexer = m->n_stack = m->n_frontier = m->n_config = 1; /* 0 is none */
    m->lexer = vt_calloc(1, sizeof *m->lexer);
    m->stack = vt_calloc(1, sizeof *m->stack);
    m->frontier = vt_calloc(1, sizeof *m->frontier);
    m->config = vt_calloc(1, sizeof *m->config);
    m->cap_lexer = m->cap_stack = m->cap_frontier = m->cap_config = 1;
    return m->lexer && m->stack && m->frontier && m->config;
}

void machine_release(machine *m)
{
    while (m->splits) {
        split_use *u = m->splits;
        m->splits = u->next;
        split_unref(u->s);
        free(u);
    }
    free(m->lexer);
    free(m->stack);
    free(m->frontier);
    free(m->config);
    free(m->items);
    idmap_release(&m->lexers);
    idmap_release(&m->stacks);
    idmap_release(&m->frontiers);
    idmap_release(&m->configs);
    idmap_release(&m->steps);
    idmap_release(&m->seen);
    idmap_release(&m->kept);
    rules_release(&m->g);
    vt_arena_release(&m->arena);
}

size_t machine_bytes(const machine *m)
{
    const rx_store *x = &m->g.rx;
    return m->arena.used + m->split_bytes + (size_t)x->cap * sizeof *x->node +
           (size_t)x->memo_slots * 12 + (size_t)x->n_slots * 4 + idmap_bytes(&m->steps) +
           idmap_bytes(&m->configs) + idmap_bytes(&m->lexers) + idmap_bytes(&m->frontiers) +
           idmap_bytes(&m->stacks) + idmap_bytes(&m->kept) +
           (size_t)m->cap_stack * sizeof *m->stack + (size_t)m->g.cap_symbols * 8 +
           (size_t)m->cap_config * sizeof *m->config;
}

bool machine_spend(machine *m, int64_t steps)
{
    return rx_spend(&m->g.rx, steps) || fail(m, too_long);
}

bool machine_note_failure(machine *m)
{
    if (m->g.rx.failed)
        fail(m, m->g.rx.fuel < 0 ? too_long : m->g.rx.failed);
    return !m->failed;
}

bool machine_is_late(machine *m)
{
    if (!m->hurried || m->failed != too_long)
        return false;
    m->failed = m->g.rx.failed = NULL;
    return true;
}

bool machine_lock(machine *m, pthread_mutex_t *lock)
{
    if (!m->hurried)
        return pthread_mutex_lock(lock) == 0;
    if (pthread_mutex_trylock(lock) == 0)
        return true;
    return fail(m, too_long);
}

/* ---- lexer states ---- */

int32_t machine_lexer(machine *m, const lexer_slot *slot, int32_t n)
{
    uint64_t hash = vt_fnv1a(VT_FNV_OFFSET, slot, (size_t)n * sizeof *slot);
    int64_t at = -1;
    int32_t id;
    hash = vt_mix64(hash ^ vt_hash_seed());
    while ((id = idmap_next(&m->lexers, hash, &at)) != 0)
        if (m->lexer[id]->n == n &&
            (n == 0 || !memcmp(m->lexer[id]->slot, slot, (size_t)n * sizeof *slot)))
            return id;
    if (m->failed || !room(m, &m->lexer, m->n_lexer, &m->cap_lexer, sizeof *m->lexer))
        return 0;
    if (--m->call_states < 0)
        return fail(m, "a pattern of the grammar has too many states");
    lexer_state *s = take(m, 1, sizeof *s);
    lexer_slot *copy = s ? take(m, (size_t)n, sizeof *copy) : NULL;
    int32_t *accept = copy ? take(m, (size_t)n, sizeof *accept) : NULL;
    if (!accept)
        return 0;
    *s = (lexer_state){
        .slot = copy, .n = n, .accept = accept, .leaf = true, .far = INT32_MAX, .n_apart = -1};
    for (int32_t i = 0; i < n; i++) {
        int32_t least = rx_least(&m->g.rx, slot[i].rest);
        copy[i] = slot[i];
        if (rx_at(&m->g.rx, slot[i].rest)->nullable)
            s->accept[s->n_accept++] = slot[i].lexeme;
        s->leaf &= slot[i].rest == RX_EMPTY;
        s->far = least < s->far ? least : s->far;
    }
    if (!machine_is_well(m))
        return 0;
    if (!idmap_put(&m->lexers, hash, m->n_lexer))
        return fail(m, rx_no_memory);
    m->lexer[m->n_lexer] = s;
    return m->n_lexer++;
}

/* The state behind one byte, of a class of bytes. */
static int32_t derive_state(machine *m, const lexer_state *s, int byte, lexer_slot *slot)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        rx d = rx_derive(&m->g.rx, s->slot[i].rest, byte);
        if (d == RX_NOTHING ||
            (!rx_at(&m->g.rx, d)->plain && rx_least(&m->g.rx, d) == RX_LEAST_NONE))
            continue;
        slot[n++] = (lexer_slot){s->slot[i].lexeme, d};
    }
    return machine_is_well(m) && n > 0 ? machine_lexer(m, slot, n) : 0;
}

/* The ways on by classes of bytes. */
static bool make_row(machine *m, lexer_state *s, lexer_slot *slot)
{
    rx_classes c;
    int32_t to[256];
    int32_t *row = take(m, 256, sizeof *row);
    if (!row)
        return false;
    rx_classes_begin(&c);
    for (int32_t i = 0; i < s->n; i++)
        rx_classes_add(&m->g.rx, s->slot[i].rest, &c);
    memset(to, -1, sizeof to);
    for (int b = 0; b < 256; b++) {
        if (to[c.of[b]] < 0)
            to[c.of[b]] = derive_state(m, s, b, slot);
        row[b] = to[c.of[b]];
        s->live[b >> 6] |= (uint64_t)(row[b] != 0) << (b & 63);
    }
    s->next = row;
    return !m->failed;
}

/* The ways on of a state that tells the few bytes that it has some with: most states of names and
 * punctuation. False: it does not. */
static bool make_few(machine *m, lexer_state *s, lexer_slot *slot)
{
    uint64_t first[4] = {0};
    int count = 0, n = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (!rx_first(&m->g.rx, s->slot[i].rest, first))
            return false;
    for (int i = 0; i < 4; i++)
        count += __builtin_popcountll(first[i]);
    if (count > LEXER_FEW)
        return false;
    for (int i = 0; i < 4; i++)
        for (uint64_t left = first[i]; left; left &= left - 1) {
            int byte = 64 * i + __builtin_ctzll(left);
            int32_t to = derive_state(m, s, byte, slot);
            if (!to)
                continue;
            s->few[n] = (uint8_t)byte;
            s->few_to[n++] = to;
            s->live[i] |= left & -left;
        }
    return true;
}

const lexer_state *machine_lexer_made(machine *m, int32_t state)
{
    lexer_state *s = m->lexer[state];
    if (s->made)
        return s;
    lexer_slot few[16], *slot = s->n <= 16 ? few : vt_calloc((size_t)s->n, sizeof *slot);
    if (!slot) {
        fail(m, rx_no_memory);
        return NULL;
    }
    s->made = (make_few(m, s, slot) || make_row(m, s, slot)) && !m->failed;
    if (slot != few)
        free(slot);
    return s->made ? s : NULL;
}

/* ---- stacks and frontiers ---- */

static int32_t push_stack(machine *m, int32_t at, int32_t below)
{
    uint64_t hash = vt_mix64(((uint64_t)(uint32_t)at << 32 | (uint32_t)below) ^ vt_hash_seed());
    int64_t pos = -1;
    int32_t id;
    while ((id = idmap_next(&m->stacks, hash, &pos)) != 0)
        if (m->stack[id].at == at && m->stack[id].below == below)
            return id;
    if (!room(m, &m->stack, m->n_stack, &m->cap_stack, sizeof *m->stack) ||
        !idmap_put(&m->stacks, hash, m->n_stack))
        return fail(m, rx_no_memory);
    if ((size_t)m->n_stack * sizeof *m->stack > VT_GRAMMAR_MAX_BYTES / 4)
        return fail(m, too_large);
    int64_t least = (int64_t)m->g.rest[at] + (below ? m->stack[below].least : 0);
    m->stack[m->n_stack] = (stack_node){at, below,
                                        least < INT32_MAX / 4 ? (int32_t)least : INT32_MAX / 4};
    return m->n_stack++;
}

static bool is_new(machine *m, int32_t at, int32_t stack)
{
    uint64_t hash = vt_mix64(((uint64_t)(uint32_t)at << 32 | (uint32_t)stack) + 1);
    int64_t pos = -1;
    if (idmap_next(&m->seen, hash, &pos)) /* a bijection: equal hashes are equal places */
        return false;
    if (!idmap_put(&m->seen, hash, 1))
        return fail(m, rx_no_memory);
    return true;
}

static void close_over(machine *m, int32_t at, int32_t stack, int depth);

static void close_rule(machine *m, int32_t r, int32_t at, int32_t stack, int depth)
{
    /* a call at the end of an alternative needs no way back */
    int32_t below = m->g.symbol[at + 1] == SYMBOL_END ? stack : push_stack(m, at + 1, stack);
    for (int32_t a = m->g.rule[r].first; a >= 0 && !m->failed; a = m->g.alternative[a].next)
        close_over(m, m->g.alternative[a].at, below, depth + 1);
}

/* Adds to m->items the lexemes that may come at a place. */
static void close_over(machine *m, int32_t at, int32_t stack, int depth)
{
    if (m->failed || !machine_spend(m, 1) || !is_new(m, at, stack))
        return;
    if (depth > 20000 || m->n_items >= MACHINE_MAX_ITEMS) {
        fail(m, "the grammar allows too many things at one place");
        return;
    }
    symbol s = m->g.symbol[at];
    if (s == SYMBOL_END) {
        if (stack == 0)
            m->can_end = true;
        else
            close_over(m, m->stack[stack].at, m->stack[stack].below, depth + 1);
    } else if (s > 0) {
        close_rule(m, rule_of(s), at, stack, depth);
    } else {
        if (!room(m, &m->items, m->n_items, &m->cap_items, sizeof *m->items))
            return;
        m->items[m->n_items++] = (item){lexeme_of(s), at, stack};
        if (m->g.lexeme[lexeme_of(s)].nullable)
            close_over(m, at + 1, stack, depth + 1);
    }
}

static int by_place(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->lexeme != y->lexeme)
        return x->lexeme < y->lexeme ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->stack > y->stack) - (x->stack < y->stack);
}

static void clear_items(machine *m)
{
    m->n_items = 0;
    m->can_end = false;
    m->seen.n = 0;
    if (m->seen.slots > 4096)
        idmap_release(&m->seen);
    else if (m->seen.slots > 0)
        memset(m->seen.id, 0, (size_t)m->seen.slots * sizeof *m->seen.id);
}

static int32_t behind_item(const machine *m, const item *i)
{
    int64_t least = (int64_t)m->g.rest[i->at + 1] + (i->stack ? m->stack[i->stack].least : 0);
    return least < INT32_MAX / 4 ? (int32_t)least : INT32_MAX / 4;
}

/* Fills ways and the start state of a frontier whose items are there. */
static bool make_ways(machine *m, frontier *f)
{
    int32_t n = 0;
    lexer_slot *slot = vt_calloc((size_t)f->n + 1, sizeof *slot);
    f->way = take(m, (size_t)f->n, sizeof *f->way);
    if (!slot || !f->way) {
        free(slot);
        return fail(m, rx_no_memory);
    }
    for (int32_t i = 0; i < f->n; i++) {
        int32_t least = behind_item(m, &f->item[i]);
        if (n == 0 || f->way[n - 1].lexeme != f->item[i].lexeme) {
            slot[n] = (lexer_slot){f->item[i].lexeme, m->g.lexeme[f->item[i].lexeme].is};
            f->way[n++] = (way){f->item[i].lexeme, i, i, -1, least};
        }
        f->way[n - 1].to = i + 1;
        if (least < f->way[n - 1].least)
            f->way[n - 1].least = least;
    }
    f->n_ways = n;
    f->start = machine_lexer(m, slot, n);
    free(slot);
    return !m->failed;
}

/* The frontier of what close_over has gathered. */
static int32_t intern_frontier(machine *m)
{
    size_t bytes = (size_t)m->n_items * sizeof *m->items;
    if (!machine_spend(m, m->n_items))
        return 0;
    if (m->n_items > 1)
        qsort(m->items, (size_t)m->n_items, sizeof *m->items, by_place);
    uint64_t hash = vt_mix64(vt_fnv1a(VT_FNV_OFFSET + m->can_end, m->items, bytes) ^
                             vt_hash_seed());
    int64_t at = -1;
    int32_t id;
    while ((id = idmap_next(&m->frontiers, hash, &at)) != 0) {
        const frontier *f = m->frontier[id];
        if (f->n == m->n_items && f->can_end == m->can_end &&
            (bytes == 0 || !memcmp(f->item, m->items, bytes)))
            return id;
    }
    if (m->failed || !room(m, &m->frontier, m->n_frontier, &m->cap_frontier, sizeof *m->frontier))
        return 0;
    frontier *f = take(m, 1, sizeof *f);
    if (!f)
        return 0;
    f->n = m->n_items;
    f->can_end = m->can_end;
    f->item = take(m, (size_t)f->n, sizeof *f->item);
    if (!f->item)
        return 0;
    if (bytes > 0)
        memcpy(f->item, m->items, bytes);
    if (!make_ways(m, f))
        return 0;
    if (!idmap_put(&m->frontiers, hash, m->n_frontier))
        return fail(m, rx_no_memory);
    m->frontier[m->n_frontier] = f;
    return m->n_frontier++;
}

way *machine_way(const machine *m, int32_t frontier_id, int32_t lexeme)
{
    const frontier *f = m->frontier[frontier_id];
    int32_t lo = 0, hi = f->n_ways;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (f->way[mid].lexeme < lexeme)
            lo = mid + 1;
        else
            hi = mid;
    }
    return &f->way[lo]; /* it is there: the lexer state was made of it */
}

/* The frontier behind a lexeme of another. */
static int32_t next_frontier(machine *m, int32_t id, int32_t lexeme)
{
    way *w = machine_way(m, id, lexeme);
    if (w->next >= 0)
        return w->next;
    clear_items(m);
    for (int32_t i = w->from; i < w->to && !m->failed; i++)
        close_over(m, m->frontier[id]->item[i].at + 1, m->frontier[id]->item[i].stack, 0);
    int32_t made = m->failed ? 0 : intern_frontier(m);
    if (made)
        w->next = made;
    return made;
}

/* ---- configs ---- */

_Static_assert(MACHINE_MAX_PAIRS == 500, "a text below says so");

typedef struct pairs {
    pair at[MACHINE_MAX_PAIRS];
    int32_t n;
} pairs;

static void add_pair(machine *m, pairs *p, pair x)
{
    int32_t i = p->n;
    if (p->n == MACHINE_MAX_PAIRS) {
        fail(m, "the grammar can be followed in more than 500 ways at once");
        return;
    }
    if (!machine_spend(m, 1 + p->n / 16)) /* to find its place */
        return;
    /* sorted, so that equal configs are equal arrays */
    while (i > 0 && (p->at[i - 1].lexer > x.lexer ||
                     (p->at[i - 1].lexer == x.lexer && p->at[i - 1].frontier >= x.frontier)))
        i--;
    if (i < p->n && p->at[i].lexer == x.lexer && p->at[i].frontier == x.frontier) {
        p->at[i].end |= x.end;
        return;
    }
    memmove(p->at + i + 1, p->at + i, (size_t)(p->n - i) * sizeof *p->at);
    p->at[i] = x;
    p->n++;
}

static void add_fresh(machine *m, pairs *p, int32_t id)
{
    if (id)
        add_pair(m, p, (pair){m->frontier[id]->start, id, m->frontier[id]->can_end});
}

static int32_t intern_config(machine *m, const pairs *p)
{
    uint64_t hash = vt_hash_seed();
    int64_t at = -1;
    int32_t id;
    if (m->failed || p->n == 0)
        return 0;
    for (int32_t i = 0; i < p->n; i++)
        hash = vt_mix64(hash ^ ((uint64_t)(uint32_t)p->at[i].lexer << 33 |
                                (uint64_t)(uint32_t)p->at[i].frontier << 1 | p->at[i].end));
    while ((id = idmap_next(&m->configs, hash, &at)) != 0) {
        const config *c = m->config[id];
        bool equal = c->n == p->n;
        for (int32_t i = 0; equal && i < p->n; i++)
            equal = c->pair[i].lexer == p->at[i].lexer &&
                    c->pair[i].frontier == p->at[i].frontier && c->pair[i].end == p->at[i].end;
        if (equal)
            return id;
    }
    if (!room(m, &m->config, m->n_config, &m->cap_config, sizeof *m->config))
        return 0;
    config *c = take(m, 1, sizeof *c);
    pair *copy = c ? take(m, (size_t)p->n, sizeof *copy) : NULL;
    if (!copy)
        return 0;
    memcpy(copy, p->at, (size_t)p->n * sizeof *copy);
    *c = (config){.pair = copy, .n = p->n, .least = -1, .tokens = -1};
    for (int32_t i = 0; i < p->n; i++)
        c->can_end |= p->at[i].end;
    if (!idmap_put(&m->configs, hash, m->n_config))
        return fail(m, rx_no_memory);
    m->config[m->n_config] = c;
    return m->n_config++;
}

void machine_begin(machine *m, symbol root)
{
    pairs p;
    p.n = 0; /* not the array, which is large */
    clear_items(m);
    for (int32_t a = m->g.rule[rule_of(root)].first; a >= 0; a = m->g.alternative[a].next)
        close_over(m, m->g.alternative[a].at, 0, 0);
    add_fresh(m, &p, m->failed ? 0 : intern_frontier(m));
    m->start = intern_config(m, &p);
}

static int32_t make_step(machine *m, int32_t id, int byte)
{
    pairs p;
    p.n = 0;
    const config *c = m->config[id];
    for (int32_t i = 0; i < c->n && !m->failed; i++) {
        int32_t to = machine_lexer_step(m, c->pair[i].lexer, byte);
        if (to == 0)
            continue;
        const lexer_state *s = m->lexer[to];
        if (!s->leaf)
            add_pair(m, &p, (pair){to, c->pair[i].frontier, false});
        for (int32_t k = 0; k < s->n_accept && !m->failed; k++)
            add_fresh(m, &p, next_frontier(m, c->pair[i].frontier, s->accept[k]));
    }
    return intern_config(m, &p);
}

/* True if no lexer state of a config has a way on with this byte, as far as these are made. Most
 * bytes that a walk tries end here, and need no place among the steps. */
static bool is_dead(const machine *m, const config *c, int byte)
{
    for (int32_t i = 0; i < c->n; i++) {
        const lexer_state *s = m->lexer[c->pair[i].lexer];
        if (!s->made || byte_in(s->live, byte))
            return false;
    }
    return true;
}

void machine_live(machine *m, int32_t id, uint64_t live[4])
{
    const config *c = m->config[id];
    memset(live, 0, 4 * sizeof *live);
    for (int32_t i = 0; i < c->n; i++) {
        const lexer_state *s = machine_lexer_made(m, c->pair[i].lexer);
        for (int k = 0; s && k < 4; k++)
            live[k] |= s->live[k];
    }
}

int32_t machine_step(machine *m, int32_t id, int byte)
{
    if (is_dead(m, m->config[id], byte))
        return 0;
    uint64_t hash = vt_mix64((uint64_t)(uint32_t)id << 8 | (uint64_t)byte);
    int64_t at = -1;
    int32_t known = idmap_next(&m->steps, hash, &at); /* a bijection: no other has this hash */
    if (known)
        return known - 1;
    int32_t to = make_step(m, id, byte);
    if (!machine_is_well(m))
        return 0;
    if (idmap_bytes(&m->steps) > VT_GRAMMAR_MAX_BYTES / 2)
        return fail(m, too_large);
    if (!idmap_put(&m->steps, hash, to + 1))
        return fail(m, rx_no_memory);
    return to;
}

int32_t machine_run(machine *m, int32_t id, const char *bytes, int32_t n)
{
    for (int32_t i = 0; i < n && id; i++)
        id = machine_step(m, id, (unsigned char)bytes[i]);
    return id;
}

int32_t machine_behind(machine *m, int32_t id, const int32_t *lexeme, int32_t n)
{
    pairs p;
    p.n = 0;
    for (int32_t i = 0; i < n && !m->failed; i++)
        add_fresh(m, &p, next_frontier(m, id, lexeme[i]));
    return intern_config(m, &p);
}

int32_t machine_least(machine *m, int32_t id)
{
    config *c = m->config[id];
    if (c->can_end)
        return 0;
    int64_t best = INT32_MAX / 2;
    for (int32_t i = 0; c->least < 0 && i < c->n; i++) {
        const lexer_state *s = m->lexer[c->pair[i].lexer];
        for (int32_t k = 0; k < s->n; k++) {
            int64_t sum = (int64_t)rx_least(&m->g.rx, s->slot[k].rest) +
                          machine_way(m, c->pair[i].frontier, s->slot[k].lexeme)->least;
            best = sum < best ? sum : best;
        }
    }
    if (c->least < 0 && machine_is_well(m))
        c->least = (int32_t)best;
    return c->least;
}
