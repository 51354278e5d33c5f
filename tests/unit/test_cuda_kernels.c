/* Kernels without a GPU: a dry run of the CUDA executor names every instance that the models of
 * this program can need, and NVRTC compiles them, for sm_80 and for sm_90a. The test fails on
 * messages that mean a slow kernel: spilled registers, and ptxas's notes that it serialised wgmma
 * or ignored setmaxnreg. It is skipped if NVRTC is not installed, unless VITRINE_REQUIRE_NVRTC=1.
 *
 * Models and KV types have most kernels in common. They share a cubin cache, which is empty at
 * first and is removed when the program ends. Under a sanitizer only the dry runs on the host take
 * place: NVRTC is not built with it, and compiling would show nothing new. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/roofs/roofs_cuda.h"
#include "exec/cuda.h"
#include "model/load.h"
#include "ops/cuda_impls.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_store/rope_store.h"

/* Shapes that reach every kernel: groups of 2 and 3 heads, head_dim 128 and 64, q/k norms. Layers
 * repeat, so the number of them costs nothing. */
static const char *const models[] = {"dummy:smollm2-135m", "dummy:qwen3-0.6b"};

static bool have_nvrtc(void)
{
    cuda_nvrtc nvrtc;
    vt_err err = {0};
    if (cuda_nvrtc_open(&nvrtc, &err) == VT_OK)
        return true;
    const char *require = getenv("VITRINE_REQUIRE_NVRTC");
    if (require && strcmp(require, "1") == 0)
        fail_msg("VITRINE_REQUIRE_NVRTC=1 and %s", err.message);
    print_message("skipped: %s\n", err.message);
    return false;
}

#ifndef VT_SANITIZE
static void check_log(const char *name, const jit_cubin *c)
{
    static const char *const bad[] = {"warning", "Potential Performance Loss", "C7504", "C7508",
                                      "C7520"};
    assert_non_null(c);
    /* a stamped kernel runs in few steps: the sampler's spills 22 */
    bool may = strstr(name, JIT_STAMPED) && strncmp(name, "sample<", 7) == 0;
    if (c->spill_bytes > (may ? 32 : 0))
        fail_msg("%s spills %d bytes of registers", name, c->spill_bytes);
    for (size_t i = 0; c->log && i < sizeof bad / sizeof *bad; i++) /* NULL: out of the cache */
        if (strstr(c->log, bad[i]))
            fail_msg("%s: the compiler said: %.900s", name, c->log);
}
#endif

