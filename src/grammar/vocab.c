#include "grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar.h"

static bool is_end(const vt_grammar_vocab *v, int32_t id)
{
    for (int32_t i = 0; i < v->n_eos; i++)
        if (v->eos[i] == id)
            return true;
    return false;
}

/* The end tokens are no text: they may come where an answer may end. */
static bool read_pieces(vt_grammar_vocab *v, const vt_tokenizer *t, vt_buf *all)
{
    for (int32_t id = 0; id < v->n; id++) {
        bool special = vt_tokenizer_is_special(t, id), end = special && is_end(v, id);
        v->from[id] = (uint32_t)all->len;
        if (special && !end && !vt_buf_putc(all, (char)VOCAB_SPECIAL))
            return false;
        if (!end && !vt_tokenizer_piece(t, id, all))
            return false;
        size_t n = all->len - v->from[id];
        bool odd = !special && n > 0 && memchr(all->data + v->from[id], VOCAB_SPECIAL, n);
        if ((special && n == 1) || odd) /* it has no spelling, or one that no text has */
            all->len = v->from[id];
        if (all->len - v->from[id] > TRIE_MAX_DEPTH) { /* rare: runs of blanks, mostly */
            all->len = v->from[id];
            all->data[all->len] = 0;
        }
    }
    v->from[v->n] = (uint32_t)all->len;
    static const char slack[TRIE_SLACK];
    vt_buf_add(all, slack, sizeof slack);
    return !all->failed && all->len < UINT32_MAX;
}

static bool make_trie(vt_grammar_vocab *v)
{
    trie_string *s = vt_calloc((size_t)v->n + 1, sizeof *s);
    int32_t n = 0;
    if (!s)
        return false;
    for (int32_t id = 0; id < v->n; id++)
        v->longest = grammar_piece_len(v, id) > v->longest ? grammar_piece_len(v, id) : v->longest;
    for (int32_t id = 0; id < v->n; id++)
        if (grammar_piece_len(v, id) > 0)
            s[n++] = (trie_string){v->bytes + v->from[id], grammar_piece_len(v, id), id};
    bool made = trie_make(&v->all, s, n);
    free(s);
    for (int i = 0; i < 256; i++)
        v->child[i] = -1;
    for (int32_t i = 0; made && i < v->all.n; i += (int32_t)v->all.node[i].size)
        v->child[v->all.node[i].byte] = i;
    return made;
}

/* Notes the children of the root's children, so that a walk finds the few that it wants. */
static bool note_children(vt_grammar_vocab *v)
{
    enum { MANY = 16 };
    const trie_node *node = v->all.node;
    for (int b = 0; b < 256; b++) {
        int32_t at = v->child[b], n = 0;
        int32_t end = at < 0 ? 0 : at + (int32_t)node[at].size;
        for (int32_t i = at + 1; i < end; i += (int32_t)node[i].size)
            n++;
        if (n < MANY)
            continue;
        v->below_child[b] = vt_calloc(256, sizeof **v->below_child);
        if (!v->below_child[b])
            return false;
        memset(v->below_child[b], -1, 256 * sizeof **v->below_child);
        for (int32_t i = at + 1; i < end; i += (int32_t)node[i].size)
            v->below_child[b][node[i].byte] = i;
    }
    return true;
}

static bool is_control(int b)
{
    return b == 127 || (b < ' ' && b != '\t' && b != '\n' && b != '\r');
}

void grammar_vocab_char(char_bits *c, int byte)
{
    int k = byte >= 128 ? CHARS_WIDE : is_control(byte) ? CHARS_ODD : byte;
    c->bit[k / 64] |= UINT64_C(1) << k % 64;
}

/* Returns true if bytes are not all whole characters, or hold U+2028 or U+2029. */
static bool is_odd(const char *bytes, int32_t n)
{
    for (int32_t i = 0; i + 2 < n; i++)
        if ((unsigned char)bytes[i] == 0xE2 && (unsigned char)bytes[i + 1] == 0x80 &&
            ((unsigned char)bytes[i + 2] & 0xFE) == 0xA8)
            return true;
    return vt_utf8_valid(bytes, (size_t)n) != (size_t)n;
}

