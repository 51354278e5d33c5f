/* What rows say about how they cut their work (vt_impl.describe), for every case of every card that
 * a row supports: there is a shape and a number of items, the waves follow from these, and the
 * figures of a CUDA row agree with the launches that its run() makes on a lane that only
 * collects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/cut.h"
#include "ops/knobs.h"
#include "ops/linear/linear.h"

enum { MAX_RECORD = 64, FAKE_BASE = 1 << 20 };

/* ---- the args of a case as a GPU has them: other types, no data ---- */

static void *member(const void *args, const vt_operand *o)
{
    return *(void *const *)((const char *)args + o->offset);
}

static int32_t count_of(const void *args, const vt_operand *o)
{
    int32_t n;
    memcpy(&n, (const char *)args + o->count, sizeof n);
    return n;
}

/* Puts the weight into the form of `p`. False if the row does not read that form. */
static bool weight_on_cuda(vt_weight *w, const vt_packing *p, vt_arena *arena, char *data)
{
    if (!p || p->bytes(w) == 0)
        return false;
    vt_tensor *t = vt_arena_alloc(arena, 1, sizeof *t);
    *t = vt_tensor_2d(data, p->type ? p->type(w) : w->dtype, w->rows, w->cols);
    w->packed_bytes = p->bytes(w);
    w->packing = p;
    w->dtype = t->dtype;
    w->n_parts = 1;
    w->part[0] = t;
    memset(w->scale, 0, sizeof w->scale);
    return true;
}

/* Matrices of equal size one after the other, like a loader's. */
static bool weights_on_cuda(vt_weight *w, int32_t n, const vt_packing *p, vt_arena *arena)
{
    char *at = (char *)(uintptr_t)FAKE_BASE;
    for (int32_t i = 0; i < n; i++) {
        if (!weight_on_cuda(&w[i], p, arena, at))
            return false;
        at += w[i].packed_bytes;
    }
    return true;
}

static void tensor_on_cuda(vt_tensor *t, vt_dtype dtype)
{
    t->dtype = dtype;
    t->data = NULL;
}

static void kv_on_cuda(vt_tensor *t)
{
    tensor_on_cuda(t, t->dtype == VT_FP8_E4M3 ? VT_FP8_E4M3 : VT_BF16);
}

static void table_on_cuda(vt_tensor *t, const vt_packing *p)
{
    vt_weight w = {
        .part = {t}, .n_parts = 1, .rows = t->dim[0], .cols = t->dim[1], .dtype = t->dtype};
    if (p && p->type)
        tensor_on_cuda(t, p->type(&w));
}

static bool args_on_cuda(const vt_op *op, const vt_impl *impl, void *args, vt_arena *arena)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        void *m = member(args, o);
        if (!m)
            continue;
        if (o->kind == VT_OPERAND_ACTIVATION)
            tensor_on_cuda(m, VT_BF16);
        else if (o->kind == VT_OPERAND_F32)
            tensor_on_cuda(m, VT_F32);
        else if (o->kind == VT_OPERAND_KV)
            kv_on_cuda(m);
        else if (o->kind == VT_OPERAND_TABLE)
            table_on_cuda(m, impl->packing);
        else if (o->kind == VT_OPERAND_WEIGHT && !weights_on_cuda(m, 1, impl->packing, arena))
            return false;
        else if (o->kind == VT_OPERAND_WEIGHTS &&
                 !weights_on_cuda(m, count_of(args, o), impl->packing, arena))
            return false;
        else if (o->kind == VT_OPERAND_KV_LAYERS)
            for (int32_t k = 0; k < count_of(args, o); k++)
                kv_on_cuda((vt_tensor *)m + k);
    }
    return true;
}

/* ---- checks ---- */