/* Compiles all kernels that were named; returns how many. */
static int32_t compile_named(vt_cuda *cuda)
{
    int32_t n = vt_jit_count(cuda->jit);
#ifndef VT_SANITIZE
    vt_err err = {0};
    vt_jit_set_cache(cuda->jit, true);
    if (vt_jit_compile(cuda->jit, 0, NULL, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(vt_jit_count(cuda->jit), n);
    for (int32_t i = 0; i < n; i++)
        check_log(vt_jit_name(cuda->jit, i), vt_jit_get(cuda->jit, i));
#endif
    return n;
}

/* Returns true if two names are equal up to `end` of the first, except for the digit that is the
 * number of warps. */
static bool same_but_warps(const char *a, const char *end, const char *b)
{
    static const char key[] = ",warps=";
    const char *digit = strstr(a, key);
    ptrdiff_t at = digit ? digit + strlen(key) - a : 0;
    return digit && strncmp(a, b, (size_t)at) == 0 &&
           strncmp(a + at + 1, b + at + 1, (size_t)(end - a - at - 1)) == 0;
}

/* For each instance of decode attention with code for shared pages there is one without, which is
 * much smaller: an SM does not have to fetch that code. Returns the number of such pairs. */
static int32_t check_without_shared(const vt_jit *j, int32_t n)
{
    static const char key[] = "shared=1";
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        const char *name = vt_jit_name(j, i), *at = strstr(name, key);
        if (!at)
            continue;
        int32_t k = 0;
        const char *end = at + strlen(key) - 1;
        while (k < n && (k == i || !same_but_warps(name, end, vt_jit_name(j, k))))
            k++;
        if (k == n)
            fail_msg("%s: there is none with shared=0", name);
#ifndef VT_SANITIZE
        if (3 * vt_jit_get(j, k)->size > 2 * vt_jit_get(j, i)->size)
            fail_msg("%s has %zu bytes, %s %zu", vt_jit_name(j, k), vt_jit_get(j, k)->size, name,
                     vt_jit_get(j, i)->size);
#endif
        found++;
    }
    return found;
}

static void compile_all(const char *arch, int32_t level, vt_dtype kv, bool stamps,
                        const char *const *name, size_t n_models)
{
    vt_limits limits = {.max_tokens = 512,
                        .max_seqs = 256,
                        .max_rows = 256,
                        .max_context = 4096,
                        .page_size = 64,
                        .decode_tokens = VT_DECODE_MOST};
    if (stamps) /* some of each kind are enough */
        limits = (vt_limits){.max_tokens = 128,
                             .max_seqs = 1,
                             .max_rows = 1,
                             .max_context = 4096,
                             .page_size = 64,
                             .decode_tokens = 1};
    int32_t total = 0;
    for (size_t m = 0; m < n_models; m++) {
        vt_err err = {0};
        vt_model *model;
        vt_cuda *cuda;
        if (vt_model_load(name[m], &model, &err) != VT_OK ||
            vt_executor_cuda_collect(model, &limits, kv, arch, level, stamps, &cuda, &err) != VT_OK)
            fail_msg("%s: %s", name[m], err.message);
        roofs_cuda_collect(cuda);
        int32_t n = compile_named(cuda);
        assert_true(n > 10);
        if (strncmp(name[m], "dummy:", 6) == 0 && !stamps)
            assert_int_equal(check_without_shared(cuda->jit, n), 1);
        total += n;
        vt_cuda_close(cuda);
        vt_model_free(model);
    }
    print_message("%s, level %d: %d kernels\n", arch, level, total);
}

/* ---- quantised weights: every type at a row of 4096, where registers are scarcest ---- */

/* Collects the kernels of the row that the card takes for the call. */
static void run_card(vt_cuda_lane *lane, const vt_target *t, const vt_op *op, const void *args,
                     int32_t tokens)
{
    vt_size size = {.tokens = tokens, .seqs = tokens, .rows = tokens};
    const vt_impl *impl = vt_op_select(op, args, t, &size);
    vt_lane l = {.target = t, .size = &size, .workspace_bytes = t->workspace_bytes, .cuda = lane};
    assert_non_null(impl);
    assert_string_not_equal(impl->name, "any");
    assert_int_equal(impl->run(args, &l), VT_OK);
}

static vt_target target_of(int32_t level)
{
    return (vt_target){.device = VT_DEVICE_CUDA,
                       .limits = {.max_tokens = 4096, .max_seqs = 256, .max_rows = 256},
                       .workspace_bytes = 64 << 20,
                       .level = level,
                       .sm_count = 132,
                       .max_shared_bytes = level >= 90 ? 227 << 10 : 163 << 10};
}

static void run_linear(vt_cuda_lane *lane, const vt_target *t, vt_dtype type, int32_t tokens,
                       int64_t rows, bool pair)
{
    enum { COLS = 4096 };
    vt_tensor w = vt_tensor_2d(NULL, type, rows, COLS),
              x = vt_tensor_2d(NULL, VT_BF16, tokens, COLS),
              y = vt_tensor_2d(NULL, VT_BF16, tokens, pair ? rows / 2 : rows);
    vt_weight weight = {.part = {&w},
                        .n_parts = 1,
                        .paired = pair,
                        .rows = rows,
                        .cols = COLS,
                        .dtype = type,
                        .packing = &linear_cuda_packing};
    linear_args a = {.x = &x,
                     .w = &weight,
                     .residual = pair ? NULL : &y,
                     .y = &y,
                     .epilogue = pair ? LINEAR_SWIGLU : LINEAR_NONE,
                     .scale = 1};
    run_card(lane, t, &linear_op, &a, tokens);
    vt_tensor norm = {.dtype = VT_F32, .rank = 1, .dim = {COLS}, .row_stride = COLS};
    a.before = &x;
    a.norm = &norm;
    a.residual = NULL;
    if (tokens == 1) /* that makes the norm, too */
        run_card(lane, t, &linear_op, &a, tokens);
    const int32_t *ids = NULL;
    embed_args e = {.table = &w, .tokens = &ids, .y = &x, .scale = 1};
    run_card(lane, t, &embed_op, &e, tokens);
}

/* Experts of 2048 columns, and of 768 on their way down; of relu2 they have no gate. */
static void run_experts(vt_cuda_lane *lane, const vt_target *t, vt_dtype type, vt_activation act,
                        int32_t tokens)
{
    enum { N = 4, HIDDEN = 2048, FFN = 768, USED = 2 };
    bool gates = act != VT_ACT_RELU2;
    int64_t rows = gates ? 2 * FFN : FFN;
    vt_tensor x = vt_tensor_2d(NULL, VT_BF16, tokens, HIDDEN),
              expert = vt_tensor_2d(NULL, VT_I32, tokens, USED),
              route = vt_tensor_2d(NULL, VT_F32, tokens, USED),
              up = vt_tensor_2d(NULL, type, rows, HIDDEN),
              down = vt_tensor_2d(NULL, type, HIDDEN, FFN);
    vt_weight gate_up[N], back[N];
    for (int e = 0; e < N; e++) {
        gate_up[e] = (vt_weight){.part = {&up},
                                 .n_parts = 1,
                                 .paired = gates,
                                 .rows = rows,
                                 .cols = HIDDEN,
                                 .dtype = type,
                                 .packing = &linear_cuda_packing};
        back[e] = (vt_weight){.part = {&down},
                              .n_parts = 1,
                              .rows = HIDDEN,
                              .cols = FFN,
                              .dtype = type,
                              .packing = &linear_cuda_packing};
    }
    moe_linear_args a = {.x = &x,
                         .expert = &expert,
                         .weight = &route,
                         .gate_up = gate_up,
                         .down = back,
                         .n_experts = N,
                         .activation = act,
                         .y = &x};
    run_card(lane, t, &moe_linear_op, &a, tokens);
}

static void compile_quantised(const char *arch, int32_t level, const vt_dtype *type, int32_t n)
{
    vt_err err = {0};
    vt_cuda *cuda;
    assert_int_equal(vt_cuda_offline(arch, level, 132, &cuda, &err), VT_OK);
    vt_cuda_lane lane = {.cuda = cuda, .collect = true, .pdl = level >= 90};
    vt_target t = target_of(level);
    for (int32_t i = 0; i < n; i++) {
        run_linear(&lane, &t, type[i], 1, 1024, false); /* 8 rows a CTA */
        run_linear(&lane, &t, type[i], 1, 8192, false);
        run_linear(&lane, &t, type[i], 1, 8192, true);
        run_linear(&lane, &t, type[i], 4, 8192, true);
        run_linear(&lane, &t, type[i], 8, 8192, true);
        run_linear(&lane, &t, type[i], 16, 8192, false);
        run_linear(&lane, &t, type[i], 32, 8192, true);
        run_linear(&lane, &t, type[i], 65, 8192, true);
        run_experts(&lane, &t, type[i], VT_ACT_SILU, 1);
        run_experts(&lane, &t, type[i], VT_ACT_SILU, 6);
        run_experts(&lane, &t, type[i], VT_ACT_SILU, 20);
    }
    assert_true(compile_named(cuda) >= 15 * n); /* these, norms, panels and the embedding */
    vt_cuda_close(cuda);
}

static void test_quantised_kernels_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    static const vt_dtype every[] = {VT_FP8_E4M3, VT_Q8_0, VT_Q4_0, VT_Q4_1, VT_Q5_0,
                                     VT_Q5_1,     VT_Q4_K, VT_Q5_K, VT_Q6_K},
                          some[] = {VT_FP8_E4M3, VT_Q5_1, VT_Q4_K};
    if (!have_nvrtc())
        skip();
    compile_quantised("sm_90a", 90, every, sizeof every / sizeof *every);
    compile_quantised("sm_80", 80, some, sizeof some / sizeof *some);
}

