/* Tells what is missing on this machine and what to do about it (lab/env/env.h): one row a case, of
 * which only those that apply here are kept. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lab/env/env.h"
#include "model/load.h"

/* Adds a row; `fmt` is the observation. */
static void advise(lab_env *e, bool blocks, const char *action, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void advise(lab_env *e, bool blocks, const char *action, const char *fmt, ...)
{
    va_list args;
    if (e->n_advice == LAB_ENV_ADVICE)
        return;
    lab_env_advice *a = &e->advice[e->n_advice++];
    a->blocks = blocks;
    snprintf(a->action, sizeof a->action, "%s", action);
    va_start(args, fmt);
    vsnprintf(a->seen, sizeof a->seen, fmt, args);
    va_end(args);
}

/* ---- what keeps models from a GPU ---- */

static void judge_gpu(lab_env *e)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    if (!e->wanted || e->gpu)
        return;
    if (!e->driver && e->topology.n_gpus > 0)
        advise(e, true,
               "install the NVIDIA driver (545 or later); in a container, start it with the GPU "
               "(docker run --gpus all, with NVIDIA's container toolkit)",
               "an NVIDIA GPU is on the PCI bus at %s, but its driver's libcuda.so.1 does not work",
               e->topology.gpu[0].place);
    else if (!e->nvrtc && e->driver)
        advise(e, true,
               "pip install nvidia-cuda-nvrtc and set VITRINE_NVRTC to its libnvrtc.so.13, or "
               "install the CUDA toolkit, or take a bundle: vitrine env --import DIR",
               "%s", e->nvrtc_err.message);
    else if (hidden && e->driver && e->gpus.n_usable == 0)
        advise(e, true, "unset CUDA_VISIBLE_DEVICES, or name a GPU that is there",
               "CUDA_VISIBLE_DEVICES is '%s' and leaves no GPU to this process", hidden);
    else
        advise(e, true, "mend that, or choose the CPU: --device cpu, or VITRINE_DEVICE=cpu",
               "no model can run on GPU %d: %s", e->ordinal, e->gpu_err.message);
}

static void judge_cache(lab_env *e)
{
    if (e->cache_err.status != VT_OK)
        advise(e, false, "set VITRINE_CACHE to a folder that is yours and that you can write",
               "compiled kernels cannot be kept: %s", e->cache_err.message);
    else if (e->gpu && e->n_cached == 0)
        advise(e, false,
               "nothing: the first start of a model compiles them, and later ones do not; or "
               "vitrine env --try, or --import DIR",
               "no kernel is compiled yet");
    if (e->n_models <= 0)
        advise(e, false, "vitrine pull smollm2-135m (labs and make run use it)",
               "the cache has no model");
    else if (!e->has_lab_model) {
        char action[300];
        snprintf(action, sizeof action,
                 vt_model_is_name(e->lab_model) ? "vitrine pull %s"
                                                : "--model or VITRINE_MODEL names %s",
                 e->lab_model);
        advise(e, false, action, "the labs' model on a CPU is not here");
    }
}

/* ---- what makes a GPU slower or hides something ---- */

static void judge_use_of_gpus(lab_env *e)
{
    enum { BUSY = 2 }; /* less than half of the memory is free */
    for (int32_t i = 0; i < e->gpus.n_usable; i++) {
        const vt_gpu_entry *g = &e->gpus.gpu[i];
        if (g->memory_bytes > 0 && g->free_bytes >= 0 && g->free_bytes < g->memory_bytes / BUSY)
            advise(e, false,
                   "end those programs, take another GPU (--device cuda:N), or say how much the KV "
                   "cache may have (--kv-memory)",
                   "GPU %d has %.1f of %.1f GiB free; others use the rest", g->ordinal,
                   (double)g->free_bytes / (1 << 30), (double)g->memory_bytes / (1 << 30));
    }
    if (e->gpus.n_usable > 0 && e->gpus.n > e->gpus.n_usable)
        advise(e, false, "unset CUDA_VISIBLE_DEVICES, or leave it where that is meant",
               "this process can use %d of %d GPUs", e->gpus.n_usable, e->gpus.n);
    if (e->gpus.n_usable > 0 && e->gpus.why[0])
        advise(e, false,
               "in a container, let the driver's tools in: NVIDIA_DRIVER_CAPABILITIES=compute,"
               "utility",
               "links, free memory and users of GPUs are not known: %s", e->gpus.why);
    if (e->emulated)
        advise(e, false, "trust results and not times; measure on a real GPU",
               "the GPU is emulated: its times mean nothing");
}

