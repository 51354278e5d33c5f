/* The kernels of examples/kernels with NVRTC: each compiles for sm_80 and sm_90a, at the shapes of
 * its card and at those that it was written for, without spilled registers and without a warning.
 * Skipped where NVRTC is not installed (unless VITRINE_REQUIRE_NVRTC=1) and under a sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_api.h"
#include "device/cuda/jit.h"

enum { MOST_BYTES = 1 << 16 };

static bool have_nvrtc(void)
{
    cuda_nvrtc nvrtc;
    vt_err err = {0};
#ifdef VT_SANITIZE
    return false;
#endif
    if (cuda_nvrtc_open(&nvrtc, &err) == VT_OK)
        return true;
    const char *require = getenv("VITRINE_REQUIRE_NVRTC");
    if (require && strcmp(require, "1") == 0)
        fail_msg("VITRINE_REQUIRE_NVRTC=1 and %s", err.message);
    print_message("skipped: %s\n", err.message);
    return false;
}

static char *read_text(const char *path)
{
    static char text[MOST_BYTES];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof text - 1);
    text[n] = '\0';
    return text;
}

static jit_spec spec_of(const char *path, int32_t hidden, int32_t flag)
{
    if (strstr(path, "rmsnorm"))
        return JIT_SPEC(path, "lab_kernel", {"hidden", hidden}, {"rows", flag}, {"plus_one", flag},
                        {"pdl", 0});
    return JIT_SPEC(path, "lab_kernel", {"hidden", hidden}, {"scaled", flag}, {"pdl", 0});
}

/* The kernels of tests/labs/planted are wrong in one way each; one of them spills registers. */
static void test_planted_kernels_when_compiled_then_only_spill_spills(void **state)
{
    (void)state;
    glob_t found;
    if (!have_nvrtc())
        skip();
    assert_int_equal(glob("tests/labs/planted/*.cu", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 4);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        vt_jit *j;
        vt_err err = {0};
        assert_int_equal(vt_jit_new("sm_90a", &j, &err), VT_OK);
        vt_jit_set_cache(j, false);
        assert_int_equal(vt_jit_add_text(j, path, read_text(path), &err), VT_OK);
        jit_spec spec = JIT_SPEC(path, "lab_kernel", {"hidden", 4096}, {"rows", 0}, {"plus_one", 0},
                                 {"pdl", 0});
        assert_int_equal(vt_jit_want(j, &spec), 0);
        if (vt_jit_compile(j, 0, NULL, NULL, &err) != VT_OK)
            fail_msg("%s: %s", path, err.message);
        const jit_cubin *c = vt_jit_get(j, 0);
        print_message("%s: %d registers, %d bytes spilled\n", path, c->registers, c->spill_bytes);
        assert_int_equal(c->spill_bytes > 0, strstr(path, "spill") != NULL);
        vt_jit_free(j);
    }
    globfree(&found);
}

static void compile(const char *path, const char *arch, bool print)
{
    static const int32_t hidden[] = {4096, 576, 8192, 1027, 20, 1};
    vt_jit *j;
    vt_err err = {0};
    int32_t n = 0;
    assert_int_equal(vt_jit_new(arch, &j, &err), VT_OK);
    vt_jit_set_cache(j, false);
    assert_int_equal(vt_jit_add_text(j, path, read_text(path), &err), VT_OK);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++, n++) {
        jit_spec spec = spec_of(path, hidden[i], (int32_t)i % 2);
        assert_int_equal(vt_jit_want(j, &spec), n);
    }
    if (vt_jit_compile(j, 0, NULL, NULL, &err) != VT_OK)
        fail_msg("%s: %s", path, err.message);
    for (int32_t i = 0; i < n; i++) {
        const jit_cubin *c = vt_jit_get(j, i);
        if (c->spill_bytes)
            fail_msg("%s, %s: %d bytes spilled", path, vt_jit_name(j, i), c->spill_bytes);
        if (c->log && strstr(c->log, "warning"))
            fail_msg("%s, %s: %s", path, vt_jit_name(j, i), c->log);
    }
    if (print)
        print_message("%s: %d registers\n", path, vt_jit_get(j, 0)->registers);
    vt_jit_free(j);
}

static void test_examples_when_compiled_then_no_spill_and_no_warning(void **state)
{
    (void)state;
    glob_t found;
    if (!have_nvrtc())
        skip();
    assert_int_equal(glob("examples/kernels/*_step*.cu", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 10);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        compile(found.gl_pathv[i], "sm_90a", true);
        compile(found.gl_pathv[i], "sm_80", false);
    }
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_when_compiled_then_no_spill_and_no_warning),
        cmocka_unit_test(test_planted_kernels_when_compiled_then_only_spill_spills),
    };
    return cmocka_run_group_tests_name("own_kernel", tests, NULL, NULL);
}