/* ---- quantised weights in wgmma's registers: every width of tile ---- */

/* Runs a matrix of `rows` x 4096 for up to 256 tokens. */
static void run_in_registers(vt_cuda_lane *lane, const vt_target *t, vt_dtype type, int64_t rows,
                             bool pair)
{
    enum { COLS = 4096, TOKENS = 256 };
    vt_tensor w = vt_tensor_2d(NULL, type, rows, COLS),
              x = vt_tensor_2d(NULL, VT_BF16, TOKENS, COLS),
              y = vt_tensor_2d(NULL, VT_BF16, TOKENS, pair ? rows / 2 : rows);
    vt_weight weight = {.part = {&w},
                        .n_parts = 1,
                        .paired = pair,
                        .rows = rows,
                        .cols = COLS,
                        .dtype = type,
                        .packing = &linear_cuda_packing,
                        .packed_in_blocks = type == VT_FP8_E4M3};
    linear_args a = {.x = &x,
                     .w = &weight,
                     .residual = pair ? NULL : &y,
                     .y = &y,
                     .epilogue = pair ? LINEAR_SWIGLU : LINEAR_NONE,
                     .scale = 1};
    vt_size size = {.tokens = TOKENS, .seqs = TOKENS, .rows = TOKENS};
    vt_lane l = {.target = t, .size = &size, .workspace_bytes = t->workspace_bytes, .cuda = lane};
    assert_true(vt_impl_fits(&linear_cuda_quant_sm90, &a, t, &size));
    assert_int_equal(linear_cuda_quant_sm90.run(&a, &l), VT_OK);
    if (type != VT_FP8_E4M3)
        return;
    assert_true(vt_impl_fits(&linear_cuda_fp8_sm90, &a, t, &size));
    assert_int_equal(linear_cuda_fp8_sm90.run(&a, &l), VT_OK);
    assert_true(vt_impl_fits(&linear_cuda_gemm_fp8_sm90, &a, t, &size));
    assert_int_equal(linear_cuda_gemm_fp8_sm90.run(&a, &l), VT_OK);
}

