/* Kernels without a GPU: every instance that the models of this program can need is named by a dry
 * run of the CUDA executor and compiled by NVRTC, for sm_80 and for sm_90a. What makes the test
 * fail is what would make a kernel slow in silence: spilled registers, and ptxas's advice that
 * wgmma was serialised or setmaxnreg ignored. Skipped where NVRTC is not installed, unless
 * VITRINE_REQUIRE_NVRTC=1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "device/roofs_cuda.h"
#include "engine/exec_cuda.h"
#include "model/load.h"

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

static void check_log(const char *name, const jit_cubin *c)
{
    static const char *const bad[] = {"warning", "Potential Performance Loss", "C7504", "C7508",
                                      "C7520"};
    assert_non_null(c);
    if (c->spill_bytes != 0)
        fail_msg("%s spills %d bytes of registers", name, c->spill_bytes);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (strstr(c->log, bad[i]))
            fail_msg("%s: the compiler said: %.900s", name, c->log);
}

static void compile_all(const char *arch, int32_t level, size_t n_models)
{
    vt_limits limits = {.max_tokens = 512, .max_seqs = 256, .max_rows = 256, .max_context = 4096,
                        .page_size = 64};
    int32_t total = 0;
    for (size_t m = 0; m < n_models; m++) {
        vt_err err = {0};
        vt_model *model;
        vt_cuda *cuda;
        if (vt_model_load(models[m], &model, &err) != VT_OK ||
            vt_executor_cuda_collect(model, &limits, arch, level, &cuda, &err) != VT_OK)
            fail_msg("%s: %s", models[m], err.message);
        roofs_cuda_collect(cuda);
        vt_jit_set_cache(cuda->jit, false);
        if (vt_jit_compile(cuda->jit, 0, NULL, NULL, &err) != VT_OK)
            fail_msg("%s: %s", models[m], err.message);
        int32_t n = vt_jit_count(cuda->jit);
        assert_true(n > 10);
        for (int32_t i = 0; i < n; i++)
            check_log(vt_jit_name(cuda->jit, i), vt_jit_get(cuda->jit, i));
        total += n;
        vt_cuda_close(cuda);
        vt_model_free(model);
    }
    print_message("%s, level %d: %d kernels\n", arch, level, total);
}

static void test_kernels_when_compiled_for_sm_90a_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_all("sm_90a", 90, 2);
}

static void test_kernels_when_compiled_for_sm_80_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    if (!have_nvrtc())
        skip();
    compile_all("sm_80", 80, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_when_compiled_for_sm_90a_then_no_spill_and_no_warning),
        cmocka_unit_test(test_kernels_when_compiled_for_sm_80_then_no_spill_and_no_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
