/* The end of an answer, counted in tokens: see machine.h.
 *
 * An answer is closed in time as long as the bytes of its shortest end are no more than the tokens
 * that are left, which mask.c sees at once. Where max_tokens is smaller than those bytes, this file
 * counts tokens: from a config, the longest token along a shortest end, then the longest one from
 * there, and so on.
 *
 *   {"name": "a   ->   ", " | population | ": | 0}       4 tokens, 18 bytes
 *
 * That is not always the least number, but an answer can be ended with so many. */
#include "grammar/machine.h"

enum { MANY = INT32_MAX / 4 };

/* Returns the bytes of the longest token along a shortest way to the end, and the config behind it;
 * 0: there is no such token. */
static int32_t longest_step(machine *m, int32_t id, int32_t *to)
{
    const trie *t = &m->vocab->all;
    int32_t state[TRIE_MAX_DEPTH + 1], least = machine_least(m, id), best = 0;
    state[0] = id;
    for (int32_t i = 0; i < t->n && !m->failed;) {
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
            *to = next;
        }
        i++;
    }
    return best;
}

int32_t machine_tokens(machine *m, int32_t id, int32_t most)
{
    int32_t n = 0, at = id;
    if (m->config[id]->more_tokens > most)
        return m->config[id]->more_tokens;
    while (n <= most && machine_least(m, at) > 0 && m->config[at]->tokens < 0) {
        if (longest_step(m, at, &at) == 0)
            n = MANY;
        n++;
    }
    if (n > most) {
        m->config[id]->more_tokens = n;
        return n;
    }
    n += machine_least(m, at) > 0 ? m->config[at]->tokens : 0;
    m->config[id]->tokens = n;
    return n;
}

/* Returns true if an answer can be ended with `most` tokens behind this one. */
static bool ends_in(machine *m, int32_t id, int32_t token, int32_t most)
{
    const vt_grammar_vocab *v = m->vocab;
    int32_t to = machine_run(m, id, v->bytes + v->from[token], grammar_piece_len(v, token));
    return to && machine_tokens(m, to, most) <= most;
}

static void set(uint32_t *words, int32_t id) { words[id / 32] |= 1u << id % 32; }

/* Returns true if some token of a string leads back to the same config. Then each of those that end
 * with a whole character does: the string counts nothing. */
static bool leads_back(machine *m, int32_t id, const mask_part *part, int32_t n_words)
{
    const vt_grammar_vocab *v = m->vocab;
    for (int32_t w = 0; part->whole && w < n_words; w++) {
        uint32_t bits = part->bits[w] & part->whole[w];
        int32_t token = 32 * w + (bits ? __builtin_ctz(bits) : 0);
        if (bits)
            return machine_run(m, id, v->bytes + v->from[token], grammar_piece_len(v, token)) == id;
    }
    return false;
}

static void add_part(machine *m, int32_t id, const mask_part *part, int32_t most, uint32_t *words,
                     int32_t n_words)
{
    bool back = part->bits && leads_back(m, id, part, n_words);
    bool all = back && machine_tokens(m, id, most) <= most;
    for (int32_t w = 0; part->bits && w < n_words; w++) {
        uint32_t whole = back ? part->bits[w] & part->whole[w] : 0;
        words[w] |= all ? whole : 0;
        for (uint32_t left = part->bits[w] & ~whole; left && !m->failed; left &= left - 1)
            if (ends_in(m, id, 32 * w + __builtin_ctz(left), most))
                set(words, 32 * w + __builtin_ctz(left));
    }
    for (int32_t i = 0; i < part->n && !m->failed; i++)
        if (ends_in(m, id, part->id[i], most))
            set(words, part->id[i]);
}

bool machine_mask_in_time(machine *m, int32_t id, int32_t left, uint32_t *words, int32_t n_words)
{
    int32_t now = machine_tokens(m, id, left);
    if (now > left)
        return false;
    /* one token for the next, and one for the end token where there is room for it */
    int32_t most = now < left ? left - 2 : left - 1;
    const config_mask *mask = machine_mask(m, id);
    for (int32_t p = 0; mask && p < mask->n_parts; p++)
        add_part(m, id, &mask->part[p], most, words, n_words);
    for (int32_t i = 0; mask && i < mask->n && !m->failed; i++)
        if (ends_in(m, id, mask->id[i], most))
            set(words, mask->id[i]);
    return true;
}