/* How a matrix of Q4_K is cut for a number of tokens on 132 SMs, and the row that runs it. */
static const vt_impl *cut_in_registers(int64_t rows, int64_t cols, int64_t tokens, vt_cut *cut)
{
    vt_tensor x = vt_tensor_2d(NULL, VT_BF16, tokens, cols),
              y = vt_tensor_2d(NULL, VT_BF16, tokens, rows);
    vt_weight weight = {.n_parts = 1,
                        .rows = rows,
                        .cols = cols,
                        .dtype = VT_Q4_K,
                        .packing = &linear_cuda_packing};
    linear_args a = {.x = &x, .w = &weight, .y = &y, .scale = 1};
    vt_target t = target_of(90);
    vt_size size = {.tokens = tokens, .seqs = tokens, .rows = tokens};
    t.sm_count = 132;
    *cut = (vt_cut){.shape = ""};
    linear_cuda_quant_sm90.describe(&a, &t, &size, cut);
    return vt_op_select(&linear_op, &a, &t, &size);
}

/* Property: of tiles of 128 and of 192 rows those are taken with which the SM with the most CTAs
 * has less to do, as measured on an H200. Beyond 128 tokens smaller weights are for panels, unless
 * tiles of 192 rows fill the SMs. */
static void test_quantised_tiles_when_tokens_are_many_then_as_high_as_evens_out_sms(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, cols, tokens, high, split;
        bool runs;
    } want[] = {
        {24576, 4096, 64, 128, 2, true},  /* 8B gate+up */
        {24576, 4096, 128, 192, 1, true}, /* a wave of 128 CTAs; 384 of two parts make three */
        {24576, 4096, 256, 192, 1, true}, /* two waves; 384 make three */
        {6144, 4096, 128, 128, 2, true},  /* qkv */
        {6144, 4096, 256, 192, 2, true},  /* a wave of 128 halves, where 96 are whole tiles */
        {4096, 4096, 256, 128, 2, false}, /* o: panels */
        {4096, 12288, 256, 128, 2, true}, /* down */
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        vt_cut cut;
        const vt_impl *impl = cut_in_registers(want[i].rows, want[i].cols, want[i].tokens, &cut);
        assert_int_equal(cut.tile[1], want[i].high);
        assert_int_equal(cut.split, want[i].split);
        assert_int_equal(impl == &linear_cuda_quant_sm90, want[i].runs);
    }
}

