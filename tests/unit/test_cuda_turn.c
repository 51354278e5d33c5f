/* Decode attention that makes what the call in front of it makes, on the emulated GPU: the device's
 * pools hold NaN where that call would have stored the tokens' K and V, and q comes unturned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/emulated_ops.h"
#include "ops/attention/attention.h"
#include "ops/case_text.h"

static int open_gpu(void **state)
{
    return emulated_ops_open(state, &(on_cuda_options){.always = true});
}

/* Writes NaN to the slots of the batch's own tokens. */
static void poison(const attention_args *a)
{
    const vt_batch *b = a->batch;
    const vt_tensor *pool[] = {a->k_pool, a->v_pool};
    int64_t page = a->k_pool->dim[2];
    for (int p = 0; p < 2; p++)
        for (int32_t t = 0; t < b->n_tokens; t++)
            for (int64_t h = 0; h < a->kv_heads; h++) {
                int64_t row = (b->slot[t] / page * a->kv_heads + h) * page + b->slot[t] % page,
                        bytes = vt_dtype_row_bytes(pool[p]->dtype, a->head_dim);
                memset((char *)pool[p]->data + row * bytes, 0xff, (size_t)bytes);
            }
}

/* Returns true if the row's output and pools are those of the reference. */
static bool right_from_poison(const char *row, const char *shape)
{
    const vt_op *op = &attention_decode_op;
    vt_case text;
    vt_arena arena;
    vt_err err = {0};
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
    on_cuda_error e;
    if (vt_case_from_text(op, shape, &text, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_arena_init(&arena, 0);
    attention_args *a = op->make_args(&text, 11, &arena, output, &n_outputs);
    assert_non_null(a);
    assert_int_equal(n_outputs, 3);
    assert_int_equal(on_cuda_round(op, a, &err), VT_OK);
    size_t bytes = (size_t)vt_tensor_bytes(a->k_pool);
    char *k = malloc(bytes), *v = malloc(bytes);
    assert_true(k && v);
    memcpy(k, a->k_pool->data, bytes);
    memcpy(v, a->v_pool->data, bytes);
    poison(a);
    if (on_cuda_make(&c, &gpu, op, a, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    memcpy(a->k_pool->data, k, bytes);
    memcpy(a->v_pool->data, v, bytes);
    if (on_cuda_take(&c, vt_op_row(op, VT_DEVICE_CUDA, row), &err) != VT_OK ||
        on_cuda_run(&c, &err) != VT_OK)
        fail_msg("%s: %s", shape, err.message);
    op->reference(a);
    assert_int_equal(on_cuda_compare(&c, output, n_outputs, &e, &err), VT_OK);
    free(k);
    free(v);
    on_cuda_release(&c);
    vt_arena_release(&arena);
    return e.good;
}

static void test_split_turns_and_stores(void **state)
{
    (void)state;
    static const char *const shape[] = {
        "seqs=1,kv_len=1,heads=4,kv_heads=2,page=16,before=2",
        "seqs=1,kv_len=700,heads=4,kv_heads=2,page=16,before=1", /* cut over KV */
        "seqs=5,kv_len=129,heads=9,kv_heads=3,head_dim=64,page=16,step=40,before=2",
        "seqs=2,kv_len=900,heads=16,kv_heads=2,before=3", /* a group of 8 */
        "seqs=16,kv_len=33,heads=14,kv_heads=1,head_dim=64,page=16,step=1,before=4",
        "seqs=6,kv_len=90,heads=4,kv_heads=1,head_dim=256,page=16,window=30,step=9,before=2",
        "seqs=3,kv_len=300,heads=8,kv_heads=2,kv_type=fp8,page=64,step=37,before=2",
        "seqs=3,kv_len=50,heads=8,kv_heads=1,head_dim=64,kv_type=fp8,page=5,step=7,before=1",
        "seqs=2,kv_len=1500,heads=2,kv_heads=1,head_dim=64,page=16,before=2", /* behind the ring */
        "seqs=5,kv_len=150,heads=8,kv_heads=2,page=64,families=1,shared=2,step=3,before=2",
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        if (!right_from_poison("split", shape[i]))
            fail_msg("%s", shape[i]);
    assert_true(right_from_poison("whole", "seqs=2,kv_len=1500,heads=4,kv_heads=2,before=2"));
}

/* Rows and calls that leave it to its own kernel read the NaNs. */
static void test_others_leave_it(void **state)
{
    (void)state;
    static const struct {
        const char *row, *shape;
    } other[] = {
        {"any", "seqs=2,kv_len=40,heads=4,kv_heads=2,before=2"},
        {"fa2-tiles", "seqs=2,kv_len=40,heads=4,kv_heads=2,before=2"},
        {"split", "seqs=17,kv_len=20,heads=2,kv_heads=1,head_dim=64,page=16,before=2"},
        {"split", "seqs=2,q_len=2,kv_len=40,heads=4,kv_heads=2,before=2"},
        {"split", "seqs=2,kv_len=40,heads=4,kv_heads=2,head_dim=96,before=2"},
        {"split", "seqs=2,kv_len=40,heads=8,kv_heads=1,head_dim=256,page=16,before=1"},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (right_from_poison(other[i].row, other[i].shape))
            fail_msg("%s %s", other[i].row, other[i].shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_turns_and_stores),
        cmocka_unit_test(test_others_leave_it),
    };
    return cmocka_run_group_tests(tests, open_gpu, emulated_ops_close);
}
