#include "emulated_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/jit.h"

emulated_runtime emu;

static void find(void *library, const char *name, void *slot)
{
    void *address = dlsym(library, name);
    if (!address)
        fail_msg("%s: %s", name, dlerror());
    memcpy(slot, &address, sizeof address);
}

int emulated_kernels_open(void **state)
{
    (void)state;
    char path[1024], file[1100];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    *strrchr(path, '/') = 0;
    snprintf(file, sizeof file, "%s/../emulator/libnvrtc.so.13", path);
    vt_err err = {0};
    setenv("VITRINE_NVRTC", file, 1);
    setenv("EMULATOR_ASAN", "1", 1); /* has an effect in a build with ASan */
    if (cuda_nvrtc_open(&emu.nvrtc, &err) != VT_OK)
        fail_msg("%s", err.message);
    snprintf(file, sizeof file, "%s/../emulator/libcuda.so.1", path);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    find(library, "emu_module_load", &emu.load);
    find(library, "emu_module_unload", &emu.unload);
    find(library, "emu_run", &emu.run);
    find(library, "emu_kernel_static_shared", &emu.shared);
    return 0;
}

char *emulated_cubin(const char *kernel, const char *arch, size_t *cubin_size)
{
    const jit_text *ptx = jit_find_text("ptx.cuh"), *sm90 = jit_find_text("ptx_sm90.cuh");
    size_t size = ptx->size + strlen(kernel) + 200;
    char *text = malloc(size);
    snprintf(text, size, "%s\n#include \"ptx_sm90.cuh\"\n#line 1 \"test.cu\"\n%s\n", ptx->text,
             kernel);
    const char *const options[] = {arch, "-DPDL=1"};
    nvrtc_program p = NULL;
    assert_int_equal(emu.nvrtc.create(&p, text, "test.cu", 1, &sm90->text, &sm90->name), 0);
    free(text);
    int r = emu.nvrtc.compile(p, 2, options);
    char *cubin = NULL;
    if (r != 0) {
        assert_int_equal(emu.nvrtc.log_size(p, &size), 0);
        char *log = malloc(size);
        emu.nvrtc.log(p, log);
        snprintf(emu.message, sizeof emu.message, "%s", log);
        free(log);
    } else {
        assert_int_equal(emu.nvrtc.cubin_size(p, cubin_size), 0);
        cubin = malloc(*cubin_size);
        emu.nvrtc.cubin(p, cubin);
    }
    emu.nvrtc.destroy(&p);
    return cubin;
}

emu_module *emulated_compile(const char *kernel, const char *arch)
{
    size_t size;
    char *cubin = emulated_cubin(kernel, arch, &size);
    emu_module *m = cubin ? emu.load(cubin, size, emu.message, sizeof emu.message) : NULL;
    free(cubin);
    return m;
}