static void test_quantised_wgmma_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    static const vt_dtype type[] = {VT_FP8_E4M3, VT_Q8_0, VT_Q5_1, VT_Q4_K, VT_Q6_K};
    vt_err err = {0};
    vt_cuda *cuda;
    if (!have_nvrtc())
        skip();
    assert_int_equal(vt_cuda_offline("sm_90a", 90, 132, &cuda, &err), VT_OK);
    vt_cuda_lane lane = {.cuda = cuda, .collect = true, .pdl = true};
    vt_target t = target_of(90);
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        run_in_registers(&lane, &t, type[i], 8192, i % 2 == 1);
        run_in_registers(&lane, &t, type[i], 6144, i % 2 == 0); /* tiles of 192 rows, too */
    }
    run_experts(&lane, &t, VT_FP8_E4M3, VT_ACT_SILU, 400);
    run_experts(&lane, &t, VT_Q4_K, VT_ACT_SILU, 400);
    run_experts(&lane, &t, VT_Q8_0, VT_ACT_RELU2, 400);
    run_experts(&lane, &t, VT_BF16, VT_ACT_RELU2, 400);
    assert_true(compile_named(cuda) >= 3 * (int32_t)(sizeof type / sizeof *type) + 24);
    vt_cuda_close(cuda);
}

/* ---- the kernels that --deterministic takes in place of others ---- */

static void compile_deterministic(const char *arch, int32_t level)
{
    /* weight rows: 8, 4, 2 and 1 segments of K */
    static const int32_t rows[] = {1024, 1600, 3200, 6400}, tokens[] = {1, 9, 40, 100, 300, 3000};
    vt_err err = {0};
    vt_cuda *cuda;
    assert_int_equal(vt_cuda_offline(arch, level, 132, &cuda, &err), VT_OK);
    vt_cuda_lane lane = {.cuda = cuda, .collect = true, .pdl = level >= 90};
    vt_target t = target_of(level);
    t.deterministic = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
            run_linear(&lane, &t, VT_BF16, tokens[k], rows[i], false);
            run_linear(&lane, &t, VT_BF16, tokens[k], rows[i], true);
        }
    assert_true(compile_named(cuda) > 20);
    vt_cuda_close(cuda);
}

static void test_deterministic_kernels_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_deterministic("sm_90a", 90);
    compile_deterministic("sm_80", 80);
}

/* ---- variants: rows that no engine takes ---- */

/* Collects the kernels of all of the card's variants; each must support the call. */
static void run_variants(vt_cuda_lane *lane, const vt_target *t, const vt_op *op, const void *args,
                         int32_t tokens)
{
    vt_size size = {.tokens = tokens, .seqs = tokens, .rows = tokens, .prefills = tokens};
    for (const vt_impl *const *i = op->variants; *i; i++) {
        vt_lane l = {.target = t, .size = &size, .cuda = lane};
        if ((*i)->device != VT_DEVICE_CUDA)
            continue;
        if (!vt_impl_fits(*i, args, t, &size))
            fail_msg("%s, %s does not support the call", op->name, (*i)->name);
        assert_int_equal((*i)->run(args, &l), VT_OK);
    }
}

