/* The variants of the cards (vt_op.variants), and the cases that are there to compare them: names,
 * slots of kv_store, plans with a given number of KV ranges, and the CPU's rows of embed, which
 * must agree bit for bit because one of them is chosen by the instruction set alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "ops/attention/attention_cuda.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"

/* ---- names ---- */

static int32_t rows_named(const vt_op *op, const vt_impl *like)
{
    const vt_impl *const *const table[] = {op->impls, op->variants};
    int32_t n = 0;
    for (int t = 0; t < 2; t++)
        for (const vt_impl *const *i = table[t]; i && *i; i++)
            n += (*i)->device == like->device && strcmp((*i)->name, like->name) == 0;
    return n;
}

/* --impl NAME of `bench kernels`, and vt_op_row, find a variant by its name. */
static void test_variant_has_a_name_of_its_own_and_is_found_by_it(void **state)
{
    (void)state;
    int32_t n = 0;
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (const vt_impl *const *i = (*op)->variants; i && *i; i++, n++) {
            if (rows_named(*op, *i) != 1)
                fail_msg("%s has two rows named %s", (*op)->name, (*i)->name);
            assert_ptr_equal(vt_op_row(*op, (*i)->device, (*i)->name), *i);
        }
    assert_true(n > 0);
}

/* ---- slots of kv_store ---- */

static const kv_store_args *store_of(const char *shape, vt_arena *arena)
{
    static vt_case made;
    vt_tensor *outputs[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    vt_err err = {0};
    if (vt_case_from_text(&kv_store_op, shape, &made, &err) != VT_OK)
        fail_msg("%s", err.message);
    const kv_store_args *a = kv_store_op.make_args(&made, 7, arena, outputs, &n_outputs);
    assert_non_null(a);
    return a;
}

/* Every slot is in the pool, and no two tokens have the same. */
static void check_slots(const kv_store_args *a)
{
    int64_t slots = a->k_pool->dim[0] * a->k_pool->dim[2];
    char *taken = calloc((size_t)slots, 1);
    assert_non_null(taken);
    for (int32_t i = 0; i < a->batch->n_tokens; i++) {
        int32_t slot = a->batch->slot[i];
        assert_in_range(slot, 0, slots - 1);
        if (taken[slot]++)
            fail_msg("slot %d is given twice", slot);
    }
    free(taken);
}

/* Returns how often the slot after a token's is the next token's. */
static int32_t neighbours(const vt_batch *b)
{
    int32_t n = 0;
    for (int32_t i = 1; i < b->n_tokens; i++)
        n += b->slot[i] == b->slot[i - 1] + 1;
    return n;
}

static int32_t falls(const vt_batch *b)
{
    int32_t n = 0;
    for (int32_t i = 1; i < b->n_tokens; i++)
        n += b->slot[i] < b->slot[i - 1];
    return n;
}

static void test_slots_when_of_any_pattern_then_in_the_pool_and_distinct(void **state)
{
    (void)state;
    static const char *const shape[] = {
        "tokens=200,kv_heads=1,head_dim=8,page=16,slots=sequential",
        "tokens=200,kv_heads=1,head_dim=8,page=16,slots=random",
        "tokens=200,kv_heads=1,head_dim=8,page=16,slots=sorted",
        "tokens=50,decodes=9,kv_heads=1,head_dim=8,page=1,slots=random"};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        vt_arena arena;
        vt_arena_init(&arena, 0);
        check_slots(store_of(shape[i], &arena));
        vt_arena_release(&arena);
    }
}

static void test_slots_when_sorted_then_rising_and_when_random_then_not(void **state)
{
    (void)state;
    vt_arena arena;
    vt_arena_init(&arena, 0);
    const vt_batch *page = store_of("tokens=200,kv_heads=1,head_dim=8,page=16", &arena)->batch;
    assert_true(neighbours(page) >= 200 - 200 / 16 - 2);
    const vt_batch *random =
        store_of("tokens=200,kv_heads=1,head_dim=8,page=16,slots=random", &arena)->batch;
    assert_true(neighbours(random) < 20 && falls(random) > 50);
    const vt_batch *sorted =
        store_of("tokens=200,kv_heads=1,head_dim=8,page=16,slots=sorted", &arena)->batch;
    assert_int_equal(falls(sorted), 0);
    assert_true(neighbours(sorted) < 100); /* there are gaps: the pool is larger */
    vt_arena_release(&arena);
}