static void check_cut(const char *op, const vt_impl *impl, const vt_case *c, const vt_cut *cut)
{
    if (cut->shape[0] == 0)
        fail_msg("%s, %s, %s: no shape", op, impl->name, c->name);
    if (cut->items <= 0)
        fail_msg("%s, %s, %s: %lld items", op, impl->name, c->name, (long long)cut->items);
    double lanes = (double)cut->workers * cut->resident;
    if (lanes == 0 ? cut->waves != 0 || cut->roles[0] == 0
                   : fabs(cut->waves * lanes - (double)cut->items) > 1e-6 * (double)cut->items)
        fail_msg("%s, %s, %s: %g waves of %lld items over %d x %d", op, impl->name, c->name,
                 cut->waves, (long long)cut->items, cut->workers, cut->resident);
}

/* One of the call's launches has a CTA for each item, or fewer: then every SM has the same number
 * of CTAs, which divide the items among themselves. Where the device alone knows how many items
 * there are, every SM has one CTA, even if there are fewer items. */
static bool launches_fit(const vt_cuda_lane *l, const vt_cut *cut)
{
    for (int32_t i = 0; i < l->n_record; i++) {
        const uint32_t *g = l->record[i].grid;
        int64_t ctas = (int64_t)g[0] * g[1] * g[2];
        bool even = ctas > 0 && ctas % cut->workers == 0;
        if (ctas == cut->items || (even && (ctas < cut->items || ctas == cut->workers)))
            return true;
    }
    return false;
}

static void check_launch(const vt_op *op, const vt_impl *impl, const vt_case *c, const void *args,
                         const vt_target *t, const vt_size *size, vt_cuda *cuda, const vt_cut *cut)
{
    static cuda_launch record[MAX_RECORD];
    vt_cuda_lane l = {.cuda = cuda, .collect = true, .record = record, .max_record = MAX_RECORD};
    vt_lane lane = {.target = t,
                    .size = size,
                    .workspace_bytes = t->workspace_bytes,
                    .cuda = &l,
                    .items = impl->plan ? impl->plan->items(args, t, size, NULL) : 0};
    if (impl->plan && impl->plan->most_side_bytes) /* copies: as many as the step has */
        lane.items = impl->plan->items(args, t, size, vt_op_batch(op, args));
    vt_status status = impl->run(args, &lane);
    if (status != VT_OK)
        fail_msg("%s, %s, %s: %s", op->name, impl->name, c->name, l.err.message);
    for (int32_t i = 0; i < l.n_record; i++)
        if (record[i].shared_bytes > (uint32_t)t->max_shared_bytes)
            fail_msg("%s, %s, %s: %s takes %u bytes of shared memory, a CTA has %d", op->name,
                     impl->name, c->name, record[i].spec.kernel, record[i].shared_bytes,
                     t->max_shared_bytes);
    if (cut->workers > 0 && !launches_fit(&l, cut))
        fail_msg("%s, %s, %s: %lld items in %g waves, but the first of %d grids is %u x %u x %u",
                 op->name, impl->name, c->name, (long long)cut->items, cut->waves, l.n_record,
                 record[0].grid[0], record[0].grid[1], record[0].grid[2]);
}

/* ---- every row, every case ---- */

static int32_t check_case(const vt_op *op, const vt_impl *impl, const vt_case *c, vt_target t,
                          vt_cuda *cuda)
{
    vt_arena arena;
    vt_tensor *outputs[VT_MAX_OUTPUTS];
    int32_t n_outputs = 0, done = 0;
    vt_arena_init(&arena, (size_t)1 << 31);
    void *args = op->make_args(c, 1, &arena, outputs, &n_outputs);
    assert_non_null(args);
    vt_size size = vt_size_of(vt_op_batch(op, args));
    bool made = cuda ? args_on_cuda(op, impl, args, &arena) : case_pack(op, impl, args, &arena);
    bool empty = outputs[0]->dim[0] == 0; /* such a call does nothing */
    if (made && !empty && vt_impl_fits(impl, args, &t, NULL)) {
        vt_cut cut = {.shape = ""};
        t.workspace_bytes = impl->workspace ? impl->workspace(args, &t) : 0;
        if (!impl->describe)
            fail_msg("%s, %s does not describe itself", op->name, impl->name);
        impl->describe(args, &t, vt_op_batch(op, args) ? &size : NULL, &cut);
        check_cut(op->name, impl, c, &cut);
        if (cuda)
            check_launch(op, impl, c, args, &t, &size, cuda, &cut);
        done = 1;
    }
    vt_arena_release(&arena);
    return done;
}