static void collect_variants(vt_cuda_lane *lane, const vt_target *t, vt_dtype kv)
{
    enum { TOKENS = 64, HIDDEN = 4096, HEADS = 32, KV_HEADS = 8, DIM = 128, PAGE = 64 };
    const int32_t *ids = NULL;
    vt_batch batch = {.n_tokens = TOKENS};
    vt_tensor x = vt_tensor_2d(NULL, VT_BF16, TOKENS, HIDDEN), y = x, table = x,
              k = vt_tensor_2d(NULL, VT_BF16, TOKENS, KV_HEADS * DIM),
              cos_sin = vt_tensor_2d(NULL, VT_F32, TOKENS, DIM);
    vt_tensor weight = {.dtype = VT_F32, .rank = 1, .dim = {HIDDEN}, .row_stride = HIDDEN};
    vt_tensor pool = {
        .dtype = kv, .rank = 4, .dim = {TOKENS, KV_HEADS, PAGE, DIM}, .row_stride = DIM};
    embed_args embed = {.table = &table, .tokens = &ids, .y = &y, .scale = 1};
    rmsnorm_args add = {.x = &x, .weight = &weight, .residual = &y, .y = &y, .eps = 1e-5f};
    kv_store_args store = {.batch = &batch,
                           .k = &k,
                           .v = &k,
                           .k_pool = &pool,
                           .v_pool = &pool,
                           .k_scale = 1,
                           .v_scale = 1};
    rope_args rope = {.batch = &batch,
                      .q = &x,
                      .k = &k,
                      .head_dim = DIM,
                      .dims = DIM,
                      .interleaved = true,
                      .cos_sin = &cos_sin};
    rope_store_args both = {.rope = rope, .store = store};
    run_variants(lane, t, &embed_op, &embed, TOKENS);
    run_variants(lane, t, &add_rmsnorm_op, &add, TOKENS);
    run_variants(lane, t, &kv_store_op, &store, TOKENS);
    run_variants(lane, t, &rope_op, &rope, TOKENS);
    run_variants(lane, t, &rope_store_op, &both, TOKENS);
}

/* sm_100 is there for its loads of 32 bytes. */
static void test_variants_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int32_t level;
        vt_dtype kv;
    } at[] = {{"sm_90a", 90, VT_BF16}, {"sm_80", 80, VT_FP8_E4M3}, {"sm_100", 80, VT_BF16}};
    if (!have_nvrtc())
        skip();
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        vt_err err = {0};
        vt_cuda *cuda;
        assert_int_equal(vt_cuda_offline(at[i].arch, at[i].level, 132, &cuda, &err), VT_OK);
        vt_cuda_lane lane = {.cuda = cuda, .collect = true, .pdl = at[i].level >= 90};
        vt_target t = target_of(at[i].level);
        collect_variants(&lane, &t, at[i].kv);
        assert_true(compile_named(cuda) >= 16);
        vt_cuda_close(cuda);
    }
}

/* ---- norms: the grid counts on a number of CTAs that fit ---- */

static void check_norm_fits(vt_cuda *cuda, int32_t kernel, const vt_cut *cut, uint32_t threads)
{
#ifndef VT_SANITIZE
    const jit_cubin *c = vt_jit_get(cuda->jit, kernel);
    int64_t registers = (c->registers + 7) / 8 * 8;
    if (registers * threads * cut->resident > 65536)
        fail_msg("%s: %d CTAs of %u threads with %d registers do not fit on an SM",
                 vt_jit_name(cuda->jit, kernel), cut->resident, threads, c->registers);
#else
    (void)cuda, (void)kernel, (void)cut, (void)threads;
#endif
}

static void compile_norm(const char *arch, int32_t level, int32_t hidden, bool add)
{
    enum { TOKENS = 4096 };
    vt_err err = {0};
    vt_cuda *cuda;
    assert_int_equal(vt_cuda_offline(arch, level, 132, &cuda, &err), VT_OK);
    cuda_launch record[1];
    vt_cuda_lane l = {
        .cuda = cuda, .collect = true, .pdl = level >= 90, .record = record, .max_record = 1};
    vt_target t = target_of(level);
    vt_tensor x = vt_tensor_2d(NULL, VT_BF16, TOKENS, hidden), y = x, residual = x;
    vt_tensor weight = {.dtype = VT_F32, .rank = 1, .dim = {hidden}, .row_stride = hidden};
    rmsnorm_args a = {
        .x = &x, .weight = &weight, .y = &y, .residual = add ? &residual : NULL, .eps = 1e-5f};
    const vt_impl *row = add ? &add_rmsnorm_cuda_impl : &rmsnorm_cuda_impl;
    vt_lane lane = {.target = &t, .cuda = &l};
    vt_cut cut = {.shape = ""};
    row->describe(&a, &t, NULL, &cut);
    assert_int_equal(row->run(&a, &lane), VT_OK);
    assert_int_equal(l.n_record, 1);
    assert_int_equal(compile_named(cuda), 1);
    check_norm_fits(cuda, 0, &cut, record[0].threads);
    vt_cuda_close(cuda);
}

