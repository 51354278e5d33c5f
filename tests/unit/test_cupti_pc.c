/* Sampling the program counter (device/cupti/pc.h), on the emulated library, whose samples are
 * planted: what is told of each instruction, its line, and the sentence for everything that can
 * stand against it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "device/cupti/pc.h"
#include "device/cupti/stalls.h"

typedef struct seen {
    int n;
    uint64_t samples, stalled[VT_STALLS];
    char function[64];
    uint64_t pc;
} seen;

static void note(void *user, const vt_pc_place *p)
{
    seen *s = user;
    s->n++;
    s->samples += p->samples;
    for (int i = 0; i < VT_STALLS; i++)
        s->stalled[i] += p->stalled[i];
    snprintf(s->function, sizeof s->function, "%s", p->function);
    s->pc = p->pc;
}

static vt_cuda *gpu(const char *planted)
{
    vt_cuda *c;
    vt_err err = {0};
    setenv("EMULATED_CUPTI", planted, 1);
    if (vt_cuda_open(0, &c, &err) != VT_OK)
        fail_msg("%s", err.message);
    return c;
}

static vt_pc *open_pc(vt_cuda *c)
{
    vt_pc *p = NULL;
    vt_err err = {0};
    if (vt_pc_open(c, &p, &err) != VT_OK)
        fail_msg("%s", err.message);
    return p;
}

static void test_pc_when_it_samples_then_every_place_has_its_reasons_and_its_line(void **state)
{
    vt_err err = {0};
    seen s = {0};
    vt_pc_totals totals;
    char file[64] = "";
    (void)state;
    vt_cuda *c = gpu("pc=norm:norm.cu:57:long_scoreboard:70,pc=norm:norm.cu:60:gmma:30,pclost=5");
    vt_pc *p = open_pc(c);
    assert_int_equal(vt_pc_begin(p, &err), VT_OK);
    assert_int_equal(vt_pc_end(p, note, &s, &totals, &err), VT_OK);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.samples, 100); /* not those of "..._not_issued" again */
    assert_int_equal(s.stalled[VT_STALL_long_scoreboard], 70);
    assert_int_equal(s.stalled[VT_STALL_gmma], 30);
    assert_string_equal(s.function, "norm");
    assert_int_equal(totals.samples, 105);
    assert_int_equal(totals.dropped, 5);
    assert_true(totals.whole);
    assert_int_equal(vt_cupti_line(vt_pc_library(p), "cubin", 5, "norm", s.pc, file, sizeof file),
                     60);
    assert_string_equal(file, "norm.cu");
    assert_int_equal(vt_cupti_line(vt_pc_library(p), "cubin", 5, "other", s.pc, file, sizeof file),
                     0);
    assert_int_equal(vt_pc_end(p, note, &s, &totals, &err), VT_OK); /* a second end does nothing */
    assert_int_equal(s.n, 2);
    vt_pc_close(p);
    vt_cuda_close(c);
}

static void test_pc_when_it_samples_again_then_only_the_new_samples_are_told(void **state)
{
    vt_err err = {0};
    vt_pc_totals totals;
    (void)state;
    vt_cuda *c = gpu("pc=norm:norm.cu:57:barrier:8,pcmore");
    vt_pc *p = open_pc(c);
    for (int i = 0; i < 2; i++) {
        seen s = {0};
        assert_int_equal(vt_pc_begin(p, &err), VT_OK);
        assert_int_equal(vt_pc_end(p, note, &s, &totals, &err), VT_OK);
        assert_int_equal(s.samples, 8);
        assert_false(totals.whole); /* some records did not fit */
    }
    vt_pc_close(p);
    vt_cuda_close(c);
}

static void test_pc_when_something_stands_against_it_then_it_is_named(void **state)
{
    static const struct {
        const char *planted, *says;
        bool opens;
    } kCases[] = {
        {"forbidden", "NVreg_RestrictProfilingToAdminUsers=0", true},
        {"watched", "another profiler", true},
        {"vgpu", "a virtual GPU is switched off", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof kCases / sizeof *kCases; i++) {
        vt_err err = {0};
        vt_pc *p = NULL;
        vt_cuda *c = gpu(kCases[i].planted);
        vt_status status = vt_pc_open(c, &p, &err);
        assert_int_equal(status == VT_OK, kCases[i].opens);
        if (status == VT_OK)
            status = vt_pc_begin(p, &err);
        assert_int_equal(status, VT_ERR_UNSUPPORTED);
        if (!strstr(err.message, kCases[i].says))
            fail_msg("%s: %s", kCases[i].planted, err.message);
        vt_pc_close(p);
        vt_cuda_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pc_when_it_samples_then_every_place_has_its_reasons_and_its_line),
        cmocka_unit_test(test_pc_when_it_samples_again_then_only_the_new_samples_are_told),
        cmocka_unit_test(test_pc_when_something_stands_against_it_then_it_is_named),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
