/* --device auto on the emulated GPU: when it takes the GPU, when it takes the CPU and why, and what
 * it says if the GPU that it took cannot do what the user asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "common/emulated_gpu.h"
#include "common/tiny_model.h"
#include "device/cuda/cuda.h"
#include "engine/options.h"

/* Makes the emulated GPU that VITRINE_EMULATOR describes, with its NVRTC or with none. */
static void machine(const char *emulator, bool nvrtc)
{
    static char file[1024];
    if (!file[0])
        snprintf(file, sizeof file, "%s", getenv("VITRINE_NVRTC"));
    setenv("VITRINE_EMULATOR", emulator, 1);
    setenv("VITRINE_NVRTC", nvrtc ? file : "/nowhere/libnvrtc.so", 1);
}

static vt_options *options(const char *device)
{
    vt_options *o;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    if (device)
        assert_int_equal(vt_options_set(o, "device", device, NULL), VT_OK);
    return o;
}

static void must_be(const char *device, int32_t gpu, const char *name)
{
    char text[16];
    vt_options *o = options(device);
    assert_int_equal(vt_options_cuda(o), gpu);
    vt_options_device(o, text, sizeof text);
    assert_string_equal(text, name);
    vt_options_free(o);
}

static void test_auto_when_the_gpu_is_usable_then_it_is_taken(void **state)
{
    (void)state;
    machine("cc=90", true);
    must_be(NULL, 0, "cuda:0"); /* the default */
    must_be("auto", 0, "cuda:0");
    machine("cc=80,nvrtc=80,driver=13020", true);
    must_be("auto", 0, "cuda:0");
}

static void test_auto_when_the_gpu_is_not_usable_then_the_cpu_and_the_reason_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *emulator;
        bool nvrtc;
        const char *why;
    } bad[] = {{"cc=75", true, "has compute capability 7.5; 8.0 or later is needed"},
               {"cc=90", false, "VITRINE_NVRTC=/nowhere/libnvrtc.so cannot be opened"},
               {"driver=12020", true, "the NVIDIA driver is one of CUDA 12.2; CUDA 12.3"},
               {"driver=12090", true, "VITRINE_NVRTC=.../libnvrtc.so.12 or a newer driver"},
               {"nvrtc=80", true, "does not compile for compute capability 9.0"},
               {"cc=none", true, "cuInit"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vt_err err = {0};
        machine(bad[i].emulator, bad[i].nvrtc);
        must_be("auto", -1, "cpu");
        assert_int_not_equal(vt_cuda_usable(0, &err), VT_OK);
        if (!strstr(err.message, bad[i].why))
            fail_msg("%s: '%s' lacks '%s'", bad[i].emulator, err.message, bad[i].why);
    }
}

static void test_named_devices_when_unusable_then_they_stay(void **state)
{
    (void)state;
    vt_cuda *c;
    vt_err err = {0};
    machine("cc=75", false);
    must_be("cpu", -1, "cpu");
    must_be("cuda", 0, "cuda:0");
    must_be("cuda:3", 3, "cuda:3");
    assert_int_equal(vt_cuda_open(0, &c, &err), VT_ERR_UNSUPPORTED);
    machine("driver=12020", true);
    assert_int_equal(vt_cuda_open(0, &c, &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "545"));
    machine("cc=90", true);
    must_be("cpu", -1, "cpu");
}

static void test_auto_when_asked_again_then_the_answer_is_the_first_one(void **state)
{
    (void)state;
    machine("cc=90", true);
    vt_options *o = options("auto");
    assert_int_equal(vt_options_cuda(o), 0);
    machine("cc=90", false);
    assert_int_equal(vt_options_cuda(o), 0);
    assert_int_equal(vt_options_kv_dtype(o, VT_F32), VT_BF16); /* depends on the device */
    assert_int_equal(vt_options_set(o, "device", "cpu", NULL), VT_OK);
    assert_int_equal(vt_options_cuda(o), -1);
    assert_int_equal(vt_options_kv_dtype(o, VT_F32), VT_F32);
    vt_options_free(o);
}