/* Sizes of models, the largest of each number of threads, and sizes that are no multiple of 8.
 * Beyond 16,384 a thread's elements do not fit into its registers. */
static void test_norms_when_compiled_for_the_ctas_of_their_grids_then_no_spill(void **state)
{
    (void)state;
    static const int32_t hidden[] = {20,   64,   128,   264,   576,  1024, 2048, 2560,
                                     2880, 3584, 4096,  4608,  5120, 5376, 6144, 7168,
                                     8192, 9216, 12288, 16384, 1027, 2050, 4097, 8191};
    if (!have_nvrtc())
        skip();
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (int add = 0; add < 2; add++) {
            compile_norm("sm_90a", 90, hidden[i], add);
            compile_norm("sm_80", 80, hidden[i], add);
        }
}

static void test_kernels_when_compiled_for_sm_90a_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_all("sm_90a", 90, VT_BF16, false, models, 2);
    compile_all("sm_90a", 90, VT_FP8_E4M3, false, models, 2);
}

/* The twins that a stamped step launches. */
static void test_kernels_when_stamped_then_few_spills_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_all("sm_90a", 90, VT_BF16, true, models, 1);
}

/* Texts with several entries, of which one is stamped. */
static void test_kernels_when_stamped_beside_other_entries_then_they_compile(void **state)
{
#define STAMPED_TWIN \
    {"level", 90}, {"pdl", 1}, { JIT_STAMPED, 7 }
#define SUM(form)                                                                         \
    JIT_SPEC("all_reduce.cu", "all_reduce_" form, {"ranks", 2}, {"vec", 8}, {"early", 1}, \
             {"staged", 0}, STAMPED_TWIN)
#define SUM_AND_NORM(form)                                                                        \
    JIT_SPEC("all_reduce_rmsnorm.cu", "all_reduce_rmsnorm_" form, {"ranks", 2}, {"hidden", 1024}, \
             {"threads", 128}, {"plus_one", 0}, {"early", 1}, STAMPED_TWIN)
#define SHARDED_NORM(form)                                                            \
    JIT_SPEC("sharded_rmsnorm.cu", "sharded_rmsnorm_" form, {"ranks", 2}, {"vec", 8}, \
             {"plus_one", 0}, {"early", 1}, {"staged", 0}, STAMPED_TWIN)
#define PART_OF_SUM(form)                                                                         \
    JIT_SPEC("reduce_scatter.cu", "reduce_scatter_" form, {"ranks", 2}, {"vec", 8}, {"early", 1}, \
             {"staged", 0}, STAMPED_TWIN)
    const jit_spec all[] = {
        SUM("push"),
        SUM("one_shot"),
        SUM("two_shot"),
        SUM_AND_NORM("push"),
        SUM_AND_NORM("one_shot"),
        SHARDED_NORM("push"),
        SHARDED_NORM("one_shot"),
        PART_OF_SUM("push"),
        PART_OF_SUM("one_shot"),
        JIT_SPEC("sigmoid_gate.cu", "head_gate", {"n", 1024}, {"dim", 128}, {"vec", 8},
                 {"split", 0}, STAMPED_TWIN),
        JIT_SPEC("sigmoid_gate.cu", "row_gate", STAMPED_TWIN),
    };
    vt_err err = {0};
    vt_cuda *cuda;
    (void)state;
    if (!have_nvrtc())
        skip();
    assert_int_equal(vt_cuda_offline("sm_90a", 90, 132, &cuda, &err), VT_OK);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(vt_jit_want(cuda->jit, &all[i]), i);
    assert_int_equal(compile_named(cuda), sizeof all / sizeof *all);
    vt_cuda_close(cuda);
}

static void test_kernels_when_compiled_for_sm_80_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_all("sm_80", 80, VT_BF16, false, models, 1);
    compile_all("sm_80", 80, VT_FP8_E4M3, false, models + 1, 1);
}

