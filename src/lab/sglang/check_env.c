/* Lab sglang 00: what this machine is: where models can run, how fast its memories and links are,
 * and what can be observed here. Nothing is assumed: figures are the measured roofs. */
#include <math.h>

#include "base/err.h"
#include "device/cpu.h"
#include "lab/sglang/check_env.h"
#include "lab/sglang/inside.h"

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
        lab_cell_number(l, (double)holds, VT_BYTES);
    else
        lab_cell(l, "%s", "");
    if (!vt_roof_rows[kind].unit)
        lab_cell_number(l, v, VT_SECONDS);
    else
        lab_cell_number(l, v, *vt_roof_rows[kind].unit == 'B' ? VT_BYTES_PER_S : VT_FLOP_PER_S);
    lab_cell(l, "%s", vt_roof_tag_name[r->mark[kind].tag]);
    if (set && *set > 0)
        lab_cell_number(l, (double)*set, VT_BYTES);
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
    lab_table(l, "memory_roofs", "all threads together, over and over the working set",
              roof_columns);
    put_roof(l, VT_ROOF_L2, r->l2_size);
    put_roof(l, VT_ROOF_L3, r->l3_size);
    put_roof(l, VT_ROOF_MEMORY, r->is_gpu ? 0 : vt_cpu_get()->memory_bytes);
    put_roof(l, VT_ROOF_WEIGHTS, 0);
    put_roof(l, VT_ROOF_COPY, 0);
    lab_table(l, "compute_roofs", "all threads together, in registers", roof_columns);
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
        put_roof(l, unit[i], 0);
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
              r->is_gpu ? "The link to the host, and what a launch costs" : "all threads meet once",
              roof_columns);
    for (size_t i = 0; i < sizeof link / sizeof link[0]; i++)
        put_roof(l, link[i], 0);
}

/* Speeds are told and never checked: what else the machine does must not fail the lab. */
static void tell_caches(lab *l)
{
    const vt_roofs *r = &l->roofs;
    if (vt_roofs_sanitized())
        lab_finding(l, "machine.sanitized",
                    "this build is sanitized: its loops are slower, and its roofs say nothing of "
                    "the machine");
    else if (!r->is_gpu && r->l2_bytes_per_s > 0 && !vt_roofs_disturbed(r))
        lab_finding(l, "machine.caches",
                    "the cores' own caches are read at %.3g GB/s, %.1f times as fast as memory",
                    r->l2_bytes_per_s * 1e-9, r->l2_bytes_per_s / r->memory_bytes_per_s);
}

/* Returns true if reading alone was slower than copying, by more than the samples of a roof may
 * differ: other programs took bandwidth while it was measured, whatever its samples say. */
static bool is_read_too_low(const lab *l)
{
    return l->roofs.memory_bytes_per_s < 0.97 * l->roofs.copy_bytes_per_s;
}

static void tell_doubt(lab *l)
{
    static const char again[] = "`vitrine env` measures the roofs again; run it when the machine "
                                "is quiet, because every share of the other labs is of them";
    if (is_read_too_low(l))
        lab_finding(l, "roofs.doubt",
                    "memory was read at %.3g GB/s and copied at %.3g GB/s, but reading alone is no "
                    "slower: the read roof is too low. %s",
                    l->roofs.memory_bytes_per_s * 1e-9, l->roofs.copy_bytes_per_s * 1e-9, again);
    else if (vt_roofs_disturbed(&l->roofs))
        lab_finding(l, "roofs.doubt",
                    "other programs used the machine while roofs were measured: those that are "
                    "tagged disturbed may be too low. %s",
                    again);
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
                l->emulated ? NAN : l->roofs.memory_bytes_per_s, VT_BYTES_PER_S,
                "as many bytes a second as reading alone, if a write costs what a read costs");
    TRY(sglang_topology(l, err));
    if (l->emulated) {
        for (const char *const *k =
                 (const char *const[]){"memory_roofs", "compute_roofs", "interconnect", NULL};
             *k; k++)
            lab_missing(l, *k, "an emulated GPU has no speed");
    } else {
        lab_outcome(l, "copying memory, bytes read and written", l->roofs.copy_bytes_per_s,
                    is_read_too_low(l) || l->roofs.mark[VT_ROOF_COPY].tag == VT_ROOF_DISTURBED ||
                        l->roofs.mark[VT_ROOF_MEMORY].tag == VT_ROOF_DISTURBED);
        tell_roofs(l);
        lab_check(l, l->roofs.memory_bytes_per_s > 0 && l->roofs.fp32_per_s > 0,
                  "memory and arithmetic have a measured roof, which every share of the other "
                  "labs is a share of");
        tell_caches(l);
        tell_doubt(l);
    }
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
    .knobs = {{"working set", LAB_LOAD}},
    .items = {{"topology", "sockets, NUMA nodes, CPUs and caches", false},
              {"gpus", "GPUs with free memory and other users", false},
              {"links", "matrix of the links between GPUs (NVn, PIX, PXB, PHB, SYS)", false},
              {"groups", "pairs and groups to prefer for tensor parallelism", false},
              {"crossings", "NUMA crossings to avoid", false},
              {"memory_roofs", "memory hierarchy: what each level holds and how fast it is read",
               true},
              {"compute_roofs", "what the units compute", true},
              {"interconnect", "links: how fast, and what a meeting or a launch costs", true},
              {"peer_links", "links between GPUs: how fast, by kind and through the host", true},
              {"tiers", "profiling tiers that are allowed here", true}},
    .kernels = true,
    .run = run,
};