/* Dense products that the tensor-core rows support. The card has such cases only for benchmarks,
 * with sizes that would take minutes here. p as in linear.c; 8: the weight is a pair. */
static const vt_case dense[] = {
    {.name = "1 x 512 x 512", .p = {1, VT_BF16, 512, 256, 128, 128, LINEAR_NONE}},
    {.name = "17 x 512 x 512", .p = {17, VT_BF16, 512, 256, 128, 128, LINEAR_NONE}},
    {.name = "64 x 2048 x 192", .p = {64, VT_BF16, 2048, 192, 0, 0, LINEAR_NONE}},
    {.name = "100 x 512 x 512 SwiGLU", .p = {100, VT_BF16, 512, 256, 256, 0, LINEAR_SWIGLU, 8}},
    {.name = "300 x 128 x 1024", .p = {300, VT_BF16, 128, 1024, 0, 0, LINEAR_NONE}},
    {.name = "600 x 128 x 1024 SwiGLU", .p = {600, VT_BF16, 128, 512, 512, 0, LINEAR_SWIGLU, 8}},
};

static void check_device(vt_target t, vt_cuda *cuda)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        const vt_impl *const *const table[] = {(*op)->impls, (*op)->variants};
        for (int k = 0; k < 2; k++)
            for (const vt_impl *const *impl = table[k]; impl && *impl; impl++) {
                int32_t done = 0;
                vt_case c;
                for (int32_t i = 0; (*impl)->device == t.device && vt_op_case(*op, i, &c); i++)
                    if (!c.bench)
                        done += check_case(*op, *impl, &c, t, cuda);
                for (size_t i = 0; *op == &linear_op && (*impl)->device == t.device &&
                                   i < sizeof dense / sizeof *dense;
                     i++)
                    done += check_case(*op, *impl, &dense[i], t, cuda);
                if (done > 0)
                    print_message("%s, %s: %d cases\n", (*op)->name, (*impl)->name, done);
            }
    }
}

static void test_rows_of_the_cpu_describe_every_case(void **state)
{
    (void)state;
    vt_limits limits = case_limits(3);
    check_device(vt_target_cpu(vt_cpu_get()->level, &limits), NULL);
}

/* Items of a decode of 3 KV heads on 2 workers: tasks, or chunks of 256 keys if tasks are few. */
static void test_few_decodes_are_counted_by_their_chunks(void **state)
{
    static const struct {
        const char *shape;
        int64_t items;
    } row[] = {{"seqs=1,kv_len=200,heads=9,kv_heads=3,head_dim=64", 3},
               {"seqs=1,kv_len=2048,heads=9,kv_heads=3,head_dim=64", 24},
               {"seqs=2,kv_len=2049,heads=9,kv_heads=3,head_dim=64", 54},
               {"seqs=3,kv_len=2048,heads=9,kv_heads=3,head_dim=64", 9}};
    (void)state;
    const vt_op *op = vt_op_find("attention_decode");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_arena arena;
        vt_tensor *outputs[VT_MAX_OUTPUTS];
        int32_t n_outputs = 0;
        vt_case c;
        vt_err err;
        vt_arena_init(&arena, (size_t)1 << 28);
        assert_int_equal(vt_case_from_text(op, row[i].shape, &c, &err), VT_OK);
        void *args = op->make_args(&c, 1, &arena, outputs, &n_outputs);
        for (const vt_impl *const *impl = op->impls; *impl; impl++) {
            on_cpu call;
            if ((*impl)->device != VT_DEVICE_CPU || !(*impl)->plan)
                continue;
            assert_int_equal(on_cpu_make(&call, op, *impl, args, 2, &err), VT_OK);
            vt_cut cut = {.shape = ""};
            (*impl)->describe(args, &call.target, &call.size, &cut);
            vt_cut_planned(&cut, call.items,
                           (*impl)->plan->items(args, &call.target, &call.size, NULL));
            assert_int_equal(cut.items, row[i].items);
            on_cpu_release(&call);
        }
        vt_arena_release(&arena);
    }
}