static void test_device_failed_when_auto_chose_then_the_way_out_is_named(void **state)
{
    (void)state;
    vt_err err;
    machine("cc=90", true);
    vt_options *o = options("auto");
    vt_fail(&err, VT_ERR_MEMORY, "too large");
    assert_int_equal(vt_options_device_failed(o, VT_ERR_MEMORY, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, "too large (--device auto chose the GPU; --device cpu "));
    vt_fail(&err, VT_ERR_USAGE, "not a number"); /* the user's mistake, on any device */
    assert_int_equal(vt_options_device_failed(o, VT_ERR_USAGE, &err), VT_ERR_USAGE);
    assert_string_equal(err.message, "not a number");
    assert_int_equal(vt_options_device_failed(o, VT_ERR_MEMORY, NULL), VT_ERR_MEMORY);

    char text[600] = "";
    for (int i = 0; i < 290; i++)
        memcpy(text + 2 * i, "\xc3\xa4", 3);
    vt_fail(&err, VT_ERR_DEVICE, "%s", text); /* longer than the buffer */
    vt_options_device_failed(o, VT_ERR_DEVICE, &err);
    const char *out = strstr(err.message, " (--device auto");
    assert_non_null(out);
    assert_int_equal((out - err.message) % 2, 0); /* whole characters */
    assert_non_null(strstr(out, "--device cpu runs it on the CPU)"));
    vt_options_free(o);

    o = options("cuda");
    vt_fail(&err, VT_ERR_MEMORY, "too large");
    vt_options_device_failed(o, VT_ERR_MEMORY, &err);
    assert_string_equal(err.message, "too large");
    vt_options_free(o);
}

static void new_engine_fails(const vt_model *m, vt_options *o, const char *part)
{
    vt_engine *e;
    vt_err err = {0};
    assert_int_not_equal(vt_engine_new(m, o, &e, &err), VT_OK);
    if (!strstr(err.message, part) || !strstr(err.message, "--device cpu"))
        fail_msg("'%s' lacks '%s' or the way out", err.message, part);
    assert_int_equal(vt_options_set(o, "device", "cpu", NULL), VT_OK);
    if (vt_engine_new(m, o, &e, &err) != VT_OK)
        fail_msg("the way out: %s", err.message);
    vt_engine_free(e);
    vt_options_free(o);
}

static vt_options *small(void)
{
    vt_options *o = options("auto");
    assert_int_equal(vt_options_set(o, "max-running", "2", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "max-context", "64", NULL), VT_OK);
    return o;
}

static void test_engine_when_the_gpu_cannot_then_the_error_names_the_cpu_which_can(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    vt_options *o = small();
    machine("memory=8192", true);
    assert_int_equal(vt_options_set(o, "kv-dtype", "f16", NULL), VT_OK);
    new_engine_fails(m, o, "kv-dtype F16 is not there on CUDA");
    machine("memory=1024", true); /* less than an engine needs */
    new_engine_fails(m, small(), "no room for KV");
    machine("memory=4", true);
    o = small();
    assert_int_equal(vt_options_set(o, "kv-memory", "1M", NULL), VT_OK);
    new_engine_fails(m, o, "GPU memory");
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_when_the_gpu_is_usable_then_it_is_taken),
        cmocka_unit_test(test_auto_when_the_gpu_is_not_usable_then_the_cpu_and_the_reason_is_known),
        cmocka_unit_test(test_named_devices_when_unusable_then_they_stay),
        cmocka_unit_test(test_auto_when_asked_again_then_the_answer_is_the_first_one),
        cmocka_unit_test(test_device_failed_when_auto_chose_then_the_way_out_is_named),
        cmocka_unit_test(test_engine_when_the_gpu_cannot_then_the_error_names_the_cpu_which_can),
    };
    unsetenv("VITRINE_DEVICE"); /* the tests' default is the CPU */
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