/* Rows of a level's blocks from those of the level below. */
static void note_blocks(vt_grammar_vocab *v)
{
    for (int level = 1; level < HOLDS_LEVELS; level++)
        for (int k = 0; k < 128; k += HOLDS_BLOCK(level - 1)) {
            uint32_t *to = grammar_vocab_holds(v, level, k);
            const uint32_t *from = grammar_vocab_holds(v, level - 1, k);
            for (int32_t i = 0; i < v->n_words; i++)
                to[i] |= from[i];
        }
}

static void join(char_bits *to, char_bits from)
{
    to->bit[0] |= from.bit[0];
    to->bit[1] |= from.bit[1];
}

/* Notes for each node which characters the tokens below it hold, and for each token (of[], by id)
 * which it holds itself: those of the nodes above. */
static void note_below(vt_grammar_vocab *v, char_bits *of)
{
    const trie *t = &v->all;
    int32_t open[TRIE_MAX_DEPTH + 1], n_open = 0;
    char_bits above[TRIE_MAX_DEPTH + 1] = {{{0}}}, is[256] = {{{0}}};
    uint8_t chars[TRIE_MAX_DEPTH + 1] = {0};
    for (int b = 0; b < 256; b++)
        grammar_vocab_char(&is[b], b);
    for (int32_t i = 0; i < t->n; i++) {
        const trie_node n = t->node[i];
        for (; n_open >= (int32_t)n.depth; n_open--) /* these are complete */
            if (n_open > 1)
                join(&v->below[open[n_open - 2]], v->below[open[n_open - 1]]);
        open[n_open++] = i;
        char_bits c = above[n.depth - 1];
        join(&c, is[n.byte]);
        above[n.depth] = c;
        chars[n.depth] = (uint8_t)(chars[n.depth - 1] + ((n.byte & 0xC0) != 0x80));
        if (n.entry == TRIE_NONE)
            continue;
        int32_t first = t->id[t->id_from[n.entry]];
        if ((c.bit[0] >> CHARS_WIDE & 1) &&
            is_odd(v->bytes + v->from[first], grammar_piece_len(v, first)))
            c.bit[0] |= UINT64_C(1) << CHARS_ODD;
        join(&v->below[i], c);
        join(&v->held, c);
        for (int32_t k = t->id_from[n.entry]; k < t->id_from[n.entry + 1]; k++)
            of[t->id[k]] = c, v->chars[t->id[k]] = chars[n.depth];
    }
    for (; n_open > 1; n_open--)
        join(&v->below[open[n_open - 2]], v->below[open[n_open - 1]]);
}

/* Notes for each character which tokens hold it, token by token, so that few words are written at
 * a time. */
static void note_holds(vt_grammar_vocab *v, const char_bits *of)
{
    for (int32_t id = 0; id < v->n; id++) {
        uint32_t bit = 1u << id % 32;
        v->text[id / 32] |= grammar_piece_len(v, id) > 0 ? bit : 0;
        for (int half = 0; half < 2; half++)
            for (uint64_t left = of[id].bit[half]; left; left &= left - 1)
                v->holds[(64 * half + __builtin_ctzll(left)) * v->n_words + id / 32] |= bit;
    }
    note_blocks(v);
}

/* Lists the tokens of rows that have few: a list is read in a fraction of a row's time. */
static bool note_few(vt_grammar_vocab *v)
{
    int32_t n = 0, most = v->n_words / 4;
    v->few = vt_calloc((size_t)HOLDS_ROWS * (size_t)most + 1, sizeof *v->few);
    for (int row = 0; v->few && row < HOLDS_ROWS; row++) {
        const uint32_t *holds = v->holds + (size_t)row * (size_t)v->n_words;
        int32_t count = 0;
        v->few_from[row] = n;
        for (int32_t w = 0; w < v->n_words && count <= most; w++)
            for (uint32_t left = holds[w]; left && count <= most; left &= left - 1, count++)
                if (count < most)
                    v->few[n + count] = 32 * w + __builtin_ctz(left);
        v->few_n[row] = count <= most ? count : -1;
        n += count <= most ? count : 0;
    }
    return v->few != NULL;
}