static void test_slots_when_repeated_then_refused_with_the_reason(void **state)
{
    (void)state;
    static vt_case made;
    vt_err err = {0};
    assert_int_equal(vt_case_from_text(&kv_store_op, "slots=repeated", &made, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "two tokens with one slot"));
}

/* ---- plans with a given number of KV ranges ---- */

static void check_ranges(const attention_decode_item *item, int32_t n, const vt_batch *b,
                         int32_t splits)
{
    int32_t at = 0;
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t begin = 0, parts = item[at].n_slots, first = at;
        assert_in_range(parts, 1, splits);
        for (int32_t k = 0; k < parts; k++, at++) {
            assert_true(at < n);
            assert_int_equal(item[at].seq, s);
            assert_int_equal(item[at].begin, begin);
            assert_true(item[at].end > begin);
            assert_int_equal(item[at].first_slot, first);
            assert_int_equal(item[at].slot, first + k);
            begin = item[at].end;
        }
        assert_int_equal(begin, b->kv_len[s]);
    }
}

static void test_splits_when_given_then_ranges_cover_every_sequence_once(void **state)
{
    (void)state;
    enum { SEQS = 7, PAD = 2, MOST = 16, ITEMS = (SEQS + PAD) * MOST };
    static const int32_t kv_len[SEQS] = {1, 64, 65, 127, 1000, 4096, 300};
    const vt_batch b = {.n_seqs = SEQS, .n_decode = SEQS, .kv_len = kv_len};
    attention_decode_item item[ITEMS];
    for (int32_t splits = 1; splits <= MOST; splits *= 2) {
        int32_t capacity = (SEQS + PAD) * splits;
        int32_t n = attention_decode_fill_splits(&b, PAD, splits, item, capacity);
        assert_in_range(n, SEQS + PAD, capacity);
        check_ranges(item, n, &b, splits);
        assert_int_equal(item[n - 1].seq, SEQS + PAD - 1);
        for (int32_t i = n; i < capacity; i++)
            assert_int_equal(item[i].seq, -1);
    }
    attention_decode_fill_splits(&b, 0, 8, item, SEQS * 8);
    int32_t n_long = 0;
    for (int32_t i = 0; i < SEQS * 8; i++)
        n_long += item[i].seq == 5 && item[i].end - item[i].begin == 4096 / 8;
    assert_int_equal(n_long, 8);
}

/* ---- embed on a CPU ---- */

static void same_bits_as_portable(const vt_case *c, op_teams *teams)
{
    const vt_impl *portable = vt_op_row(&embed_op, VT_DEVICE_CPU, "portable");
    op_args want, got;
    op_args_make(&want, &embed_op, c);
    op_run(&embed_op, portable, &want, teams, 1);
    for (const vt_impl *const *i = embed_op.impls; *i; i++) {
        if (!op_may_run(*i))
            continue;
        op_args_make(&got, &embed_op, c);
        op_poison(&got);
        op_run(&embed_op, *i, &got, teams, 2);
        if (!op_same_bits(&got, &want))
            fail_msg("%s, %s: other bits than portable", (*i)->name, c->name);
        op_args_release(&got);
    }
    op_args_release(&want);
}

static void test_embed_rows_have_the_bits_of_the_portable_row(void **state)
{
    vt_case made[16];
    vt_err err = {0};
    int32_t n;
    assert_int_equal(vt_cases_from_text(&embed_op,
                                        "tokens=5,vocab=300,hidden=512,scaled=0|1,"
                                        "type=f32|f16|bf16|fp8|q8_0|q4_0|q6_k",
                                        made, 16, &n, &err),
                     VT_OK);
    assert_int_equal(n, 14);
    for (int32_t i = 0; i < n; i++)
        same_bits_as_portable(&made[i], *state);
    vt_case odd; /* a tail shorter than a vector */
    assert_int_equal(
        vt_case_from_text(&embed_op, "tokens=3,vocab=9,hidden=67,type=f16", &odd, &err), VT_OK);
    same_bits_as_portable(&odd, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variant_has_a_name_of_its_own_and_is_found_by_it),
        cmocka_unit_test(test_slots_when_of_any_pattern_then_in_the_pool_and_distinct),
        cmocka_unit_test(test_slots_when_sorted_then_rising_and_when_random_then_not),
        cmocka_unit_test(test_slots_when_repeated_then_refused_with_the_reason),
        cmocka_unit_test(test_splits_when_given_then_ranges_cover_every_sequence_once),
        cmocka_unit_test(test_embed_rows_have_the_bits_of_the_portable_row),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
