#include "emulated_gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool emulated_gpu_file(const char *name, char *out, size_t size)
{
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = 0;
    *strrchr(path, '/') = 0; /* BUILD/tests */
    snprintf(out, size, "%s/../emulator/%s", path, name);
    return true;
}

int emulated_gpu_open(void **state)
{
    static const char *const library[] = {"libcuda.so.1", "libcublasLt.so.13", "libnccl.so.2",
                                          "libcupti.so.13"};
    char file[1100];
    (void)state;
    if (!emulated_gpu_file("libnvrtc.so.13", file, sizeof file))
        return 1;
    setenv("VITRINE_NVRTC", file, 1);
    emulated_gpu_file("../../emulator-cache", file, sizeof file);
    setenv("VITRINE_CACHE", file, 1);
    for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
        emulated_gpu_file(library[i], file, sizeof file);
        if (!dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
            fprintf(stderr, "%s (make emulator)\n", dlerror());
            return 1;
        }
    }
    return 0;
}