static bool note_characters(vt_grammar_vocab *v)
{
    char_bits *of = vt_calloc((size_t)v->n + 1, sizeof *of);
    v->below = vt_calloc((size_t)v->all.n + 1, sizeof *v->below);
    v->chars = vt_calloc((size_t)v->n + 1, sizeof *v->chars);
    v->holds = vt_calloc((size_t)v->n_words * HOLDS_ROWS + 1, sizeof *v->holds);
    v->text = vt_calloc((size_t)v->n_words + 1, sizeof *v->text);
    bool ok = of && v->below && v->chars && v->holds && v->text;
    if (ok) {
        note_below(v, of);
        note_holds(v, of);
    }
    free(of);
    return ok && note_few(v);
}

/* Copies the nodes on the way to a quote and behind it: patterns in JSON end there, and a walk of
 * these few lies close together. */
static bool note_quoted(vt_grammar_vocab *v)
{
    enum { HALF = '"' / 64 };
    const uint64_t quote = UINT64_C(1) << '"' % 64;
    int32_t open[TRIE_MAX_DEPTH + 1], n = 0;
    trie_node *quoted = malloc(((size_t)v->all.n + 1) * sizeof *quoted); /* few of it are used */
    int32_t *at = malloc(((size_t)v->all.n + 1) * sizeof *at);
    for (int32_t i = 0; quoted && at && i < v->all.n; i++) {
        if (!(v->below[i].bit[HALF] & quote))
            continue;
        const int32_t depth = (int32_t)v->all.node[i].depth;
        quoted[n] = v->all.node[i];
        quoted[n].size = 1;
        at[n] = i;
        for (int32_t d = 1; d < depth; d++)
            quoted[open[d]].size++;
        open[depth] = n++;
    }
    v->n_quoted = n;
    v->quoted = quoted ? realloc(quoted, ((size_t)n + 1) * sizeof *quoted) : NULL;
    v->quoted_at = at ? realloc(at, ((size_t)n + 1) * sizeof *at) : NULL;
    return v->quoted && v->quoted_at;
}

