/* environment.md: the machine (report/inside.h). */
#include <math.h>

#include "lab/report/inside.h"

static void put_roofs(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Roofs\n\nEvery share in these reports is a share of one of these.\n\n");
    const json_t *roofs = NULL;
    for (int i = 0; i < r->n && json_object_size(roofs) == 0; i++)
        roofs = json_object_get(r->result[i], "roofs");
    if (json_object_size(roofs) == 0) {
        if (r->n_emulated > 0)
            vt_buf_puts(b, "not measured here, because an emulated GPU has no roofs\n\n");
        else
            vt_buf_printf(b, "not measured here yet: `vitrine lab %s 00`\n\n", report_env_track(r));
        return;
    }
    vt_buf_puts(b, "| roof | figure | tag |\n|---|---:|---|\n");
    for (int i = 0; i < VT_ROOFS; i++) {
        const json_t *o = json_object_get(roofs, vt_roof_rows[i].key);
        double v = report_number(o, "value");
        if (!isfinite(v))
            continue;
        const char *unit = vt_roof_rows[i].unit;
        vt_buf_printf(b, "| %s | ", vt_roof_rows[i].name);
        lab_put(b, v, !unit ? LAB_SECONDS : *unit == 'B' ? LAB_BYTES_PER_S : LAB_FLOP_PER_S);
        vt_buf_printf(b, " | %s |\n", report_string(o, "tag"));
    }
    vt_buf_putc(b, '\n');
    report_caches(r, b);
}

static void put_legend(vt_buf *b)
{
    vt_buf_puts(b, "## Links between GPUs, the legend\n\n"
                   "| word | the path between two GPUs |\n|---|---|\n"
                   "| NVn | n NVLinks: the path to prefer for tensor parallelism |\n"
                   "| PIX | one PCIe switch |\n"
                   "| PXB | several PCIe switches, without the CPU |\n"
                   "| PHB | the PCIe root of one CPU |\n"
                   "| NODE | several PCIe roots of one NUMA node |\n"
                   "| SYS | the link between NUMA nodes: avoid it where latency counts |\n\n");
}

static void put_jit(vt_buf *b)
{
    vt_buf_puts(b,
                "## From a kernel's source to its launch\n\n```\n"
                "model and device --> which rows, with which template parameters\n"
                "                            |\n"
                "                 key: source, parameters, flags, level, compiler\n"
                "                            |\n"
                "            in the cache? --+-- yes --> read the cubin\n"
                "                            |               |\n"
                "                            no              |\n"
                "                            |               |\n"
                "                  NVRTC compiles it         |\n"
                "                  and writes the cubin      |\n"
                "                            +-------+-------+\n"
                "                                    |\n"
                "                         load, launch, capture in a graph\n```\n\n"
                "`vitrine env --jit` lists the entries with their template parameters and compile "
                "times; `vitrine lab flashinfer 06` measures a cold and a warm start.\n\n");
}

static void put_trouble(vt_buf *b)
{
    vt_buf_puts(
        b,
        "## Troubleshooting\n\n| what is seen | cause | what to do |\n|---|---|---|\n"
        "| `env` finds no GPU | no driver, or the device is hidden from this process | look at "
        "the driver's own tool; labs run on the CPU meanwhile |\n"
        "| NVRTC is not found | the CUDA toolkit's library is not on the loader's path | install "
        "it, or set LD_LIBRARY_PATH; a full cache needs no compiler |\n"
        "| the first start takes long | kernels are compiled | once only, as long as the cache "
        "folder stays |\n"
        "| a GPU has little free memory | other processes use it | `env` names them; choose "
        "another with --device |\n"
        "| counters are refused | the driver allows them to administrators alone | labs say so "
        "and go on with clocks and bytes |\n"
        "| results are not graded | other programs used the machine | run the lab again when it "
        "is quiet |\n\n");
}

/* Writes what the labs 00 of other tracks found of this machine. */
static void put_rest(const report *r, vt_buf *b)
{
    static const struct {
        lab_track track;
        const char *what;
    } rest[] = {{LAB_SGLANG, "sockets, NUMA nodes, the matrix of links, pairs to prefer, the "
                             "memory hierarchy, profiling tiers"},
                {LAB_MINI_SGLANG, "compiler, flags and template parameters, the cache of compiled "
                                  "kernels as a tree, what each kernel needs, libraries, nsys and "
                                  "ncu, one run of each kernel, what is missing"},
                {LAB_FLASHINFER, "what makes a start compile, how many kernels the next start "
                                 "finds"}};
    vt_buf_puts(b, "## What the other tracks found of this machine\n\n"
                   "| topic | page |\n|---|---|\n");
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (rest[i].track != r->track)
            vt_buf_printf(b,
                          "| %s | [environment of %s](" TO_LABS "%s/reports/%s/environment.md) |\n",
                          rest[i].what, lab_track_name[rest[i].track],
                          lab_track_name[rest[i].track], r->machine);
    vt_buf_putc(b, '\n');
}

void report_environment(const report *r, vt_buf *b)
{
    bool some = false;
    report_head(r, b, "environment", "The machine that these results were made on.");
    put_roofs(r, b);
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        if (d->number[0] != '0' || d->number[1] != '0')
            continue;
        some = true;
        vt_buf_printf(b, "## The machine, as lab %s found it\n\n", d->number);
        if (!r->result[i]) {
            report_not_run(d, b);
            vt_buf_putc(b, '\n');
            continue;
        }
        const json_t *items = json_object_get(r->result[i], "items");
        for (const lab_item_def *item = d->items; item->key; item++)
            report_item(json_object_get(items, item->key), item, b);
        vt_buf_printf(b, "What measured: %s. What it cannot see: %s.\n\n",
                      report_string(r->result[i], "tier"),
                      report_string(r->result[i], "cannot_see"));
    }
    if (!some)
        vt_buf_puts(b, "The labs 00 of the other tracks describe the machine: `vitrine lab sglang "
                       "00`, `vitrine lab mini-sglang 00`, `vitrine lab flashinfer 00`.\n\n");
    put_rest(r, b);
    put_legend(b);
    put_jit(b);
    put_trouble(b);
}