static void check_gpu(const char *arch, int32_t level, int32_t sms, int32_t shared,
                      bool deterministic)
{
    vt_err err = {0};
    vt_cuda *cuda;
    vt_target t = {.device = VT_DEVICE_CUDA,
                   .limits = case_limits(0),
                   .level = level,
                   .sm_count = sms,
                   .max_shared_bytes = shared,
                   .deterministic = deterministic,
                   .cublaslt = true};
    vt_target_turn_knobs(&t, 1);
    if (vt_cuda_offline(arch, level, sms, &cuda, &err) != VT_OK)
        fail_msg("%s", err.message);
    check_device(t, cuda);
    vt_cuda_close(cuda);
}

/* Launches of gemm_sm90 in clusters of two CTAs, for SwiGLU of so many tokens on so many SMs. */
static int32_t clusters_of(const char *shape, int32_t sms)
{
    static cuda_launch record[MAX_RECORD];
    vt_cuda *cuda;
    vt_err err = {0};
    vt_case c;
    vt_arena arena;
    vt_tensor *outputs[VT_MAX_OUTPUTS];
    int32_t n_outputs = 0, found = 0;
    vt_target t = {.device = VT_DEVICE_CUDA,
                   .level = 90,
                   .sm_count = sms,
                   .max_shared_bytes = 227 << 10,
                   .limits = case_limits(0)};
    assert_int_equal(vt_cuda_offline("sm_90a", 90, sms, &cuda, &err), VT_OK);
    vt_cuda_lane l = {.cuda = cuda, .collect = true, .record = record, .max_record = MAX_RECORD};
    vt_lane lane = {.target = &t, .cuda = &l};
    vt_arena_init(&arena, (size_t)1 << 28);
    assert_int_equal(vt_case_from_text(&linear_op, shape, &c, &err), VT_OK);
    void *args = linear_op.make_args(&c, 1, &arena, outputs, &n_outputs);
    for (const vt_impl *const *impl = linear_op.impls; *impl; impl++)
        if (!strcmp((*impl)->name, "gemm_sm90")) {
            assert_true(args_on_cuda(&linear_op, *impl, args, &arena));
            assert_int_equal((*impl)->run(args, &lane), VT_OK);
        }
    assert_true(l.n_record > 0);
    for (int32_t i = 0; i < l.n_record; i++)
        if (record[i].cluster == 2) {
            found++;
            assert_int_equal(record[i].grid[0], sms / 2 * 2);
        }
    vt_arena_release(&arena);
    vt_cuda_close(cuda);
    return found;
}

static void test_products_of_many_waves_run_in_clusters(void **state)
{
    static const char shape[] = "tokens=600,type=bf16,cols=64,rows=1672,rows2=1672,epilogue=swiglu";
    (void)state;
    assert_int_equal(clusters_of(shape, 4), 1); /* 70 tiles, 17.5 waves */
    assert_int_equal(clusters_of(shape, 3), 1);
    assert_int_equal(clusters_of(shape, 1), 0);
    assert_int_equal(clusters_of(shape, 5), 0);
    assert_int_equal(clusters_of(shape, 132), 0);
}

static void test_rows_of_a_gpu_describe_what_they_launch(void **state)
{
    (void)state;
    check_gpu("sm_90a", 90, 132, 227 << 10, false);
    check_gpu("sm_80", 80, 108, 163 << 10, false);
    check_gpu("sm_86", 80, 28, 99 << 10, false);
}

static void test_rows_of_a_gpu_describe_what_they_launch_in_order(void **state)
{
    (void)state;
    check_gpu("sm_90a", 90, 132, 227 << 10, true);
    check_gpu("sm_80", 80, 108, 163 << 10, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_the_cpu_describe_every_case),
        cmocka_unit_test(test_few_decodes_are_counted_by_their_chunks),
        cmocka_unit_test(test_products_of_many_waves_run_in_clusters),
        cmocka_unit_test(test_rows_of_a_gpu_describe_what_they_launch),
        cmocka_unit_test(test_rows_of_a_gpu_describe_what_they_launch_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
