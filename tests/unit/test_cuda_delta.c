/* gated_delta in chunks on the emulated GPU: its state beside the reference's doubles, behind many
 * chunks, with decays that leave nothing or all of a state, and betas of nearly 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "common/emulated_ops.h"
#include "ops/access.h"
#include "ops/case_text.h"
#include "ops/gated_delta/gated_delta.h"

static int open_gpu(void **state) { return emulated_ops_open(state, &(on_cuda_options){0}); }

enum { SLOW, STRONG, MIXED, SAME };

/* Gates of one kind for all tokens, and for SAME one k for all of them. */
static void set_gates(gated_delta_args *a, int kind)
{
    int64_t size = (int64_t)a->k_heads * a->k_dim;
    for (int64_t j = 0; j < a->v_heads; j++) {
        tensor_set((vt_tensor *)a->decay, 0, j, kind == SLOW || kind == SAME ? -1e-4f : -1.f);
        tensor_set((vt_tensor *)a->dt_bias, 0, j, 0);
    }
    for (int64_t t = 0; t < a->x->dim[0]; t++)
        for (int64_t j = 0; j < a->v_heads; j++) {
            float z = kind == STRONG           ? 40.f
                      : kind == MIXED && t % 7 ? -9.f
                      : kind == MIXED          ? 300
                                               : 0;
            tensor_set((vt_tensor *)a->a, t, j, z);
            tensor_set((vt_tensor *)a->b, t, j, kind == MIXED ? (float)(t % 5) - 1 : 6.f);
        }
    for (int64_t t = 1; kind == SAME && t < a->x->dim[0]; t++)
        for (int64_t i = size; i < 2 * size; i++)
            tensor_set((vt_tensor *)a->x, t, i, tensor_get(a->x, 0, i));
}

/* Returns the largest error of the state, over its largest number. */
static double error_of(const char *shape, const char *row, int kind)
{
    vt_err err = {0};
    vt_case text;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
    on_cuda_error e;
    void *bytes;
    if (vt_case_from_text(&gated_delta_op, shape, &text, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_arena_init(&arena, 0);
    gated_delta_args *a = gated_delta_op.make_args(&text, 5, &arena, output, &n_outputs);
    assert_non_null(a);
    set_gates(a, kind);
    assert_int_equal(on_cuda_round(&gated_delta_op, a, &err), VT_OK);
    assert_int_equal(on_cuda_make(&c, &gpu, &gated_delta_op, a, NULL, &err), VT_OK);
    const vt_impl *impl = vt_op_row(&gated_delta_op, VT_DEVICE_CUDA, row);
    assert_non_null(impl);
    assert_true(on_cuda_fits(&c, impl));
    if (on_cuda_take(&c, impl, &err) != VT_OK || on_cuda_run(&c, &err) != VT_OK)
        fail_msg("%s: %s", shape, err.message);
    gated_delta_op.reference(a);
    assert_int_equal(on_cuda_compare(&c, output, n_outputs, &e, &err), VT_OK);
    if (!e.good)
        fail_msg("%s: %s", shape, e.why);
    assert_int_equal(on_cuda_fetch(&c, a->state, &bytes, &err), VT_OK);
    double worst = 0, most = 0;
    const float *got = bytes;
    int32_t slot = a->batch->state_to[a->batch->n_seqs - 1];
    for (int64_t i = 0; i < (int64_t)a->v_heads * a->k_dim * a->v_dim; i++) {
        double want = tensor_get(a->state, slot, a->state_at + i);
        double d = fabs((double)got[slot * a->state->row_stride + a->state_at + i] - want);
        worst = d > worst ? d : worst;
        most = fabs(want) > most ? fabs(want) : most;
    }
    free(bytes);
    on_cuda_release(&c);
    vt_arena_release(&arena);
    return worst / most;
}

static void test_delta_chunks_state_is_within_the_cards_tolerance(void **state)
{
    static const char *const name[] = {"slow", "strong", "mixed", "same"};
    (void)state;
    for (int kind = SLOW; kind <= SAME; kind++) {
        const char *shape = "tokens=700,decodes=1,k_heads=1,v_heads=1,k_dim=64,v_dim=32";
        double chunks = error_of(shape, "chunks", kind), one = error_of(shape, "prefill", kind);
        print_message("%s: chunks %.2g, token by token %.2g\n", name[kind], chunks, one);
        /* with one k for all tokens what they add to a state cancels, but for a hundredth */
        assert_true(chunks <= (kind == SAME ? 1e-4 : gated_delta_op.tolerance));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta_chunks_state_is_within_the_cards_tolerance),
    };
    return cmocka_run_group_tests_name("cuda_delta", tests, open_gpu, emulated_ops_close);
}
