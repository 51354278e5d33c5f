/* The end of an answer, counted in tokens: see machine.h.
 *
 * mask.c compares the bytes of the shortest end with the tokens that are left: as long as they are
 * no more, the answer can be ended. Where max_tokens is smaller than those bytes from the
 * beginning, this file counts the end's tokens: the longest token along a shortest end, then the
 * longest one from there, and so on.
 *
 *   {"name": "a   ->   ", " | population | ": | 0}       4 tokens, 18 bytes
 *
 * That is not always the least number, but an answer can be ended with so many. The work for a mask
 * is limited: tokens that were not looked at are not allowed, but the first token of that end is,
 * always. */
#include "grammar/machine.h"

enum {
    MANY = INT32_MAX / 4,
    STEP_NODES = 1000,    /* nodes of the vocabulary's trie, to find one token of an end */
    NOW_NODES = 1000000,  /* ... to find all tokens of the end from here */
    MASK_NODES = 100000,  /* ... to find the ends behind all tokens of a mask */
    MASK_TOKENS = 1 << 13 /* tokens of a mask that are looked at one by one */
};

/* The work that is left for one mask. */
typedef struct work {
    machine *m;
    int32_t nodes, tokens;
} work;

/* Finds the longest token along a shortest way to the end, as far as there is work left: its entry
 * in the trie, and the config behind it. TRIE_NONE: there is none. */
static uint32_t longest_step(work *w, int32_t id, int32_t *to)
{
    machine *m = w->m;
    const trie *t = &m->vocab->all;
    int32_t state[TRIE_MAX_DEPTH + 1], least = machine_least(m, id), best = 0, looked = 0;
    uint32_t entry = TRIE_NONE;
    state[0] = id;
    for (int32_t i = 0; i < t->n && !m->failed && looked < STEP_NODES; looked++) {
        trie_node n = t->node[i];
        int32_t depth = (int32_t)n.depth;
        int32_t next = depth <= least ? machine_step(m, state[depth - 1], n.byte) : 0;
        if (next == 0 || machine_least(m, next) != least - depth) {
            i += (int32_t)n.size;
            continue;
        }
        state[depth] = next;
        if (n.entry != TRIE_NONE && depth > best) {
            best = depth;
            entry = n.entry;
            *to = next;
        }
        i++;
    }
    w->nodes -= looked;
    return entry;
}

/* Notes on the configs of a path, the first n of which are given, how many tokens end them. */
static void note_tokens(machine *m, const int32_t *path, int32_t n, int32_t tokens)
{
    for (int32_t i = 0; i < n; i++)
        m->config[path[i]]->tokens = tokens - i;
}

/* Returns how many tokens end the answer from a config; of more than `most`, any number above. */
static int32_t tokens_of(work *w, int32_t id, int32_t most)
{
    enum { PATH = 32 };
    machine *m = w->m;
    int32_t n = 0, at = id, path[PATH];
    if (m->config[id]->more_tokens > most)
        return m->config[id]->more_tokens;
    while (n <= most && machine_least(m, at) > 0 && m->config[at]->tokens < 0) {
        if (n < PATH)
            path[n] = at;
        if (w->nodes <= 0 || longest_step(w, at, &at) == TRIE_NONE)
            n = MANY;
        n++;
    }
    if (!machine_is_well(m))
        return most + 1;
    if (n > most) {
        m->config[id]->more_tokens = most + 1;
        return most + 1;
    }
    int32_t tokens = n + (machine_least(m, at) > 0 ? m->config[at]->tokens : 0);
    note_tokens(m, path, n < PATH ? n : PATH, tokens);
    return tokens;
}

int32_t machine_tokens(machine *m, int32_t id, int32_t most)
{
    work w = {.m = m, .nodes = NOW_NODES};
    return tokens_of(&w, id, most);
}

static void set(uint32_t *words, int32_t id) { words[id / 32] |= 1u << id % 32; }

/* Sets the bit of a token behind which `most` tokens can end the answer. */
static void try_token(work *w, int32_t id, int32_t token, int32_t most, uint32_t *words)
{
    machine *m = w->m;
    const vt_grammar_vocab *v = m->vocab;
    if (w->tokens-- <= 0 || m->failed)
        return;
    int32_t to = machine_run(m, id, v->bytes + v->from[token], grammar_piece_len(v, token));
    if (to && tokens_of(w, to, most) <= most)
        set(words, token);
}

/* Returns true if some token of a string leads back to the same config. Then each of those that end
 * with a whole character does: the string counts nothing. */
static bool leads_back(machine *m, int32_t id, const mask_part *part, int32_t n_words)
{
    const vt_grammar_vocab *v = m->vocab;
    for (int32_t k = 0; part->bits && part->whole && k < n_words; k++) {
        uint32_t bits = part->bits[k] & part->whole[k];
        int32_t token = 32 * k + (bits ? __builtin_ctz(bits) : 0);
        if (bits)
            return machine_run(m, id, v->bytes + v->from[token], grammar_piece_len(v, token)) == id;
    }
    return false;
}

static void add_part(work *w, int32_t id, const mask_part *part, int32_t most, uint32_t *words,
                     int32_t n_words)
{
    bool back = leads_back(w->m, id, part, n_words);
    bool all = back && tokens_of(w, id, most) <= most;
    for (int32_t k = 0; part->bits && k < n_words; k++) {
        uint32_t whole = back ? part->bits[k] & part->whole[k] : 0;
        words[k] |= all ? whole : 0;
        for (uint32_t left = part->bits[k] & ~whole; left; left &= left - 1)
            try_token(w, id, 32 * k + __builtin_ctz(left), most, words);
    }
    for (int32_t i = 0; i < part->n; i++)
        try_token(w, id, part->id[i], most, words);
}

bool machine_mask_in_time(machine *m, int32_t id, int32_t left, uint32_t *words, int32_t n_words)
{
    const trie *t = &m->vocab->all;
    int32_t now = machine_tokens(m, id, left), to;
    work w = {.m = m, .nodes = MASK_NODES, .tokens = MASK_TOKENS};
    if (now > left)
        return false;
    uint32_t entry = longest_step(&w, id, &to);
    for (int32_t k = entry == TRIE_NONE ? 0 : t->id_from[entry];
         entry != TRIE_NONE && k < t->id_from[entry + 1]; k++)
        set(words, t->id[k]);
    /* one token for the next, and one for the end token where there is room for it */
    int32_t most = now < left ? left - 2 : left - 1;
    const config_mask *mask = machine_mask(m, id);
    for (int32_t i = 0; mask && i < mask->n; i++)
        try_token(&w, id, mask->id[i], most, words);
    for (int32_t p = 0; mask && p < mask->n_parts; p++)
        add_part(&w, id, &mask->part[p], most, words, n_words);
    return true;
}
