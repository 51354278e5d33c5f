/* The card of a kernel in a lab: operation, execution, hardware, roofline, bottleneck, opportunity.
 * With --ncu on a GPU NVIDIA's ncu counts the call once more, and two lines tell what it read:
 *
 *   ├── counters     SMs busy 97 % of the time, matrix unit 30 %, memory 81 % of its roof ...
 *   ├── stalls       long_scoreboard 71 %: waits for data from memory or L2; barrier 20 %: ... */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/profilers/ncu_run.h"
#include "lab/report/causes.h"

static void card_line(vt_buf *b, const char *branch, const char *name, vt_buf *text)
{
    enum { COLUMN = 17 };
    size_t start = b->len;
    vt_buf_printf(b, "%s %s", branch, name);
    vt_text_pad(b, start, COLUMN);
    vt_text_wrap(b, text->data ? text->data : "", COLUMN, VT_TERM_WIDTH - 4);
    vt_buf_putc(b, '\n');
    b->failed |= text->failed;
    vt_buf_release(text);
    *text = (vt_buf){0};
}

/* ---- what is known without counters ---- */

/* `why`: the counters were not read, and why. NULL: they were. */
static void put_hardware(vt_buf *t, const lab_kernel *k, const char *why)
{
    bool arithmetic = strcmp(k->bound, "fp32") == 0 || strcmp(k->bound, "bf16") == 0 ||
                      strcmp(k->bound, "int8") == 0 || strcmp(k->bound, "fp8") == 0;
    vt_text_figure(t, (arithmetic ? k->flops : k->bytes) / k->median_s,
                   arithmetic ? VT_FLOP_PER_S : VT_BYTES_PER_S);
    if (k->bound == lab_no_roof)
        vt_buf_puts(t, ", faster than any roof that was measured");
    else
        vt_text_printf(t, ", %f share of its %s roof", k->of_roof, k->bound);
    if (isfinite(k->occupancy))
        vt_buf_printf(t, "; occupancy %.0f %% (%d CTAs an SM, limited by %s), %.2f waves",
                      100 * k->occupancy, k->ctas_per_sm, k->limited_by, k->waves);
    if (k->registers >= 0)
        vt_text_printf(t, "; %d registers, %d bytes spilled, %f B of shared memory a CTA",
                       k->registers, k->spill_bytes, (double)k->shared_bytes);
    if (why)
        vt_buf_printf(t, "; stalls and bytes really moved are not measured %s", why);
}

/* Where the call stands under the roofs, and how its loads fit the lines of memory. */
static void put_roofline(vt_buf *t, const lab *l, const lab_kernel *k)
{
    bool gpu = l->ordinal >= 0;
    double peak = gpu ? l->roofs.bf16_per_s : l->roofs.fp32_per_s,
           ridge = peak / l->roofs.memory_bytes_per_s, at = k->flops / k->bytes;
    const char *unit = gpu ? "bf16 matrix" : "fp32", *loads = strstr(k->cut, "loads of ");
    if (k->flops > 0)
        vt_buf_printf(t, "%.3g FLOP a byte", at);
    else
        vt_buf_puts(t, "no arithmetic");
    if (isfinite(ridge) && ridge > 0)
        vt_buf_printf(t, "; the ridge of the measured memory and %s roofs is at %.3g: %s", unit,
                      ridge, at < ridge ? "left of it, bytes decide" : "right of it, FLOPs decide");
    if (k->flops > 0 && isfinite(k->median_s) && peak > 0)
        vt_buf_printf(t, "; %.3g GFLOP/s, %.2g %% of the %s roof", k->flops / k->median_s * 1e-9,
                      100 * k->flops / k->median_s / peak, unit);
    if (loads)
        vt_buf_printf(t, "; coalescing: %.*s, memory's lines have %d", (int)strcspn(loads, ",;"),
                      loads, gpu ? 128 : 64);
}

/* ---- what ncu counts ---- */

/* Runs the call under ncu, if that was asked for and the call launches a kernel. False: it is not
 * counted, and why. */
static bool count(lab *l, const char *key, const lab_kernel *k, lab_counters *c,
                  char why[LAB_NCU_WHY])
{
    char csv[80], no[LAB_NCU_WHY];
    const lab_kernel_ask ask = {.op = k->op, .shape = k->shape, .impl = k->impl};
    snprintf(why, LAB_NCU_WHY, "without counters");
    if (l->ordinal < 0 || !k->function[0] || !lab_flag(l, "ncu"))
        return false;
    snprintf(csv, sizeof csv, "ncu_%.8s_%.40s.csv", l->def->number, key);
    if (lab_ncu_read(l, &ask, k->function, csv, c, no))
        return true;
    snprintf(why, LAB_NCU_WHY, "here, because %.480s", no);
    return false;
}

static void put_counters(vt_buf *t, const lab *l, const lab_counters *c)
{
    vt_text_printf(t,
                   "SMs busy %f share of the time, matrix unit %f share of that, memory %f share "
                   "of its roof (%f B moved), L2 hits %f share, occupancy reached %f share, ",
                   c->sm_busy, c->tensor, c->dram_bytes / c->time_s / l->roofs.memory_bytes_per_s,
                   c->dram_bytes, c->l2_hits, c->occupancy);
    if (isfinite(c->bank_conflicts))
        vt_buf_printf(t, "%.0f bank conflicts [counted by ncu]", c->bank_conflicts);
    else
        vt_buf_puts(t, "bank conflicts not counted [counted by ncu]");
}

/* ---- the card ---- */

void lab_kernel_card(lab *l, const char *key, const lab_kernel *k, const char *operation,
                     const char *opportunity)
{
    vt_buf b = {0}, t = {0};
    char title[320];
    lab_counters c;
    char why[LAB_NCU_WHY];
    bool counted = count(l, key, k, &c, why);
    vt_buf_puts(&t, operation);
    card_line(&b, "├──", "operation", &t);
    vt_text_printf(&t, "%s: %s; %f B, %.3g FLOP", k->impl, k->cut, k->bytes, k->flops);
    card_line(&b, "├──", "execution", &t);
    put_hardware(&t, k, counted ? NULL : why);
    card_line(&b, "├──", "hardware", &t);
    if (counted) {
        put_counters(&t, l, &c);
        card_line(&b, "├──", "counters", &t);
    }
    if (counted) {
        lab_ncu_put_stalls(&t, &c, 3);
        card_line(&b, "├──", "stalls", &t);
    }
    put_roofline(&t, l, k);
    card_line(&b, "├──", "roofline", &t);
    if (k->bound == lab_no_roof)
        vt_buf_puts(&t, "none of the measured roofs: they allow no less than ");
    else
        vt_buf_printf(&t, "%s: the roofs allow ", k->bound);
    vt_text_printf(&t, "%f s, it takes %f s", k->least_s, k->median_s);
    if (k->of_roof < 0.5)
        vt_buf_puts(&t, ", so most of its time goes elsewhere");
    card_line(&b, "├──", "bottleneck", &t);
    vt_buf_puts(&t, opportunity);
    card_line(&b, "└──", "opportunity", &t);
    snprintf(title, sizeof title, "%s, %s [%s]", k->impl, k->shape,
             l->emulated ? "emulated: no times" : "times measured, shares derived");
    lab_drawing(l, key, title, &b);
    vt_buf_release(&b);
    lab_signs signs = lab_signs_kernel(l, k);
    if (!k->disturbed)
        lab_tell_causes(l, &signs, title);
}
