/* Weights in the memory of the emulated GPU: read back, they are the bytes that the implementations
 * pack, for whole weights and for the ranges of a rank. The weights of a dummy model are the
 * elements that model/dummy.h defines, whether a kernel or the host made them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulated_gpu.h"
#include "exec/weights_cuda.h"
#include "model/dummy.h"
#include "model/load.h"

enum { CONTEXT = 64 };

typedef struct fixture {
    vt_model *m;
    vt_layout *layout;
    vt_cuda *c;
    cu_stream stream;
} fixture;

static void must(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

static fixture open_fixture(const char *model)
{
    fixture f;
    vt_err err = {0};
    setenv("VITRINE_EMULATOR", "memory=256", 1);
    must(vt_model_load(model, &f.m, &err), &err);
    must(vt_layout_make(f.m, &f.layout, &err), &err);
    must(vt_cuda_open(0, &f.c, &err), &err);
    assert_int_equal(f.c->driver.stream_create(&f.stream, CU_STREAM_NON_BLOCKING, 0), 0);
    return f;
}

static void close_fixture(fixture *f)
{
    assert_int_equal(f->c->driver.stream_destroy(f->stream), 0);
    vt_cuda_close(f->c);
    vt_layout_free(f->layout);
    vt_model_free(f->m);
}

static void *read_back(const fixture *f, const vt_tensor *t, size_t bytes)
{
    void *host = vt_calloc(1, bytes);
    assert_int_equal(f->c->driver.copy_to_host(host, (cu_ptr)(uintptr_t)t->data, bytes, f->stream),
                     0);
    assert_int_equal(f->c->driver.stream_sync(f->stream), 0);
    return host;
}

static void check_matrix(const fixture *f, const vt_layout_entry *e, int64_t i, const vt_weight *w)
{
    vt_arena arena;
    vt_weight host;
    vt_err err = {0};
    vt_arena_init(&arena, 0);
    must(vt_layout_weight(e, i, &arena, &host, &err), &err);
    assert_int_equal(w->packed_bytes, w->packing->bytes(&host));
    void *want = vt_calloc(1, w->packed_bytes), *got = read_back(f, w->part[0], w->packed_bytes);
    vt_pack_all(w->packing, &host, want);
    assert_memory_equal(got, want, w->packed_bytes);
    free(want);
    free(got);
    vt_arena_release(&arena);
}

static void check_floats(const fixture *f, const vt_layout_entry *e, const vt_tensor *t)
{
    size_t bytes = (size_t)vt_tensor_bytes(t);
    float *want = vt_calloc(1, bytes);
    void *got = read_back(f, t, bytes);
    assert_int_equal(t->dtype, VT_F32);
    vt_layout_floats(e, want);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
}

/* Realises f->layout and compares every entry of a kind that the file has. */
static void check_all(const fixture *f)
{
    vt_cuda_weights *w;
    vt_err err = {0};
    must(vt_cuda_weights_realise(f->c, f->layout, CONTEXT, 2, &w, &err), &err);
    for (int32_t i = 0; i < f->layout->n; i++) {
        const vt_layout_entry *e = &f->layout->entry[i];
        if (e->kind == VT_KIND_MATRIX)
            check_matrix(f, e, 0, vt_weights_matrix(&w->weights, e));
        if (e->kind == VT_KIND_EXPERTS)
            for (int64_t k = 0; k < vt_layout_matrices(e); k++)
                check_matrix(f, e, k, &vt_weights_matrix(&w->weights, e)[k]);
        if (e->kind == VT_KIND_ROUTER || e->kind == VT_KIND_VECTOR)
            check_floats(f, e, *vt_weights_tensor(&w->weights, e));
    }
    vt_cuda_weights_free(f->c, w);
}

static void test_weights_of_files_are_what_the_implementations_pack(void **state)
{
    (void)state;
    static const char *const model[] = {"llama-quantised-Q4_K.gguf", "qwen3moe-fp8", "qwen2-gqa7",
                                        "qwen3moe-norm-mixed", "llama-gqa8-llama3-f32"};
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/models/%s", model[i]);
        fixture f = open_fixture(path);
        check_all(&f);
        close_fixture(&f);
    }
}

static vt_layout_entry *entry(vt_layout *l, const char *label)
{
    for (int32_t i = 0; i < l->n; i++)
        if (strcmp(l->entry[i].label, label) == 0)
            return &l->entry[i];
    fail_msg("no entry %s", label);
    return NULL;
}