static void judge_libraries(lab_env *e)
{
    if (e->gpu && e->level >= 90 && !lab_env_has(e, "cublasLt"))
        advise(
            e, false, "pip install nvidia-cublas, or set VITRINE_CUBLASLT to its libcublasLt.so.13",
            "cuBLASLt is not here: large products run on kernels of our own, some of them slower");
    if (e->gpus.n_usable > 1 && !lab_env_has(e, "nccl"))
        advise(e, false, "apt-get install libnccl2, or pip install nvidia-nccl-cu13",
               "libnccl.so.2 is not here: GPUs cannot be compared with NCCL");
}

static void judge_profiling(lab_env *e)
{
    static const char *const package[LAB_ENV_TOOLS] = {
        NULL, "install Nsight Systems (apt-get install nsight-systems from NVIDIA's repository)",
        "install Nsight Compute (apt-get install nsight-compute from NVIDIA's repository)"};
    for (int i = 0; e->gpu && i < LAB_ENV_TOOLS; i++) {
        const vt_tool *t = &e->tool[i];
        if (!t->found && package[i])
            advise(e, false, package[i], "%s", t->why);
        else if (t->found && !t->runs)
            advise(e, false, "run it by hand and see what it says", "%s", t->why);
    }
    if (e->gpu && e->counters == VT_ALLOWED_NO)
        advise(e, false,
               "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
               "/etc/modprobe.d/nvidia-counters.conf, then load the driver anew; or run as root",
               "a GPU's counters cannot be read: %s", e->counters_why);
    if (!e->perf && strstr(e->perf_why, "seccomp"))
        advise(e, false,
               "start the container with --cap-add PERFMON, or --security-opt "
               "seccomp=FILE that lets perf_event_open through",
               "hardware events of this process cannot be counted: %s", e->perf_why);
    else if (!e->perf && strstr(e->perf_why, "perf_event_paranoid"))
        advise(e, false, "as root: sysctl kernel.perf_event_paranoid=2",
               "hardware events of this process cannot be counted: %s", e->perf_why);
}

/* With several nodes a process should stay on one: memory of another node is farther away. */
static void judge_nodes(lab_env *e)
{
    int32_t with_cpus = 0;
    for (int32_t i = 0; i < e->topology.n_nodes; i++)
        with_cpus += e->topology.node[i].n_cpus > 0;
    if (with_cpus < 2)
        return;
    int32_t node = e->gpus.n_usable > 0 ? e->gpus.gpu[0].node : e->topology.node[0].id;
    char action[200];
    snprintf(action, sizeof action, "numactl --cpunodebind=%d --membind=%d vitrine ...",
             node < 0 ? 0 : node, node < 0 ? 0 : node);
    advise(e, false, action,
           "memory lies on %d NUMA nodes: threads that read another node's memory are slower",
           with_cpus);
}

static void judge_attempts(lab_env *e)
{
    for (int32_t i = 0; i < e->n_attempts; i++) {
        const vt_try *t = &e->attempt[i];
        bool gpu = t->device == VT_DEVICE_CUDA;
        char action[200];
        if (t->good)
            continue;
        snprintf(action, sizeof action, "run it alone: vitrine bench kernels %s --device %s",
                 t->op->name, gpu ? "cuda" : "cpu");
        advise(e, true, action, "%s, tried on the %s: %s", t->op->name, gpu ? "GPU" : "CPU",
               t->why);
    }
}

void lab_env_judge(lab_env *e)
{
    e->n_advice = 0;
    judge_gpu(e);
    judge_attempts(e);
    judge_cache(e);
    judge_use_of_gpus(e);
    judge_libraries(e);
    judge_profiling(e);
    judge_nodes(e);
}

bool lab_env_ready(const lab_env *e)
{
    for (int32_t i = 0; i < e->n_advice; i++)
        if (e->advice[i].blocks)
            return false;
    return true;
}
