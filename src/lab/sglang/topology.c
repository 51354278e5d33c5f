/* Lab sglang 00, first part: what the machine is made of and what may be observed, as `vitrine env`
 * finds it (lab/env/env.h). */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu.h"
#include "lab/env/env.h"
#include "lab/kit/peer_links.h"
#include "lab/sglang/check_env.h"
#include "lab/sglang/inside.h"

/* Drawings are indented by four cells. */
static const vt_term narrow = {.width = VT_TERM_WIDTH - 4};

/* A part of the environment as a drawing. */
static void draw(lab *l, const char *key, const char *title,
                 void (*put)(vt_buf *, const vt_term *, const lab_env *), const lab_env *e)
{
    vt_buf b = {0};
    put(&b, &narrow, e);
    lab_drawing(l, key, title, &b);
    vt_buf_release(&b);
}

static void put_machine(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_cpu *c = vt_cpu_get();
    vt_buf_printf(b, "%s, %s\n", c->model, vt_isa_name(c->level));
    vt_text_printf(b, "├── %d CPUs for this process, %d cores, memory %f B\n", c->n_cpus,
                   c->n_cores, (double)c->memory_bytes);
    vt_text_printf(b, "├── a core: L1d %f B, L2 %f B\n", (double)c->l1d_bytes, (double)c->l2_bytes);
    vt_text_printf(b, "└── shared: L3 %f B\n", (double)c->l3_bytes);
    lab_env_put_nodes(b, term, e);
}

/* "GPUs 0, 1" */
static void put_members(vt_buf *b, const int32_t *member, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        vt_buf_printf(b, "%s%d", i ? ", " : "", member[i]);
}

static void put_group(lab *l, const vt_gpu_group *g)
{
    char link[16];
    vt_buf members = {0};
    put_members(&members, g->member, g->n);
    vt_link_name(g->worst, link);
    lab_cells(l, "%d|%s|%s|%s", g->n, members.data ? members.data : "", link,
              g->one_node ? "yes" : "no");
    vt_buf_release(&members);
}

static void tell_groups(lab *l, const vt_gpus *g, int32_t n)
{
    int32_t found = 0;
    lab_table(l, "groups", "Groups to prefer for tensor parallelism, best first",
              ">ranks|GPUs|slowest link|one NUMA node");
    for (int32_t size = 2; size <= 8 && size <= n; size *= 2) {
        vt_gpu_group group[VT_MAX_GPU_GROUPS];
        int32_t here = vt_gpu_groups(g, size, group);
        for (int32_t i = 0; i < here; i++)
            put_group(l, &group[i]);
        found += here;
    }
    if (found == 0)
        lab_missing(l, "groups", "every link between two GPUs here crosses sockets or is unknown");
}

static void tell_crossings(lab *l, const lab_env *e, int32_t n)
{
    int32_t island[VT_MAX_GPUS], count = n > 1 ? vt_gpu_islands(&e->gpus, island) : 1;
    vt_buf b = {0};
    for (int32_t k = 0; k < count && count > 1; k++) {
        int32_t member[VT_MAX_GPUS], members = 0;
        for (int32_t i = 0; i < n; i++)
            if (island[i] == k)
                member[members++] = i;
        vt_buf_puts(&b, k ? "; " : "");
        put_members(&b, member, members);
    }
    if (count > 1)
        lab_item(l, "crossings",
                 "do not mix GPUs of these sets in one group, because every link between them "
                 "crosses sockets: %s",
                 b.data ? b.data : "");
    else if (e->topology.n_nodes > 1)
        lab_item(l, "crossings",
                 "%d NUMA nodes: run one engine a node (numactl --cpunodebind N --membind N), so "
                 "that no core reads weights through the link between nodes",
                 e->topology.n_nodes);
    else
        lab_item(l, "crossings", "none: all CPUs and all memory are of one NUMA node");
    vt_buf_release(&b);
}

/* ---- rates of links ---- */

/* Measures the pair over both ways; `rows` counts those of the table, which the first one opens. */
static void put_pair(lab *l, const vt_gpus *g, int32_t a, int32_t b, int32_t *rows, vt_err *err)
{
    static const char *const way[] = {"p2p", "host"};
    const int32_t pair[2] = {g->gpu[a].ordinal, g->gpu[b].ordinal};
    char link[16];
    vt_link_name(g->link[a][b], link);
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        lab_peer_link m;
        if (lab_peer_link_measure(l, pair, way[i], &m, err) != VT_OK)
            continue;
        if ((*rows)++ == 0)
            lab_table(l, "peer_links",
                      "Sums between two GPUs, one pair of each kind of link, peer to peer and "
                      "through the host; rate: of the bytes by which the larger sum is larger",
                      "GPUs|link|way|>sum of|>takes|>sum of|>takes|>rate each way");
        lab_cells(l, "%d, %d|%s|%s|%f B|%f s|%f B|%f s|%f B/s", pair[0], pair[1],
                  i == 0 ? link : "through the host", way[i], m.small_bytes, m.small_s,
                  m.large_bytes, m.large_s, m.per_s);
    }
}

/* One pair of each kind of link that is here, in the order of the GPUs. */
static void tell_peers(lab *l, const vt_gpus *g)
{
    bool seen[VT_LINK_KINDS] = {false};
    int32_t rows = 0;
    vt_err err = {0};
    snprintf(err.message, sizeof err.message, "%d GPU%s %s usable, and a link needs two",
             g->n_usable, vt_text_s(g->n_usable), g->n_usable == 1 ? "is" : "are");
    for (int32_t a = 0; a < g->n_usable && l->ordinal >= 0; a++)
        for (int32_t b = a + 1; b < g->n_usable; b++) {
            if (seen[g->link[a][b].kind])
                continue;
            seen[g->link[a][b].kind] = true;
            put_pair(l, g, a, b, &rows, &err);
        }
    if (rows == 0)
        lab_missing(l, "peer_links", "%s",
                    l->ordinal < 0 && g->n_usable > 1
                        ? "the lab runs on the CPU: --device cuda measures them"
                        : err.message);
}

static void tell_gpus(lab *l, const lab_env *e)
{
    int32_t n = vt_gpus_counted(&e->gpus);
    if (e->gpus.n > 0)
        draw(l, "gpus", "GPUs, their free memory and who else uses them", lab_env_put_gpus, e);
    else
        lab_missing(l, "gpus", "no GPU is here: %s", e->gpu_err.message);
    if (n > 1) {
        draw(l, "links", "How GPUs reach each other", lab_env_put_links, e);
        tell_groups(l, &e->gpus, n);
    } else {
        for (const char *const *k = (const char *const[]){"links", "groups", NULL}; *k; k++)
            lab_missing(l, *k, "%s, and a link needs two",
                        n == 1 ? "one GPU is here" : "no GPU is here");
    }
    tell_crossings(l, e, n);
    tell_peers(l, &e->gpus);
}

vt_status sglang_topology(lab *l, vt_err *err)
{
    lab_env *e = NULL;
    vt_buf ready = {0};
    TRY(lab_env_look(l->options, &e, err));
    draw(l, "topology", "as the operating system tells them", put_machine, e);
    tell_gpus(l, e);
    draw(l, "tiers", "the tools, and what stands in their way", lab_env_put_profiling, e);
    lab_env_put_ready(&ready, &(vt_term){.width = 4096}, e);
    if (ready.data)
        ready.data[strcspn(ready.data, "\n")] = '\0';
    lab_finding(l, "environment", "%s", ready.data ? ready.data : "");
    vt_buf_release(&ready);
    lab_env_free(e);
    return VT_OK;
}