static void upper_half(int64_t *first, int64_t *n)
{
    *first += *n / 2;
    *n -= *n / 2;
}

/* Narrows layer 0 to the ranges of the second of two ranks. */
static void second_rank(vt_layout *l, bool mixture)
{
    vt_layout_entry *e = entry(l, "L00.qkv"), *o = entry(l, "L00.o");
    for (int32_t i = 0; i < e->n_parts; i++)
        upper_half(&e->part[i].row, &e->part[i].rows);
    upper_half(&o->part[0].col, &o->part[0].cols);
    e = entry(l, mixture ? "L00.experts.gate+up" : "L00.gate+up");
    for (int32_t i = 0; i < e->n_parts; i++)
        upper_half(&e->part[i].row, &e->part[i].rows);
    e = entry(l, mixture ? "L00.experts.down" : "L00.down");
    upper_half(&e->part[0].col, &e->part[0].cols);
}

static void test_weights_of_a_rank_are_its_ranges(void **state)
{
    (void)state;
    fixture f = open_fixture("tests/golden/models/qwen2-gqa7");
    vt_layout_entry *bias = entry(f.layout, "L00.qkv_bias");
    second_rank(f.layout, false);
    for (int32_t i = 0; i < bias->n_parts; i++)
        upper_half(&bias->part[i].row, &bias->part[i].rows);
    check_all(&f);
    close_fixture(&f);
    f = open_fixture("tests/golden/models/qwen3moe-norm-mixed");
    second_rank(f.layout, true);
    check_all(&f);
    close_fixture(&f);
}

/* Element [row, col] of a part of a dummy model. */
static uint16_t dummy_at(const vt_layout_part *p, int64_t row, int64_t col)
{
    uint16_t v;
    const vt_tensor *t = p->tensor;
    dummy_rule rule = dummy_rule_of(t);
    int64_t at = t->rank == 1 ? p->row + row : (p->row + row) * t->dim[t->rank - 1] + p->col + col;
    dummy_fill(&rule, (uint64_t)at, 1, &v);
    return v;
}

static void check_dummy_matrix(const fixture *f, const vt_layout_entry *e, const vt_weight *w)
{
    uint16_t *got = read_back(f, w->part[0], w->packed_bytes), *at = got;
    assert_int_equal(w->packed_bytes, 2 * w->rows * w->cols);
    for (int32_t k = 0; k < e->n_parts; k++)
        for (int64_t r = 0; r < e->part[k].rows; r++)
            for (int64_t c = 0; c < e->part[k].cols; c++)
                if (*at++ != dummy_at(&e->part[k], r, c))
                    fail_msg("%s: part %d, row %d, column %d", e->label, (int)k, (int)r, (int)c);
    free(got);
}

static void check_dummy_layer(const fixture *f)
{
    static const char *const matrix[] = {"L00.qkv", "L00.o", "L00.gate+up", "L00.down"};
    vt_cuda_weights *w;
    vt_err err = {0};
    must(vt_cuda_weights_realise(f->c, f->layout, CONTEXT, 2, &w, &err), &err);
    for (size_t i = 0; i < sizeof matrix / sizeof *matrix; i++) {
        const vt_layout_entry *e = entry(f->layout, matrix[i]);
        check_dummy_matrix(f, e, vt_weights_matrix(&w->weights, e));
    }
    const vt_layout_entry *e = entry(f->layout, "L00.attn_norm");
    float *norm = read_back(f, w->weights.layer[0].tensor[VT_ROLE_ATTN_NORM],
                            (size_t)e->part[0].rows * 4);
    for (int64_t i = 0; i < e->part[0].rows; i++)
        assert_float_equal(norm[i], vt_bf16_to_f32(dummy_at(&e->part[0], i, 0)), 0);
    free(norm);
    vt_cuda_weights_free(f->c, w);
}

/* Whole rows are made by a kernel; a rank's columns on the host. */
static void test_weights_of_a_dummy_are_its_function_whole_or_in_ranges(void **state)
{
    (void)state;
    fixture f = open_fixture("dummy:smollm2-135m");
    while (f.layout->entry[f.layout->n - 1].layer != 0) /* layer 0 alone, and the embedding */
        f.layout->n--;
    check_dummy_layer(&f);
    second_rank(f.layout, false);
    check_dummy_layer(&f);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_of_files_are_what_the_implementations_pack),
        cmocka_unit_test(test_weights_of_a_rank_are_its_ranges),
        cmocka_unit_test(test_weights_of_a_dummy_are_its_function_whole_or_in_ranges),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
