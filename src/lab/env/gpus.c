/* Sockets, NUMA nodes, GPUs and the links between them as text (lab/env/env.h). */

#include "lab/env/env.h"

void lab_env_line(vt_buf *b, const vt_term *term, const char *name, const char *value)
{
    enum { VALUE_COLUMN = 16 };
    size_t start = b->len;
    vt_buf_printf(b, "  %s", name);
    vt_text_pad(b, start, VALUE_COLUMN);
    vt_text_wrap(b, value, VALUE_COLUMN, term->width);
    vt_buf_putc(b, '\n');
}

void lab_env_line_of(vt_buf *b, const vt_term *term, const char *name, vt_buf *value)
{
    lab_env_line(b, term, name, value->data ? value->data : "");
    b->failed |= value->failed;
    vt_buf_release(value);
}

static void put_gib(vt_buf *b, int64_t bytes)
{
    vt_buf_printf(b, "%.1f GiB", (double)bytes / (1 << 30));
}

/* ---- nodes ---- */

static void put_node_gpus(vt_buf *text, const lab_env *e, int32_t node)
{
    int32_t n = 0;
    for (int32_t i = 0; i < e->gpus.n; i++)
        if (e->gpus.gpu[i].node == node)
            vt_buf_printf(text, "%s%d", n++ ? ", " : "; GPU ", i);
}

void lab_env_put_nodes(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_topology *t = &e->topology;
    vt_buf text = {0};
    if (t->n_sockets > 0)
        vt_buf_printf(&text, "%d", t->n_sockets);
    else
        vt_buf_puts(&text, "not told by /sys");
    lab_env_line_of(b, term, "sockets", &text);
    if (t->n_nodes == 0)
        lab_env_line(b, term, "NUMA nodes", "not told by /sys");
    for (int32_t i = 0; i < t->n_nodes; i++) {
        const vt_node *n = &t->node[i];
        char name[32];
        snprintf(name, sizeof name, "NUMA node %d", n->id);
        if (n->n_cpus < 0)
            vt_buf_puts(&text, "CPUs not told");
        else if (n->n_cpus == 0)
            vt_buf_puts(&text, "no CPU: memory alone");
        else
            vt_buf_printf(&text, "CPU%s %s", vt_text_s(n->n_cpus), n->cpus);
        if (n->memory_bytes >= 0) {
            vt_buf_puts(&text, "; ");
            if (n->free_bytes >= 0)
                vt_buf_printf(&text, "%.1f of ", (double)n->free_bytes / (1 << 30));
            put_gib(&text, n->memory_bytes);
            vt_buf_puts(&text, n->free_bytes >= 0 ? " free" : "");
        }
        put_node_gpus(&text, e, n->id);
        if (t->n_nodes > 1 && n->distance[0])
            vt_buf_printf(&text, "; distances %s", n->distance);
        lab_env_line_of(b, term, name, &text);
    }
}

/* ---- GPUs ---- */

static void put_users(vt_buf *text, const vt_gpu_entry *g)
{
    int32_t told = g->n_users < VT_MAX_GPU_USERS ? g->n_users : VT_MAX_GPU_USERS;
    if (g->n_users < 0)
        vt_buf_puts(text, "; its users are not told");
    else if (g->n_users == 0)
        vt_buf_puts(text, "; no other program uses it");
    for (int32_t i = 0; i < told; i++) {
        const vt_gpu_user *u = &g->user[i];
        vt_buf_printf(text, "%sprocess %u", i ? ", " : "; used by ", u->pid);
        if (u->name[0] || u->bytes >= 0)
            vt_buf_printf(text, " (%s%s", u->name, u->name[0] && u->bytes >= 0 ? ", " : "");
        if (u->bytes >= 0)
            put_gib(text, u->bytes);
        vt_buf_puts(text, u->name[0] || u->bytes >= 0 ? ")" : "");
    }
    if (g->n_users > told)
        vt_buf_printf(text, " and %d more", g->n_users - told);
}

static void put_gpu(vt_buf *b, const vt_term *term, const vt_gpu_entry *g, int32_t i)
{
    char name[32];
    vt_buf text = {0};
    snprintf(name, sizeof name, "GPU %d", i);
    vt_buf_printf(&text, "%s%s", g->name, g->emulated ? " (no hardware)" : "");
    if (g->place[0])
        vt_buf_printf(&text, " at %s", g->place);
    if (g->node >= 0)
        vt_buf_printf(&text, " on NUMA node %d", g->node);
    if (g->pcie_gen > 0 && g->pcie_width > 0)
        vt_buf_printf(&text, ", PCIe %d x%d", g->pcie_gen, g->pcie_width);
    vt_buf_puts(&text, "; ");
    if (g->free_bytes >= 0)
        vt_buf_printf(&text, "%.1f of ", (double)g->free_bytes / (1 << 30));
    if (g->memory_bytes >= 0)
        put_gib(&text, g->memory_bytes);
    vt_buf_puts(&text, g->free_bytes >= 0     ? " free"
                       : g->memory_bytes >= 0 ? ", free memory not told"
                                              : "memory not told");
    put_users(&text, g);
    if (g->ordinal < 0)
        vt_buf_puts(&text, "; not usable by this process");
    lab_env_line_of(b, term, name, &text);
}

