/* The program's side of NVTX 3 (nvtx.h). NVTX has no library of its own: a program dlopens the
 * profiler's and hands it tables of pointers, which the profiler points at its functions. NVIDIA
 * ships this side as headers; what of it is used here is declared below, with its names there, and
 * tests/cli/test_nvtx.py holds it against a tool that is compiled with those headers.
 *
 *   NVTX_INJECTION64_PATH -> dlopen -> InitializeInjectionNvtx2(get_export_table)
 *     get_export_table(CALLBACKS) -> module_table(CORE) -> &function[CORE][RangePushA] ... */
#include "device/nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CORE = 1,        /* NVTX_CB_MODULE_CORE; the others are CUDA, OPENCL, CUDART, CORE2, SYNC */
    N_MODULES = 7,   /* NVTX_CB_MODULE_SIZE */
    RANGE_START = 5, /* NVTX_CBID_CORE_RangeStartA */
    RANGE_END = 7,
    RANGE_PUSH = 9, /* NVTX_CBID_CORE_RangePushA */
    RANGE_POP = 11,
    MOST_FUNCTIONS = 16,
    CALLBACKS = 1, /* NVTX_ETID_CALLBACKS */
    VERSION = 3    /* NVTX_ETID_VERSIONINFO, and NVTX_VERSION */
};

typedef void (*function_pointer)(void);

/* NVTX_CBID_..._SIZE of each module: their functions, counted from 1. */
static const unsigned int n_functions[N_MODULES] = {0, 16, 9, 15, 7, 16, 7};
static function_pointer function[N_MODULES][MOST_FUNCTIONS];
static function_pointer *table[N_MODULES][MOST_FUNCTIONS + 1]; /* NULL at its end */

static int module_table(int module, function_pointer ***out, unsigned int *n)
{
    if (module <= 0 || module >= N_MODULES)
        return 0;
    for (unsigned int i = 1; i < n_functions[module]; i++)
        table[module][i] = &function[module][i];
    if (out)
        *out = table[module];
    if (n)
        *n = n_functions[module];
    return 1;
}

static void ignore_version(uint32_t version) { (void)version; }

static const void *get_export_table(uint32_t id)
{
    static const struct {
        size_t bytes;
        int (*module_table)(int module, function_pointer ***out, unsigned int *n);
    } callbacks = {sizeof callbacks, module_table};
    static const struct {
        size_t bytes;
        uint32_t version, reserved;
        void (*set_version)(uint32_t version);
    } version = {sizeof version, VERSION, 0, ignore_version};
    return id == CALLBACKS ? (const void *)&callbacks : id == VERSION ? &version : NULL;
}

static bool listening; /* written before pthread_once returns, and read behind it */

static void find_tool(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    int (*start)(const void *(*)(uint32_t)) = NULL;
    void *tool = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL; /* stays open */
    void *at = tool ? dlsym(tool, "InitializeInjectionNvtx2") : NULL;
    memcpy(&start, &at, sizeof at);
    const function_pointer *core = function[CORE];
    listening = start && start(get_export_table) != 0 && core[RANGE_START] && core[RANGE_END] &&
                core[RANGE_PUSH] && core[RANGE_POP];
}

bool vt_nvtx_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_tool);
    return listening;
}

void vt_nvtx_push(const char *text)
{
    if (vt_nvtx_on())
        ((int (*)(const char *))function[CORE][RANGE_PUSH])(text);
}

void vt_nvtx_pop(void)
{
    if (vt_nvtx_on())
        ((int (*)(void))function[CORE][RANGE_POP])();
}

void vt_nvtx_push_number(const char *text, uint64_t number)
{
    char name[64];
    if (!vt_nvtx_on())
        return;
    snprintf(name, sizeof name, "%s %llu", text, (unsigned long long)number);
    vt_nvtx_push(name);
}

uint64_t vt_nvtx_begin(const char *text, uint64_t number)
{
    char name[64];
    if (!vt_nvtx_on())
        return 0;
    snprintf(name, sizeof name, "%s %llu", text, (unsigned long long)number);
    return ((uint64_t(*)(const char *))function[CORE][RANGE_START])(name);
}

void vt_nvtx_end(uint64_t range)
{
    if (range != 0 && vt_nvtx_on())
        ((void (*)(uint64_t))function[CORE][RANGE_END])(range);
}