vt_status vt_grammar_vocab_new(const vt_tokenizer *t, int32_t n_ids, vt_grammar_vocab **out,
                               vt_err *err)
{
    vt_grammar_vocab *v = vt_calloc(1, sizeof *v);
    vt_buf all = {0};
    if (!v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar's vocabulary");
    pthread_mutex_init(&v->lock, NULL);
    pthread_mutex_init(&v->shelf.lock, NULL);
    v->n = vt_tokenizer_vocab(t) < n_ids ? vt_tokenizer_vocab(t) : n_ids;
    v->n_words = (int32_t)vt_ceil_div(v->n, 32);
    v->n_eos = vt_tokenizer_eos_ids(t, v->eos, VOCAB_MAX_EOS);
    if (v->n_eos > VOCAB_MAX_EOS)
        v->n_eos = VOCAB_MAX_EOS;
    v->from = vt_calloc((size_t)v->n + 1, sizeof *v->from);
    bool made = v->from && read_pieces(v, t, &all);
    v->bytes = all.data;
    if (!made || !make_trie(v) || !note_children(v) || !note_characters(v) || !note_quoted(v) ||
        vt_grammar_warm(v, err) != VT_OK) {
        vt_grammar_vocab_free(v);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar's vocabulary");
    }
    *out = v;
    return VT_OK;
}

void vt_grammar_vocab_free(vt_grammar_vocab *v)
{
    if (!v)
        return;
    for (int32_t i = 0; i < v->n_seeds; i++)
        seed_free(v->seed[i]);
    shelf_release(&v->shelf);
    pthread_mutex_destroy(&v->lock);
    trie_release(&v->all);
    for (int b = 0; b < 256; b++)
        free(v->below_child[b]);
    free(v->below);
    free(v->chars);
    free(v->quoted);
    free(v->quoted_at);
    free(v->holds);
    free(v->few);
    free(v->text);
    free(v->from);
    free(v->bytes);
    free(v);
}

void grammar_vocab_add(const vt_grammar_vocab *v, int level, int k, uint32_t *bits)
{
    const uint32_t *holds = grammar_vocab_holds(v, level, k);
    int row = grammar_vocab_row(level, k);
    const int32_t *few = v->few + v->few_from[row];
    for (int32_t i = 0; i < v->few_n[row]; i++)
        bits[few[i] / 32] |= 1u << few[i] % 32;
    for (int32_t i = 0; v->few_n[row] < 0 && i < v->n_words; i++)
        bits[i] |= holds[i];
}

/* Rows of several characters are taken where none of them is in the set. */
void grammar_vocab_of(const vt_grammar_vocab *v, char_bits chars, uint32_t *bits)
{
    memset(bits, 0, (size_t)v->n_words * sizeof *bits);
    for (int k = 0; k < 128;) {
        int level = HOLDS_LEVELS - 1;
        uint64_t in = chars.bit[k / 64] >> k % 64, held = v->held.bit[k / 64] >> k % 64;
        while (level > 0 &&
               (k % HOLDS_BLOCK(level) != 0 || (in & ((UINT64_C(1) << HOLDS_BLOCK(level)) - 1))))
            level--;
        bool none = !(held & ((UINT64_C(1) << HOLDS_BLOCK(level)) - 1));
        if (!none && !(level == 0 && (in & 1)))
            grammar_vocab_add(v, level, k, bits);
        k += HOLDS_BLOCK(level);
    }
    for (int32_t i = 0; i < v->n_words; i++)
        bits[i] = v->text[i] & ~bits[i];
}

int32_t grammar_vocab_find(const vt_grammar_vocab *v, const char *bytes, int32_t n)
{
    const trie_node *node = v->all.node;
    int32_t at = n > 0 ? v->child[(unsigned char)bytes[0]] : -1;
    for (int32_t i = 1; at >= 0 && i < n; i++) {
        int32_t end = at + (int32_t)node[at].size, k = at + 1;
        while (k < end && node[k].byte != (unsigned char)bytes[i])
            k += (int32_t)node[k].size;
        at = k < end ? k : -1;
    }
    return at;
}

/* The length of the longest special token that a text begins with; 0: none. */
static size_t special_len(const vt_grammar_vocab *v, const char *text)
{
    const trie_node *node = v->all.node;
    int32_t at = v->child[VOCAB_SPECIAL];
    size_t longest = 0;
    for (size_t i = 0; at >= 0 && text[i]; i++) {
        int32_t end = at + (int32_t)node[at].size, k = at + 1;
        while (k < end && node[k].byte != (unsigned char)text[i])
            k += (int32_t)node[k].size;
        at = k < end ? k : -1;
        if (at >= 0 && node[at].entry != TRIE_NONE)
            longest = i + 1;
    }
    return longest;
}

bool grammar_vocab_mark(const vt_grammar_vocab *v, const char *text, vt_buf *out)
{
    while (*text) {
        size_t n = special_len(v, text);
        if (n > 0)
            vt_buf_putc(out, (char)VOCAB_SPECIAL);
        n = n > 0 ? n : 1;
        vt_buf_add(out, text, n);
        text += n;
    }
    return !out->failed;
}

void seed_free(seed *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < SEED_MASKS; i++)
        if (s->mask[i] != s->all)
            free(s->mask[i]);
    for (int32_t i = 0; s->tail && i < s->n_tails; i++)
        trie_release(&s->tail[i]);
    free(s->tail);
    free(s->all);
    free(s->whole);
    free(s->id);
    free(s->upto);
    free(s);
}
