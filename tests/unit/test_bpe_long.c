/* Merging long words (text/tokenizer/bpe_long.c): for random merges and words its ids are those of
 * a list of all candidates that is searched for the least one each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "text/tokenizer/internal.h"
#include "text/tokenizer/vocab.h"

enum { MAX_WORD = 400, LETTERS = 3, IDS = 40, TRIES = 3000 };

typedef struct plain_candidate {
    uint32_t rank, id;
    int32_t pos;
} plain_candidate;

typedef struct plain {
    const vocab *v;
    bpe_symbol s[MAX_WORD];
    plain_candidate list[3 * MAX_WORD];
    int n;
} plain;

static void plain_add(plain *p, int32_t pos)
{
    if (pos < 0 || p->s[pos].next < 0)
        return;
    const vocab_merge *m = vocab_find_merge(p->v, (uint32_t)p->s[pos].id,
                                            (uint32_t)p->s[p->s[pos].next].id);
    if (m)
        p->list[p->n++] = (plain_candidate){m->rank, m->id, pos};
}

/* The rule in its plainest form: the candidate of the lowest rank, the leftmost of equals. One
 * counts if its two symbols, as they are now, merge into the id of the time when it was found, as
 * in Hugging Face's tokenizers. Returns the number of ids that are left. */
static int merge_plainly(plain *p, int32_t *id, int n)
{
    p->n = 0;
    for (int32_t i = 0; i < n; i++)
        p->s[i] = (bpe_symbol){.id = id[i], .prev = i - 1, .next = i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i < n; i++)
        plain_add(p, i);
    while (p->n > 0) {
        int least = 0;
        for (int i = 1; i < p->n; i++)
            if (p->list[i].rank < p->list[least].rank ||
                (p->list[i].rank == p->list[least].rank && p->list[i].pos < p->list[least].pos))
                least = i;
        plain_candidate c = p->list[least];
        p->list[least] = p->list[--p->n];
        bpe_symbol *left = &p->s[c.pos];
        if (left->id < 0 || left->next < 0)
            continue;
        bpe_symbol *right = &p->s[left->next];
        const vocab_merge *m = vocab_find_merge(p->v, (uint32_t)left->id, (uint32_t)right->id);
        if (!m || m->id != c.id)
            continue;
        left->id = (int32_t)c.id;
        right->id = -1;
        left->next = right->next;
        if (right->next >= 0)
            p->s[right->next].prev = c.pos;
        plain_add(p, left->prev);
        plain_add(p, c.pos);
    }
    int out = 0;
    for (int i = 0; i < n; i++)
        if (p->s[i].id >= 0)
            id[out++] = p->s[i].id;
    return out;
}

/* Small ids more often than large ones: words begin with them. */
static int32_t random_id(uint64_t *random, int32_t below)
{
    return (int32_t)(vt_random_next(random) % (1 + vt_random_next(random) % (uint64_t)below));
}

/* A vocabulary in which random pairs merge into random ids: at once in the order of their ids, as
 * trained ones are, with ranks that many pairs share, or that collide in the table of runs. */
static void random_merges(vocab *v, uint64_t *random)
{
    uint64_t form = vt_random_next(random) % 3;
    vocab_init(v);
    for (int32_t id = 0; id < IDS; id++) {
        char name = (char)('A' + id);
        assert_int_equal(vocab_set(v, id, &name, 1, PIECE_MODEL, NULL), VT_OK);
    }
    for (int32_t id = LETTERS; id < IDS; id++) {
        int32_t below = form == 0 ? id : IDS, a = random_id(random, below);
        int32_t b = vt_random_next(random) % 3 == 0 ? a : random_id(random, below);
        uint32_t rank = form == 0   ? (uint32_t)id
                        : form == 1 ? (uint32_t)(vt_random_next(random) % 6)
                                    : (uint32_t)(vt_random_next(random) % 6) * BPE_OPEN_RUNS;
        int32_t into = form == 0 ? id : (int32_t)(vt_random_next(random) % IDS);
        assert_int_equal(vocab_add_merge(v, a, b, rank, into, NULL), VT_OK);
    }
}

/* Letters at random, in runs, or one letter throughout. */
static int random_word(int32_t *id, uint64_t *random)
{
    int n = 2 + (int)(vt_random_next(random) % (MAX_WORD - 1));
    uint64_t change = 1 + vt_random_next(random) % 3 * (vt_random_next(random) % MAX_WORD);
    int32_t letter = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || vt_random_next(random) % change == 0)
            letter = (int32_t)(vt_random_next(random) % LETTERS);
        id[i] = letter;
    }
    return n;
}

static void test_bpe_long_word_has_the_ids_of_the_plain_rule(void **state)
{
    (void)state;
    static plain p;
    static bpe_long l; /* one for all words: what an earlier word leaves must not matter */
    bpe_symbol symbol[MAX_WORD];
    int32_t id[MAX_WORD];
    uint64_t random = 20;
    int64_t n_merged = 0;
    for (int i = 0; i < TRIES; i++) {
        vocab v;
        random_merges(&v, &random);
        int n = random_word(id, &random);
        size_t count = (size_t)n;
        for (int k = 0; k < n; k++)
            symbol[k].id = id[k];
        p.v = &v;
        int want = merge_plainly(&p, id, n);
        assert_true(bpe_merge_long(&l, &v, symbol, &count));
        assert_int_equal(count, want);
        for (int k = 0; k < want; k++)
            assert_int_equal(symbol[k].id, id[k]);
        n_merged += n - want;
        vocab_release(&v);
    }
    assert_true(n_merged > 20 * TRIES); /* the words were worth merging */
    bpe_long_release(&l);
}

/* A run of one letter is one list: the heap never holds a candidate for each place. */
static void test_bpe_long_run_of_one_letter_needs_a_heap_of_a_few_entries(void **state)
{
    (void)state;
    enum { N = 100000 };
    static bpe_long l;
    static bpe_symbol symbol[N];
    vocab v;
    size_t count = N;
    vocab_init(&v);
    for (int32_t id = 0; id < 4; id++) {
        const char *name = "aaaaaaaa";
        assert_int_equal(vocab_set(&v, id, name, (size_t)1 << id, PIECE_MODEL, NULL), VT_OK);
        if (id > 0)
            assert_int_equal(vocab_add_merge(&v, id - 1, id - 1, (uint32_t)id, id, NULL), VT_OK);
    }
    for (int i = 0; i < N; i++)
        symbol[i].id = 0;
    assert_true(bpe_merge_long(&l, &v, symbol, &count));
    assert_int_equal(count, N / 8);
    assert_true(l.cap_heap < 100);
    bpe_long_release(&l);
    vocab_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_long_word_has_the_ids_of_the_plain_rule),
        cmocka_unit_test(test_bpe_long_run_of_one_letter_needs_a_heap_of_a_few_entries),
    };
    return cmocka_run_group_tests_name("bpe_long", tests, NULL, NULL);
}
