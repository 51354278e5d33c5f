/* Lab sglang 00: what this machine is: where models can run, how fast its memories and links are,
 * and what can be observed here. Nothing is assumed: figures are the measured roofs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu.h"
#include "device/nvml.h"
#include "device/probe.h"
#include "lab/sglang_inside.h"

static const lab_item_def items[] = {
    {"topology", "sockets, NUMA nodes, CPUs and caches", false},
    {"gpus", "GPUs with free memory and other users", false},
    {"links", "matrix of the links between GPUs (NVn, PIX, PXB, PHB, SYS)", false},
    {"groups", "pairs and groups to prefer for tensor parallelism", false},
    {"crossings", "NUMA crossings to avoid", false},
    {"memory_roofs", "memory hierarchy: what each level holds and how fast it is read", true},
    {"compute_roofs", "what the units compute", true},
    {"interconnect", "links: how fast, and what a meeting or a launch costs", true},
    {"tiers", "profiling tiers that are allowed here", true},
    {NULL, NULL, false}};

/* ---- where things are ---- */

/* Sockets, nodes and GPUs. To be joined with device/topology.h, which knows sockets, distances and
 * links; until then this tells what device/cpu.h and NVML know. */
static void tell_topology(lab *l)
{
    const vt_cpu *c = vt_cpu_get();
    char l1[SGLANG_TEXT], l2[SGLANG_TEXT], l3[SGLANG_TEXT], memory[SGLANG_TEXT];
    vt_buf b = {0};
    vt_buf_printf(&b, "%s, %s\n", c->model, vt_isa_name(c->level));
    vt_buf_printf(&b, "├── %d CPUs for this process, %d cores, %d NUMA node%s, memory %s\n",
                  c->n_cpus, c->n_cores, c->n_nodes, c->n_nodes == 1 ? "" : "s",
                  sglang_put(memory, (double)c->memory_bytes, LAB_BYTES));
    vt_buf_printf(&b, "├── a core: L1d %s, L2 %s\n",
                  sglang_put(l1, (double)c->l1d_bytes, LAB_BYTES),
                  sglang_put(l2, (double)c->l2_bytes, LAB_BYTES));
    vt_buf_printf(&b, "└── shared: L3 %s\n", sglang_put(l3, (double)c->l3_bytes, LAB_BYTES));
    lab_drawing(l, "topology", "The CPU side of the machine", &b);
    vt_buf_release(&b);
    if (l->ordinal < 0) {
        lab_missing(l, "gpus", "the lab runs on the CPU (vitrine env says why no GPU is used)");
    } else {
        vt_gpu_state s;
        vt_err why;
        if (vt_nvml_read(l->ordinal, &s, &why) == VT_OK)
            lab_item(l, "gpus", "GPU %d: %d MHz of %d, memory %d MHz, %.0f W of %.0f, %d C",
                     l->ordinal, s.sm_mhz, s.sm_max_mhz, s.memory_mhz, s.power_w, s.power_limit_w,
                     s.temperature_c);
        else
            lab_missing(l, "gpus", "%s", why.message);
    }
    for (const char *const *k = (const char *const[]){"links", "groups", NULL}; *k; k++)
        lab_missing(l, *k, "%s",
                    l->ordinal < 0 ? "the lab runs on the CPU, which has no link between GPUs"
                                   : "links between GPUs are not looked up yet; nvidia-smi topo -m "
                                     "prints their matrix");
    if (c->n_nodes > 1)
        lab_item(l, "crossings",
                 "%d NUMA nodes: run one engine a node (numactl --cpunodebind N --membind N), so "
                 "that no core reads weights through the link between nodes",
                 c->n_nodes);
    else
        lab_item(l, "crossings", "none: all CPUs and all memory are of one NUMA node");
}

/* ---- roofs ---- */

