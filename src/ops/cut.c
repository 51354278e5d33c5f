#include "ops/cut.h"

#include <stdarg.h>
#include <stdio.h>

void vt_cut_shape(vt_cut *out, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(out->shape, sizeof out->shape, format, list);
    va_end(list);
}

void vt_cut_roles(vt_cut *out, const char *roles, const char *merge)
{
    snprintf(out->roles, sizeof out->roles, "%s", roles ? roles : "");
    snprintf(out->merge, sizeof out->merge, "%s", merge ? merge : "");
}

static void count(vt_cut *out, int64_t items, int32_t workers, int32_t resident)
{
    out->items = items;
    out->workers = workers > 0 ? workers : 1;
    out->resident = resident;
    out->waves = (double)items / ((double)out->workers * resident);
}

void vt_cut_cpu(vt_cut *out, const vt_target *t, int64_t items, int32_t vector_bytes)
{
    count(out, items, t->limits.n_workers, 1);
    out->vector_bytes = vector_bytes;
}

void vt_cut_planned(vt_cut *out, int32_t filled, int32_t room)
{
    if (filled <= 0 || room <= 0 || out->items % room != 0)
        return;
    count(out, out->items / room * filled, out->workers, out->resident);
}

int64_t vt_cut_ctas(const cuda_launch *l) { return (int64_t)l->grid[0] * l->grid[1] * l->grid[2]; }

/* Returns how many CTAs of this launch an SM holds. An SM has 1 KB of shared memory more than it
 * gives to one CTA, and uses 1 KB for each CTA. GPUs that give a CTA 99 KB (8.6, 8.9, 12.0) run
 * 1,536 threads and 16 to 24 CTAs on an SM, others 2,048 and 32. */
static int32_t resident_of(const vt_target *t, const cuda_launch *l)
{
    enum { KB = 1024, SMALL = 99 * KB };
    int32_t small = t->max_shared_bytes <= SMALL, most = small ? 16 : 32;
    int32_t by_threads = (small ? 1536 : 2048) / (int32_t)(l->threads ? l->threads : 1);
    int32_t by_shared = (t->max_shared_bytes + KB) / ((int32_t)l->shared_bytes + KB);
    most = by_threads < most ? by_threads : most;
    most = by_shared < most ? by_shared : most;
    return most > 1 ? most : 1;
}

void vt_cut_cuda(vt_cut *out, const vt_target *t, int64_t items, const cuda_launch *l,
                 int32_t vector_bytes)
{
    count(out, items, t->sm_count, resident_of(t, l));
    out->vector_bytes = vector_bytes;
}

void vt_cut_grid(vt_cut *out, const vt_target *t, const cuda_launch *l, int32_t vector_bytes)
{
    vt_cut_cuda(out, t, vt_cut_ctas(l), l, vector_bytes);
}
