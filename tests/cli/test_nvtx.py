#!/usr/bin/env python3
"""NVTX ranges as a profiler gets them: a library that the environment names, compiled here, writes down what it is told."""
import os, re, shlex, subprocess, tempfile

from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}

# With NVIDIA's headers where a toolkit is installed, so that numbers and structures are theirs; else with the same by hand.
TOOL = r"""
#if __has_include("/usr/local/cuda/include/nvtx3/nvToolsExt.h")
#include "/usr/local/cuda/include/nvtx3/nvToolsExt.h"
#else
#include <stddef.h>
#include <stdint.h>
typedef void (*NvtxFunctionPointer)(void);
typedef NvtxFunctionPointer **NvtxFunctionTable;
typedef const void *(*NvtxGetExportTableFunc_t)(uint32_t);
typedef struct { size_t struct_size; int (*GetModuleFunctionTable)(int, NvtxFunctionTable *, unsigned int *); } NvtxExportTableCallbacks;
typedef struct { size_t struct_size; uint32_t version, reserved0; void (*SetInjectionNvtxVersion)(uint32_t); } NvtxExportTableVersionInfo;
enum { NVTX_ETID_CALLBACKS = 1, NVTX_ETID_VERSIONINFO = 3, NVTX_CB_MODULE_SIZE = 7, NVTX_CB_MODULE_CORE = 1, NVTX_VERSION = 3,
       NVTX_CBID_CORE_RangeStartA = 5, NVTX_CBID_CORE_RangeEnd = 7, NVTX_CBID_CORE_RangePushA = 9, NVTX_CBID_CORE_RangePop = 11 };
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static uint64_t ranges;
static void say(const char *what, uint64_t id, const char *text)
{
    fprintf(out, "%s %llu %s\n", what, (unsigned long long)id, text);
    fflush(out);
}
static uint64_t start(const char *text)
{
    pthread_mutex_lock(&lock);
    uint64_t id = ++ranges;
    say("begin", id, text);
    pthread_mutex_unlock(&lock);
    return id;
}
static void end(uint64_t id) { pthread_mutex_lock(&lock); say("end", id, ""); pthread_mutex_unlock(&lock); }
static int push(const char *text) { pthread_mutex_lock(&lock); say("push", pthread_self(), text); pthread_mutex_unlock(&lock); return 0; }
static int pop(void) { pthread_mutex_lock(&lock); say("pop", pthread_self(), ""); pthread_mutex_unlock(&lock); return 0; }
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks *c = table(NVTX_ETID_CALLBACKS);
    const NvtxExportTableVersionInfo *v = table(NVTX_ETID_VERSIONINFO);
    unsigned int n = 0;
    NvtxFunctionTable core = NULL, other = NULL;
    out = fopen(getenv("NVTX_LOG"), "a");
    if (!out || !c || !v || table(99) || c->struct_size != sizeof *c || v->struct_size != sizeof *v || v->version != NVTX_VERSION)
        return 0;
    v->SetInjectionNvtxVersion(NVTX_VERSION);
    for (int m = 1; m < NVTX_CB_MODULE_SIZE; m++)
        if (!c->GetModuleFunctionTable(m, &other, &n) || other[n])
            return 0;
    if (c->GetModuleFunctionTable(NVTX_CB_MODULE_SIZE, &other, &n) || !c->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &n))
        return 0;
    if (getenv("NVTX_DEAF"))
        return 1;
    *core[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)start;
    *core[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)end;
    *core[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *core[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
"""


def tool(folder):
    source, path = os.path.join(folder, "tool.c"), os.path.join(folder, "tool.so")
    open(source, "w").write(TOOL)
    subprocess.run([*shlex.split(os.environ.get("CC", "gcc")), "-w", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


def ranges(*args, env=None, deaf=False):
    """What a run told the tool: (what, number, text) in order. The answer must be the one without a tool."""
    with tempfile.TemporaryDirectory() as d:
        log = os.path.join(d, "log")
        given = {"NVTX_INJECTION64_PATH": tool(d), "NVTX_LOG": log, **({"NVTX_DEAF": "1"} if deaf else {})}
        same(ok(*args, env={**(env or {}), **given}).json["tokens"], ok(*args, env=env).json["tokens"])
        return [re.match(r"(\w+) (\d+) (.*)", line).groups() for line in open(log)]


def nested(told):
    """Pushed ranges as paths, by thread: ["step 1", "step 1/L00.linear.qkv"]. Every one must end."""
    open_of, paths = {}, []
    for what, thread, text in told:
        stack = open_of.setdefault(thread, [])
        if what == "push":
            stack.append(text)
            paths.append("/".join(stack))
        elif what == "pop":
            stack.pop()
    assert not any(open_of.values()), open_of
    return paths


RUN = ["run", "-n", "3", "--ignore-eos", "--json", "--tokens", "1,2,3"]


def test_a_request_and_its_steps_are_ranges():
    told = ranges(*RUN, "-m", "dummy:hybrid-tiny", "--device", "cpu", *FAST)
    begun = [(n, text) for what, n, text in told if what == "begin"]
    same([text for _, text in begun], ["request 1"])
    same([n for what, n, _ in told if what == "end"], [n for n, _ in begun])
    same(nested(told), ["step 1", "step 2", "step 3"])
    whole = [what for what, _, _ in told]
    same((whole[0], whole[-1]), ("begin", "end"))


def test_calls_on_a_gpu_are_ranges_in_the_step():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")
    paths = nested(ranges(*RUN, "-m", "tests/golden/models/qwen3-fp8", "--max-running", "4", "--max-context", "128",
                          "--kv-memory", "4M", "--device", "cuda", env=GPU))
    assert "step 1/L00.linear.qkv" in paths, paths[:20]
    steps = [p for p in paths if re.fullmatch(r"step \d+", p)]
    same(steps, ["step 1", "step 2", "step 3"])


def test_a_library_that_is_no_tool_changes_nothing():
    told = ranges(*RUN, "-m", "dummy:hybrid-tiny", "--device", "cpu", *FAST, deaf=True)
    same(told, [])
    want = ok(*RUN, "-m", "dummy:hybrid-tiny", "--device", "cpu", *FAST).json["tokens"]
    for path in ("/nonexistent.so", "libm.so.6", "", "/dev/null"):
        r = ok(*RUN, "-m", "dummy:hybrid-tiny", "--device", "cpu", *FAST, env={"NVTX_INJECTION64_PATH": path})
        same(r.json["tokens"], want)


main(globals())