static void put_roof(lab *l, vt_roof_kind kind, int64_t holds)
{
    vt_roofs *r = &l->roofs;
    double v = vt_roof_get(r, kind);
    const char *how = vt_roof_how(r, kind);
    const int64_t *set = vt_roof_working_set(r, kind);
    if (v <= 0)
        return;
    lab_cell(l, "%s", vt_roof_rows[kind].name);
    if (holds > 0)
        lab_cell_number(l, (double)holds, LAB_BYTES);
    else
        lab_cell(l, "%s", "");
    if (!vt_roof_rows[kind].unit)
        lab_cell_number(l, v, LAB_SECONDS);
    else
        lab_cell_number(l, v, *vt_roof_rows[kind].unit == 'B' ? LAB_BYTES_PER_S : LAB_FLOP_PER_S);
    lab_cell(l, "%s", vt_roof_tag_name[r->mark[kind].tag]);
    if (set && *set > 0)
        lab_cell_number(l, (double)*set, LAB_BYTES);
    else
        lab_cell(l, "%s", "");
    lab_cell(l, "%s", how ? how : "");
}

static const char roof_columns[] = "roof|>holds|>measured|tag|>working set|how";

static void tell_roofs(lab *l)
{
    static const vt_roof_kind unit[] = {VT_ROOF_FP32, VT_ROOF_BF16, VT_ROOF_FP8, VT_ROOF_INT8};
    static const vt_roof_kind link[] = {VT_ROOF_MEETING, VT_ROOF_KERNEL, VT_ROOF_KERNEL_PDL,
                                        VT_ROOF_TO_DEVICE, VT_ROOF_FROM_DEVICE};
    vt_roofs *r = &l->roofs;
    lab_table(l, "memory_roofs",
              "What each level of memory holds, and how fast all threads "
              "together read it",
              roof_columns);
    put_roof(l, VT_ROOF_L2, r->l2_size);
    put_roof(l, VT_ROOF_L3, r->l3_size);
    put_roof(l, VT_ROOF_MEMORY, r->is_gpu ? 0 : vt_cpu_get()->memory_bytes);
    put_roof(l, VT_ROOF_WEIGHTS, 0);
    put_roof(l, VT_ROOF_COPY, 0);
    lab_table_end(l);
    lab_table(l, "compute_roofs", "What all units together compute, in registers", roof_columns);
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
        put_roof(l, unit[i], 0);
    lab_table_end(l);
    lab_finding(l, "machine.balance",
                "%s reads %.3g GB/s and computes %.3g GFLOP/s in fp32: an operation that does "
                "fewer than %.1f FLOP for each byte it reads from memory waits for memory, and a "
                "decode step does about 2 for each weight",
                r->name, vt_roofs_bandwidth(r) * 1e-9, r->fp32_per_s * 1e-9,
                r->fp32_per_s / vt_roofs_bandwidth(r));
    if (!r->is_gpu && r->meeting_s <= 0) {
        lab_missing(l, "interconnect",
                    "one thread has nobody to meet (--threads 1), and a CPU "
                    "has no link to a device");
        return;
    }
    lab_table(l, "interconnect",
              r->is_gpu ? "The link to the host, and what a launch costs"
                        : "What a meeting of all threads costs",
              roof_columns);
    for (size_t i = 0; i < sizeof link / sizeof link[0]; i++)
        put_roof(l, link[i], 0);
    lab_table_end(l);
}

/* ---- tiers ---- */

static void put_tier(lab *l, const char *name, const char *sees, bool allowed, const char *why)
{
    lab_cell(l, "%s", name);
    lab_cell(l, "%s", sees);
    lab_cell(l, "%s", allowed ? "yes" : "no");
    lab_cell(l, "%.60s", why);
}

