/* Which GPUs belong together (device/gpus.h).
 *
 *          GPU0  GPU1  GPU2  GPU3  GPU4        pairs     (0,1) by NV12, (2,3) by NV12
 *   GPU0    X    NV12  PXB   PXB   SYS    ->   four      (0,1,2,3), slowest link PXB
 *   GPU1   NV12   X    PXB   PXB   SYS         islands   {0,1,2,3} and {4}
 *   ...
 *
 * All sets of a size are tried: 16 GPUs have at most 12,870. */
#include <stdio.h>

#include "device/gpus.h"

void vt_link_name(vt_link link, char out[16])
{
    static const char *const name[VT_LINK_KINDS] = {"?",   "SYS", "NODE", "PHB",
                                                    "PXB", "PIX", "NV",   "X"};
    if (link.kind == VT_LINK_NV)
        snprintf(out, 16, "NV%d", link.n);
    else
        snprintf(out, 16, "%s", name[link.kind]);
}

const char *vt_link_meaning(vt_link_kind kind)
{
    static const char *const meaning[VT_LINK_KINDS] = {
        "not told by the driver",
        "PCIe and the interconnect between sockets (NUMA nodes)",
        "PCIe and the interconnect between host bridges of one NUMA node",
        "PCIe through one host bridge (the CPU)",
        "PCIe through several switches, no host bridge",
        "PCIe through one switch",
        "NVLink; the number says how many links",
        "the GPU itself"};
    return meaning[kind];
}

int32_t vt_gpus_counted(const vt_gpus *g) { return g->n_usable ? g->n_usable : g->n; }

/* A number that is larger for a better link. */
static int32_t rank_of(vt_link link) { return link.kind * 1024 + link.n; }

typedef struct candidate {
    uint32_t mask;
    int32_t worst, sum;
    bool one_node;
} candidate;

static candidate rate(const vt_gpus *g, uint32_t mask, vt_link *worst)
{
    candidate c = {.mask = mask, .worst = INT32_MAX, .one_node = true};
    int32_t node = -1;
    for (int32_t i = 0; i < VT_MAX_GPUS; i++) {
        if (!(mask >> i & 1))
            continue;
        c.one_node &= node < 0 || g->gpu[i].node < 0 || g->gpu[i].node == node;
        node = g->gpu[i].node >= 0 ? g->gpu[i].node : node;
        for (int32_t k = i + 1; k < VT_MAX_GPUS; k++) {
            if (!(mask >> k & 1))
                continue;
            int32_t rank = rank_of(g->link[i][k]);
            c.sum += rank;
            if (rank < c.worst) {
                c.worst = rank;
                *worst = g->link[i][k];
            }
        }
    }
    return c;
}

static bool better(const candidate *a, const candidate *b)
{
    if (a->worst != b->worst)
        return a->worst > b->worst;
    if (a->one_node != b->one_node)
        return a->one_node;
    return a->sum > b->sum;
}

int32_t vt_gpu_groups(const vt_gpus *g, int32_t size, vt_gpu_group out[VT_MAX_GPU_GROUPS])
{
    uint32_t left = (1u << vt_gpus_counted(g)) - 1;
    int32_t n = 0;
    if (size < 2)
        return 0;
    while (n < VT_MAX_GPU_GROUPS) {
        candidate best = {0};
        vt_link worst = {0};
        for (uint32_t mask = 1; mask <= left; mask++) {
            if ((mask & ~left) || __builtin_popcount(mask) != size)
                continue;
            vt_link w = {0};
            candidate c = rate(g, mask, &w);
            if (w.kind > VT_LINK_SYS && (!best.mask || better(&c, &best))) {
                best = c;
                worst = w;
            }
        }
        if (!best.mask)
            break;
        vt_gpu_group *to = &out[n++];
        *to = (vt_gpu_group){.worst = worst, .one_node = best.one_node};
        for (int32_t i = 0; i < VT_MAX_GPUS; i++)
            if (best.mask >> i & 1)
                to->member[to->n++] = i;
        left &= ~best.mask;
    }
    return n;
}

/* "(0,1) by NV12, (2,3) by NV12" */
static void put_groups(vt_buf *out, const vt_gpu_group *group, int32_t n)
{
    char link[16];
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < group[i].n; k++)
            vt_buf_printf(out, "%s%d", k ? "," : i ? ", (" : "(", group[i].member[k]);
        vt_link_name(group[i].worst, link);
        vt_buf_printf(out, ") by %s", link);
    }
}

void vt_gpu_advise(const vt_gpus *g, const int32_t *ordinal, int32_t n, vt_buf *out)
{
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    vt_link worst = {0};
    char link[16];
    uint32_t mask = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ordinal[i] < 0 || ordinal[i] >= g->n_usable || mask >> ordinal[i] & 1)
            return;
        mask |= 1u << ordinal[i];
    }
    rate(g, mask, &worst);
    int32_t better_ones = 0, count = vt_gpu_groups(g, n, group);
    while (better_ones < count && group[better_ones].worst.kind > worst.kind)
        better_ones++;
    if (n < 2 || worst.kind == VT_LINK_UNKNOWN || better_ones == 0)
        return;
    vt_link_name(worst, link);
    vt_buf_puts(out, "GPUs ");
    for (int32_t i = 0; i < n; i++)
        vt_buf_printf(out, "%s%d", i ? "," : "", ordinal[i]);
    vt_buf_printf(out, " have a link %s, %s; better linked are ", link,
                  vt_link_meaning(worst.kind));
    put_groups(out, group, better_ones);
    vt_buf_puts(out, " (vitrine env)");
}

int32_t vt_gpu_islands(const vt_gpus *g, int32_t island[VT_MAX_GPUS])
{
    int32_t count = vt_gpus_counted(g), n = 0;
    for (int32_t i = 0; i < count; i++)
        island[i] = -1;
    for (int32_t i = 0; i < count; i++) {
        if (island[i] >= 0)
            continue;
        island[i] = n;
        for (bool grown = true; grown;) { /* takes in every GPU that a member reaches */
            grown = false;
            for (int32_t a = 0; a < count; a++)
                for (int32_t b = 0; b < count; b++)
                    if (island[a] == n && island[b] < 0 && g->link[a][b].kind != VT_LINK_SYS) {
                        island[b] = n;
                        grown = true;
                    }
        }
        n++;
    }
    return n;
}