/* Latents and wide heads: every number of tiles that a CTA has, decodes and prompts. */
static void compile_wide(const char *arch, int32_t level, int32_t heads, int32_t kv_heads,
                         int32_t dim, int32_t v_dim)
{
    vt_err err = {0};
    vt_cuda *cuda;
    assert_int_equal(vt_cuda_offline(arch, level, 132, &cuda, &err), VT_OK);
    vt_cuda_lane lane = {.cuda = cuda, .collect = true, .pdl = level >= 90};
    vt_target t = target_of(level);
    vt_batch batch = {.n_seqs = 1};
    vt_tensor q = vt_tensor_2d(NULL, VT_BF16, 8, heads * dim), o = q,
              pool = {.dtype = VT_BF16, .dim = {8, kv_heads, 64, dim}};
    attention_args a = {.batch = &batch,
                        .q = &q,
                        .k_pool = &pool,
                        .v_pool = &pool,
                        .o = &o,
                        .heads = heads,
                        .kv_heads = kv_heads,
                        .head_dim = dim,
                        .v_dim = v_dim,
                        .scale = 1,
                        .k_scale = 1,
                        .v_scale = 1};
    for (int32_t tokens = 0; tokens <= 8; tokens = tokens ? 2 * tokens : 1) {
        vt_size size = {.tokens = 8,
                        .seqs = 1,
                        .decodes = tokens > 0,
                        .prefills = tokens == 0,
                        .decode_tokens = tokens};
        const vt_op *op = tokens ? &attention_decode_op : &attention_prefill_op;
        const vt_impl *impl = vt_op_select(op, &a, &t, &size);
        assert_string_equal(impl->name, "wide");
        vt_lane l = {.target = &t, .size = &size, .items = 1, .variant = 1, .cuda = &lane};
        assert_int_equal(impl->run(&a, &l), VT_OK);
    }
    assert_true(compile_named(cuda) >= 5);
    vt_cuda_close(cuda);
}

static void test_wide_attention_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_wide("sm_90a", 90, 16, 1, 576, 512);
    compile_wide("sm_90a", 90, 16, 2, 512, 0);
    compile_wide("sm_80", 80, 16, 1, 576, 512);
}

/* Models whose shapes no fast kernel supports: the first two need every kernel for any shape. The
 * third has FP8 experts whose rows end inside a chunk. */
static void test_kernels_for_any_shape_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    static const char *const odd[] = {"tests/golden/models/qwen2-gqa7",
                                      "tests/golden/models/qwen3moe-raw",
                                      "tests/golden/models/qwen3moe-fp8"};
    if (!have_nvrtc())
        skip();
    compile_all("sm_90a", 90, VT_BF16, false, odd, 3);
    compile_all("sm_90a", 90, VT_FP8_E4M3, false, odd, 1);
    compile_all("sm_80", 80, VT_BF16, false, odd, 1);
}

static char cache[400];

static int make_cache(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(cache, sizeof cache, "%s/test-cuda-kernels-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return !mkdtemp(cache) || setenv("VITRINE_CACHE", cache, 1);
}

static int remove_cache(void **state)
{
    (void)state;
    char cubins[420], file[700];
    snprintf(cubins, sizeof cubins, "%s/cubin", cache);
    DIR *d = opendir(cubins);
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", cubins, e->d_name);
        unlink(file);
    }
    if (d)
        closedir(d);
    rmdir(cubins);
    rmdir(cache);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_when_compiled_for_sm_90a_then_no_spill_and_no_warning),
        cmocka_unit_test(test_kernels_when_stamped_then_few_spills_and_no_warning),
        cmocka_unit_test(test_kernels_when_stamped_beside_other_entries_then_they_compile),
        cmocka_unit_test(test_kernels_when_compiled_for_sm_80_then_no_spill_and_no_warning),
        cmocka_unit_test(test_deterministic_kernels_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_quantised_kernels_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_quantised_tiles_when_tokens_are_many_then_as_high_as_evens_out_sms),
        cmocka_unit_test(test_quantised_wgmma_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_variants_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_norms_when_compiled_for_the_ctas_of_their_grids_then_no_spill),
        cmocka_unit_test(test_wide_attention_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_kernels_for_any_shape_when_compiled_then_no_spill_and_no_warning),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