static void tell_tiers(lab *l)
{
    char why[256] = "", found[512], ncu[512];
    bool events = vt_probe_perf_events(why, sizeof why), cupti = false;
    int n = 0;
    const vt_probe_library *library = vt_probe_libraries(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(library[i].name, "cupti") == 0)
            cupti = vt_probe_open(&library[i], found, sizeof found);
    bool gpu = l->ordinal >= 0 && !l->emulated, tool = lab_tool_find("ncu", ncu, sizeof ncu);
    lab_table(l, "tiers", "What can be observed here", "tier|sees|allowed|why not");
    put_tier(l, "T0", "clocks; bytes and FLOPs of each call", true, "");
    put_tier(l, "T1", "hardware events of this process", events, events ? "" : why);
    put_tier(l, "T2", "a GPU's counters over time", false,
             !gpu     ? "no GPU runs the steps"
             : !cupti ? "CUPTI is not installed"
                      : "stories do not read CUPTI yet");
    put_tier(l, "T3", "a GPU's counters of each kernel", gpu && tool,
             !gpu    ? "no GPU runs the steps"
             : !tool ? "ncu is not installed"
                     : "");
    lab_table_end(l);
}

/* ---- knob ---- */

/* The same bytes in one piece and in pieces that a cache holds. */
static vt_status turn(lab *l, vt_err *err)
{
    /* a page of 16 tokens, K and V, of 8 heads of 128, is 64 KiB a layer */
    static const char all[] =
        "copies=4,tokens=16,layers=32,kv_heads=8,head_dim=128,kv_type=f16,page=16";
    static const char piece[] =
        "copies=1,tokens=16,layers=4,kv_heads=8,head_dim=128,kv_type=f16,page=16";
    lab_kernel a, b;
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "page_copy", .shape = all}, &a, err));
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "page_copy", .shape = piece}, &b, err));
    lab_turn(l, &(lab_knob){.name = "pieces of 256 KiB",
                            .where = "working set",
                            .what = "copying 8 MiB",
                            .gain = a.least_s / (32 * b.least_s),
                            .before_s = a.median_s,
                            .before_noise = a.noise,
                            .after_s = 32 * b.median_s,
                            .after_noise = b.noise,
                            .why = l->ordinal >= 0
                                       ? "a launch costs more than 256 KiB take to move"
                                       : "256 KiB stay in the core's own cache from one copy to "
                                         "the next; 8 MiB go through the shared cache"});
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    lab_predict(l, "copying memory, bytes read and written",
                l->emulated ? NAN : l->roofs.memory_bytes_per_s, LAB_BYTES_PER_S,
                "as many bytes a second as reading alone, if a write costs what a read costs");
    tell_topology(l);
    if (l->emulated) {
        for (const char *const *k =
                 (const char *const[]){"memory_roofs", "compute_roofs", "interconnect", NULL};
             *k; k++)
            lab_missing(l, *k, "an emulated GPU has no speed");
    } else {
        lab_outcome(l, "copying memory, bytes read and written", l->roofs.copy_bytes_per_s,
                    l->roofs.mark[VT_ROOF_COPY].tag == VT_ROOF_DISTURBED ||
                        l->roofs.mark[VT_ROOF_MEMORY].tag == VT_ROOF_DISTURBED);
        tell_roofs(l);
        lab_check(l, l->roofs.memory_bytes_per_s > 0 && l->roofs.fp32_per_s > 0,
                  "memory and arithmetic have a measured roof, which every share of the other "
                  "labs is a share of");
        if (!l->roofs.is_gpu && l->roofs.l2_bytes_per_s > 0)
            lab_check(l,
                      l->roofs.l2_bytes_per_s > l->roofs.memory_bytes_per_s ||
                          vt_roofs_disturbed(&l->roofs),
                      "the caches are faster than memory: L2 %.3g GB/s, memory %.3g GB/s",
                      l->roofs.l2_bytes_per_s * 1e-9, l->roofs.memory_bytes_per_s * 1e-9);
    }
    tell_tiers(l);
    return turn(l, err);
}

const lab_def sglang_check_env = {
    .track = LAB_SGLANG,
    .number = "00",
    .name = "check_env",
    .goal = "You know what this machine has, how fast each part is, and what can be seen of it.",
    .about = {"Reads what the operating system and the driver say of CPUs, memory and GPUs.",
              "Roofs (the most that this machine can do) are measured once and kept in a file.",
              "Every percentage of the other labs is a share of one of these figures."},
    .alias = {"00_check_env.py"},
    .items = items,
    .kernels = true,
    .run = run,
};