void lab_env_put_gpus(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_gpus *g = &e->gpus;
    vt_buf text = {0};
    for (int32_t i = 0; i < g->n; i++)
        put_gpu(b, term, &g->gpu[i], i);
    if (g->n_left_out > 0) {
        vt_buf_printf(&text, "%d GPUs beyond the first %d", g->n_left_out, VT_MAX_GPUS);
        lab_env_line_of(b, term, "left out", &text);
    }
    if (g->driver[0])
        lab_env_line(b, term, "driver", g->driver);
    if (g->n > 0 && g->why[0])
        lab_env_line(b, term, "not known", g->why);
}

/* ---- links ---- */

static void put_matrix(vt_buf *b, const vt_gpus *g, int32_t n)
{
    enum { LABEL = 8 };
    const int32_t cell = n > 12 ? 5 : 6;
    char text[16];
    size_t start = b->len;
    vt_text_pad(b, start, LABEL);
    for (int32_t k = 0; k < n; k++) {
        snprintf(text, sizeof text, "%s%d", n > 10 ? "" : "GPU", k);
        vt_buf_printf(b, "%*s", cell, text);
    }
    vt_buf_putc(b, '\n');
    for (int32_t i = 0; i < n; i++) {
        start = b->len;
        vt_buf_printf(b, "  GPU%d", i);
        vt_text_pad(b, start, LABEL);
        for (int32_t k = 0; k < n; k++) {
            vt_link_name(g->link[i][k], text);
            vt_buf_printf(b, "%*s", cell, text);
        }
        vt_buf_putc(b, '\n');
    }
}

/* The kinds of link that occur, best first. */
static void put_legend(vt_buf *b, const vt_term *term, const vt_gpus *g, int32_t n)
{
    for (int32_t kind = VT_LINK_NV; kind >= 0; kind--) {
        bool there = false;
        char name[16];
        for (int32_t i = 0; i < n; i++)
            for (int32_t k = 0; k < n; k++)
                there |= g->link[i][k].kind == (vt_link_kind)kind;
        vt_link_name((vt_link){(vt_link_kind)kind, 0}, name);
        if (there)
            lab_env_line(b, term, kind == VT_LINK_NV ? "NVn" : name,
                         vt_link_meaning((vt_link_kind)kind));
    }
}

static void put_members(vt_buf *text, const vt_gpu_group *m)
{
    for (int32_t i = 0; i < m->n; i++)
        vt_buf_printf(text, "%s%d", i ? "," : "(", m->member[i]);
    vt_buf_putc(text, ')');
}

/* "(0,1) by NV12, (2,3) by NV12": where every link is the same, any group will do. */
static void put_groups(vt_buf *b, const vt_term *term, const vt_gpus *g, int32_t size)
{
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    int32_t n = vt_gpu_groups(g, size, group);
    vt_buf text = {0};
    char name[32], link[16];
    if (n == 0)
        return;
    snprintf(name, sizeof name, "%s of %d", n == 1 ? "group" : "groups", size);
    for (int32_t i = 0; i < n; i++) {
        vt_buf_puts(&text, i ? ", " : "prefer ");
        put_members(&text, &group[i]);
        vt_link_name(group[i].worst, link);
        vt_buf_printf(&text, " %s %s", size == 2 ? "by" : "with no link below", link);
        if (!group[i].one_node)
            vt_buf_puts(&text, " across NUMA nodes");
    }
    lab_env_line_of(b, term, size == 2 ? (n == 1 ? "pair" : "pairs") : name, &text);
}

static void put_crossings(vt_buf *b, const vt_term *term, const vt_gpus *g, int32_t n)
{
    int32_t island[VT_MAX_GPUS], count = vt_gpu_islands(g, island);
    vt_buf text = {0};
    if (count < 2) {
        lab_env_line(b, term, "avoid", "nothing: no link crosses sockets");
        return;
    }
    vt_buf_puts(&text, "groups that mix ");
    for (int32_t k = 0; k < count; k++) {
        vt_gpu_group members = {0};
        for (int32_t i = 0; i < n; i++)
            if (island[i] == k)
                members.member[members.n++] = i;
        vt_buf_puts(&text, k == 0 ? "" : k + 1 < count ? ", " : " and ");
        put_members(&text, &members);
    }
    vt_buf_puts(&text, ": every link between them is SYS, it crosses sockets");
    lab_env_line_of(b, term, "avoid", &text);
}

void lab_env_put_links(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_gpus *g = &e->gpus;
    int32_t n = vt_gpus_counted(g);
    if (n < 2)
        return;
    put_matrix(b, g, n);
    put_legend(b, term, g, n);
    for (int32_t size = 2; size <= 8 && size <= n; size *= 2)
        put_groups(b, term, g, size);
    put_crossings(b, term, g, n);
}
