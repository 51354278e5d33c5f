/* Code that the labs of this track share (flashinfer.h). */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/rows.h"

/* An emulated GPU computes some million products a second: its calls must be small. */
static const lab_heads emulated = {.heads = 8, .kv_heads = 4, .dim = 64, .page = 16, .kv = "bf16"};

lab_heads lab_heads_32(const lab *l)
{
    if (l->emulated)
        return emulated;
    if (l->ordinal < 0) /* the heads of Llama-3.2-1B */
        return (lab_heads){.heads = 32, .kv_heads = 8, .dim = 64, .page = 16, .kv = "f16"};
    return (lab_heads){.heads = 32, .kv_heads = 8, .dim = 128, .page = 64, .kv = "bf16"};
}

lab_heads lab_heads_model(const lab *l)
{
    if (l->emulated)
        return emulated;
    if (l->ordinal < 0) /* SmolLM2-135M */
        return (lab_heads){.heads = 9, .kv_heads = 3, .dim = 64, .page = 16, .kv = "f16"};
    /* Qwen3-0.6B */
    return (lab_heads){.heads = 16, .kv_heads = 8, .dim = 128, .page = 64, .kv = "bf16"};
}

void lab_heads_text(const lab_heads *h, char *out, size_t size)
{
    snprintf(out, size, "heads=%d,kv_heads=%d,head_dim=%d,page=%d,kv_type=%s", h->heads,
             h->kv_heads, h->dim, h->page, h->kv);
}

/* On a CPU the row does not depend on the sizes of a call, so a call of one token names it. Making
 * the real one only to ask takes a second where its KV is large. */
static const char *choice_on_cpu(lab *l, const char *op, const char *text)
{
    char small[256] = "";
    size_t used = 0;
    vt_target t;
    vt_err err = {0};
    lab_call c;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        bool size = strncmp(p, "seqs=", 5) == 0 || strncmp(p, "q_len=", 6) == 0 ||
                    strncmp(p, "kv_len=", 7) == 0 || strncmp(p, "tokens=", 7) == 0 ||
                    strncmp(p, "decodes=", 8) == 0;
        if (!size)
            vt_append(small, sizeof small, &used, "%s%.*s", used ? "," : "", (int)n, p);
        p += n + (p[n] == ',');
    }
    if (l->ordinal >= 0 || lab_target(l, &t, &err) != VT_OK ||
        lab_call_make(&t, op, small, &c, &err) != VT_OK)
        return NULL;
    const vt_impl *row = lab_call_row(&c, NULL, NULL);
    lab_call_release(&c);
    return row ? row->name : NULL;
}

vt_status lab_run_shape(lab *l, const char *op, const char *impl, lab_kernel *out, vt_err *err,
                        const char *shape, ...)
{
    char text[256];
    va_list list;
    va_start(list, shape);
    vsnprintf(text, sizeof text, shape, list);
    va_end(list);
    if (!impl)
        impl = choice_on_cpu(l, op, text);
    return lab_kernel_run(l, &(lab_kernel_ask){.op = op, .shape = text, .impl = impl}, out, err);
}

void lab_tell_occupancy(lab *l, const char *key, const lab_kernel *k)
{
    if (l->ordinal < 0)
        lab_missing(l, key,
                    "a CPU core runs one worker at a time; occupancy (warps that share an SM) is a "
                    "quantity of a GPU");
    else if (l->emulated)
        lab_missing(l, key, "the emulated GPU's compiler reports no registers");
    else if (!isfinite(k->occupancy))
        lab_missing(l, key, "the kernel's registers are not known");
    else
        lab_item(l, key,
                 "%.0f %% of an SM's warps: %d CTAs an SM, limited by %s (%d registers a thread, "
                 "%d bytes spilled)",
                 100 * k->occupancy, k->ctas_per_sm, k->limited_by, k->registers, k->spill_bytes);
}

void lab_figure(lab *l, const char *key, double v, vt_unit unit, const char *of)
{
    if (isfinite(v))
        lab_number(l, key, v, unit, "derived", of);
    else
        lab_missing(l, key, "%s",
                    l->emulated ? "an emulated GPU has no times and no roofs"
                                : "no roof of this kind was measured");
}

void lab_copy_share(lab *l, const char *key, const lab_kernel *k)
{
    double share = lab_over(lab_bandwidth(k), l->roofs.copy_bytes_per_s);
    if (share > 1)
        lab_item(l, key,
                 "faster than memory copies, measured: that roof does not bind it, because bytes "
                 "are read from a cache or more are read than written");
    else
        lab_figure(l, key, share, VT_SHARE,
                   "of the measured copy roof of memory: as many bytes are written as are read");
}

double lab_bandwidth(const lab_kernel *k) { return lab_over(k->bytes, k->median_s); }

double lab_over(double a, double b) { return isfinite(b) && b > 0 ? a / b : NAN; }

void lab_tell_runs(lab *l, const lab_runs *r, const char *key, const char *call, bool by_flops)
{
    char columns[120];
    snprintf(columns, sizeof columns, "%s|runs as|>time|>least|>of roof|bound|>%s|>error", call,
             by_flops ? "FLOP/byte" : "bandwidth");
    lab_table(l, key, "each is run and checked", columns);
    for (int32_t i = 0; i < r->n; i++) {
        const lab_kernel *k = &r->k[i];
        lab_cells(l, "%s|%s|%f s|%f s|%f share|%s", r->name[i], k->impl, k->median_s, k->least_s,
                  k->of_roof, k->bound);
        lab_cell_number(l, by_flops ? k->flops / k->bytes : lab_bandwidth(k),
                        by_flops ? VT_COUNT : VT_BYTES_PER_S);
        lab_cell(l, "%.1e", k->error);
    }
}

void lab_tell_roofline(lab *l, const lab_runs *r, const char *key, const roofline_roof *roof)
{
    roofline_point point[LAB_MAX_RUNS];
    for (int32_t i = 0; i < r->n; i++)
        point[i] = (roofline_point){.name = r->name[i],
                                    .bytes = r->k[i].bytes,
                                    .flops = r->k[i].flops,
                                    .seconds = r->k[i].median_s};
    lab_roofline(l, key, "under the roofs that were measured here", roof, point, r->n);
}

const int32_t *lab_sizes(const lab *l, const int32_t *small, const int32_t *quick,
                         const int32_t *full, const int32_t *swept)
{
    return l->emulated ? small : lab_flag(l, "sweep") ? swept : l->quick ? quick : full;
}
