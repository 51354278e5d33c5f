/* The card of a user's kernel: see own_kernel.h.
 *
 *   file as op on machine
 *   ├── CHECK      cases right, the worst error, what was skipped and why
 *   ├── COST       bytes and FLOPs of the call
 *   ├── TIME       a table: yours and our rows, shape by shape
 *   ├── HARDWARE   grid, registers, shared memory, occupancy and what limits it
 *   ├── ROOFLINE   where it stands
 *   └── NEXT       what to look at, most likely cause first */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/kernel/own_kernel.h"
#include "lab/report/causes.h"

enum { INDENT = 15, MOST_LINES = 4 };
#define MUCH_NOISE 1.25 /* median over best */

/* Begins a line of the tree: "├── CHECK      ". */
static void branch(vt_buf *b, const vt_term *term, bool last, const char *name)
{
    size_t start = b->len;
    vt_buf_puts(b, last ? "└── " : "├── ");
    vt_text_ink(b, term, VT_INK_BOLD, name);
    vt_text_pad(b, start, INDENT);
}

static void more(vt_buf *b, bool last)
{
    size_t start = b->len;
    vt_buf_puts(b, last ? " " : "│");
    vt_text_pad(b, start, INDENT);
}

/* Ends a line of the tree with the text; where that is longer than the line, it goes on below. */
static void told(vt_buf *b, const vt_term *term, const char *text)
{
    vt_buf lines = {0};
    vt_text_wrap(&lines, text, 0, term->width - INDENT);
    for (const char *s = lines.data ? lines.data : ""; *s;) {
        size_t n = strcspn(s, "\n");
        vt_buf_add(b, s, n);
        vt_buf_putc(b, '\n');
        s += n + (s[n] == '\n');
        if (*s)
            more(b, false);
    }
    vt_buf_release(&lines);
}

/* ---- check ---- */

static void put_check(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    char text[2 * OWN_KERNEL_TEXT + 16];
    int32_t n[OWN_KERNEL_VERDICTS] = {0}, shown = 0;
    double worst = 0, allowed = 0;
    for (int32_t i = 0; i < r->n_cases; i++) {
        const own_kernel_case *c = &r->cases[i];
        n[c->verdict]++;
        if (c->error > worst)
            worst = c->error;
        if (c->allowed > allowed)
            allowed = c->allowed;
    }
    branch(b, term, false, "CHECK");
    vt_buf_printf(b, "%d of %d cases right, worst error %.2g of %.2g allowed", n[OWN_KERNEL_RIGHT],
                  r->n_cases - n[OWN_KERNEL_SKIPPED], worst, allowed);
    vt_buf_puts(b, r->races ? "; no data race\n" : "\n");
    if (r->tolerance_reason[0]) {
        more(b, false);
        snprintf(text, sizeof text, "the tolerance: %s", r->tolerance_reason);
        told(b, term, text);
    }
    for (int32_t i = 0; i < r->n_cases; i++) {
        const own_kernel_case *c = &r->cases[i];
        bool wrong = c->verdict == OWN_KERNEL_WRONG, open = c->verdict == OWN_KERNEL_OPEN;
        if (!wrong && !open)
            continue;
        if (shown++ == MOST_LINES)
            break;
        more(b, false);
        snprintf(text, sizeof text, "%s %s%s%s", wrong ? "WRONG" : "not run", c->name,
                 wrong ? ": " : "", wrong ? c->why : "");
        told(b, term, text);
    }
    if (n[OWN_KERNEL_SKIPPED] == 0)
        return;
    for (int32_t i = 0, k = 0; i < r->n_cases && k < MOST_LINES; i++)
        if (r->cases[i].verdict == OWN_KERNEL_SKIPPED) {
            more(b, false);
            snprintf(text, sizeof text, "skipped %s: %s", r->cases[i].name, r->cases[i].why);
            told(b, term, text);
            k++;
        }
    if (n[OWN_KERNEL_SKIPPED] > MOST_LINES) {
        more(b, false);
        vt_buf_printf(b, "and %d more were skipped\n", n[OWN_KERNEL_SKIPPED] - MOST_LINES);
    }
}

/* ---- time ---- */

static void cell_time(vt_table *t, double us)
{
    vt_buf b = {0};
    if (isfinite(us))
        vt_text_time(&b, us * 1e-6);
    vt_table_cell(t, "%s", b.data ? b.data : "n/a");
    vt_buf_release(&b);
}

/* Median over best time of the row that was disturbed most. */
static double noise_of(const own_kernel_report *r)
{
    double worst = 0;
    for (int32_t i = 0; i < r->n_rows; i++)
        worst = fmax(worst, r->rows[i].spread);
    return worst;
}

static void put_times(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    vt_table t;
    double worst;
    branch(b, term, false, "TIME");
    if (r->n_rows == 0 || r->emulated) {
        vt_buf_puts(b, r->emulated ? "not measured here, because an emulated GPU has no time\n"
                                   : "not measured, because it is not right\n");
        return;
    }
    vt_buf_puts(b, r->gpu ? "cold: operands come from memory; graph: 48 calls in a CUDA graph\n"
                          : "warm: operands are in the caches; cold: they come from memory\n");
    vt_table_init(&t, r->gpu ? "shape|runs as|>cold|>GB/s|of roof|>graph|of roof"
                             : "shape|runs as|>warm|of roof|>cold|>GB/s|of roof");
    for (int32_t i = 0; i < r->n_rows; i++) {
        const own_kernel_row *row = &r->rows[i];
        int far = r->gpu ? 0 : 1;
        vt_table_cell(&t, "%.40s", row->shape);
        vt_table_cell(&t, "%.16s", row->name);
        for (int k = 0; k < 2; k++) {
            cell_time(&t, row->us[k]);
            if (k == far)
                vt_table_cell(&t, isfinite(row->us[k]) ? "%.1f" : "n/a",
                              (double)row->bytes / (row->us[k] * 1e3));
            if (isfinite(row->share[k]))
                vt_table_cell(&t, "%.0f %% %s", 100 * row->share[k], row->roof[k]);
            else
                vt_table_cell(&t, "-");
        }
    }
    vt_table_finish(&t, b, term, 4);
    worst = noise_of(r);
    if (worst < MUCH_NOISE)
        return;
    more(b, false);
    vt_buf_printf(b, "the machine was busy: a median is %.1f times its best time\n", worst);
}

/* ---- hardware ---- */

static const own_kernel_row *own_row(const own_kernel_report *r)
{
    const own_kernel_row *last = NULL;
    for (int32_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].own)
            last = &r->rows[i];
    return last;
}

/* The fastest row of the card on the shape of `own`; NULL: none. */
static const own_kernel_row *best_of_ours(const own_kernel_report *r, const own_kernel_row *own,
                                          int at)
{
    const own_kernel_row *best = NULL;
    for (int32_t i = 0; i < r->n_rows; i++) {
        const own_kernel_row *row = &r->rows[i];
        if (row->own || strcmp(row->shape, own->shape) != 0)
            continue;
        if (!best || row->us[at] < best->us[at] || !isfinite(best->us[at]))
            best = row;
    }
    return best;
}

static void put_cost(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    const own_kernel_row *own = own_row(r);
    if (!own)
        return;
    branch(b, term, false, "COST");
    vt_text_printf(b, "%f B to move at least and %.4g MFLOP", (double)own->bytes,
                   (double)own->flops * 1e-6);
    if (own->bytes > 0)
        vt_buf_printf(b, ", %.3g FLOP/byte, for %.40s", (double)own->flops / (double)own->bytes,
                      own->shape);
    vt_buf_putc(b, '\n');
}

static void put_launch(const own_kernel_report *r, const own_kernel_row *row, vt_buf *b)
{
    const own_kernel_launch *l = &row->launch;
    char grid[64];
    snprintf(grid, sizeof grid, "%u", l->grid[0]);
    if (l->grid[1] > 1 || l->grid[2] > 1)
        snprintf(grid, sizeof grid, "%u x %u x %u", l->grid[0], l->grid[1], l->grid[2]);
    vt_buf_printf(b, "%-8.16s %s CTAs of %u threads", row->name, grid, l->threads);
    if (r->emulated) {
        vt_buf_puts(b, "; registers are not modelled\n");
        return;
    }
    vt_buf_printf(b, ", %d registers%s", l->registers, l->spill_bytes ? "" : ", no spills");
    if (l->spill_bytes)
        vt_buf_printf(b, ", %d bytes spilled", l->spill_bytes);
    vt_buf_printf(b, ", %lld B shared\n", (long long)l->static_shared + l->dynamic_shared);
    if (l->ctas == 0)
        return;
    more(b, false);
    vt_buf_printf(b, "         %d of %d warps an SM (limit: %s)", l->warps, l->max_warps, l->limit);
    if (isfinite(l->waves))
        vt_buf_printf(b, ", %.2f waves", l->waves);
    vt_buf_putc(b, '\n');
}

static void put_hardware(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    const own_kernel_row *own = own_row(r), *ours = own ? best_of_ours(r, own, 0) : NULL;
    branch(b, term, false, "HARDWARE");
    if (!own || !r->gpu) {
        vt_buf_puts(b, own ? "counters are not read here; perf stat reads a CPU's\n"
                           : "not measured\n");
        return;
    }
    put_launch(r, own, b);
    if (ours) {
        more(b, false);
        put_launch(r, ours, b);
    }
}

/* ---- roofline ---- */

enum { PLOT_COLUMNS = 64, PLOT_ROWS = 9 };

/* x: FLOP/byte in powers of 2 from 1/16, four columns each; y: share of fp32 in powers of 4. */
static int column_of(double intensity)
{
    double c = (log2(intensity) + 4) * 4;
    return !(c >= 0) ? 0 : c > PLOT_COLUMNS - 1 ? PLOT_COLUMNS - 1 : (int)(c + 0.5);
}

static int row_of(double share_of_fp32)
{
    double c = -log2(share_of_fp32) / 2 + 0.5;
    return !(c >= 0) ? 0 : c > PLOT_ROWS - 1 ? PLOT_ROWS - 1 : (int)c;
}

static void put_plot(const own_kernel_report *r, const own_kernel_row *own,
                     const own_kernel_row *ours, double us, double ours_us, vt_buf *b)
{
    char plot[PLOT_ROWS][PLOT_COLUMNS + 1];
    double ridge = r->fp32_per_s / r->memory_bytes_per_s,
           intensity = (double)own->flops / (double)own->bytes;
    memset(plot, ' ', sizeof plot);
    for (int c = 0; c < PLOT_COLUMNS; c++) {
        double x = exp2(c / 4.0 - 4), roof = x < ridge ? x / ridge : 1;
        plot[row_of(roof)][c] = x < ridge ? '/' : '-';
    }
    if (ours)
        plot[row_of((double)ours->flops / (ours_us * 1e-6) / r->fp32_per_s)][column_of(intensity)] =
            'o';
    plot[row_of((double)own->flops / (us * 1e-6) / r->fp32_per_s)][column_of(intensity)] = 'Y';
    for (int k = 0; k < PLOT_ROWS; k++) {
        int n = PLOT_COLUMNS;
        while (n > 0 && plot[k][n - 1] == ' ')
            n--;
        more(b, false);
        vt_buf_puts(b, "|");
        vt_buf_add(b, plot[k], (size_t)n);
        vt_buf_putc(b, '\n');
    }
    more(b, false);
    vt_buf_puts(b,
                "+---|-------|-------|-------|-------|-------|-------|-------|----> FLOP/byte\n");
    more(b, false);
    vt_buf_puts(b, "   1/8     1/2      2       8      32      128     512    2048\n");
}

static void put_roofline(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    const own_kernel_row *own = own_row(r);
    int at = r->gpu ? 0 : 1;
    branch(b, term, false, "ROOFLINE");
    if (!own || !isfinite(own->us[at]) || r->memory_bytes_per_s <= 0) {
        vt_buf_puts(b, "no place on it without a time and roofs\n");
        return;
    }
    const own_kernel_row *ours = best_of_ours(r, own, at);
    double per_s = (double)own->bytes / (own->us[at] * 1e-6);
    if (ours && !isfinite(ours->us[at]))
        ours = NULL;
    vt_text_printf(b, "%f B/s of %f B/s that memory gives (%.0f %%)", per_s, r->memory_bytes_per_s,
                   100 * per_s / r->memory_bytes_per_s);
    if (own->flops == 0 || r->fp32_per_s <= 0 || own->bytes == 0) {
        vt_buf_puts(b, "; it has no FLOPs, so memory is its only roof\n");
        return;
    }
    vt_buf_printf(b, ", %.3g FLOP/byte\n", (double)own->flops / (double)own->bytes);
    more(b, false);
    vt_buf_puts(b, "FLOP/s, 4 x a line; / roof of memory, - of fp32; Y: yours");
    vt_buf_puts(b, ours ? ", o: ours\n" : "\n");
    put_plot(r, own, ours, own->us[at], ours ? ours->us[at] : 0, b);
}

/* ---- next ---- */

static bool all_right(const own_kernel_report *r)
{
    for (int32_t i = 0; i < r->n_cases; i++)
        if (r->cases[i].verdict == OWN_KERNEL_WRONG || r->cases[i].verdict == OWN_KERNEL_OPEN)
            return false;
    return true;
}

const report_cause *own_kernel_cause(const own_kernel_report *r)
{
    const own_kernel_row *own = own_row(r);
    const report_cause *cause = NULL;
    lab_signs s = lab_signs_none();
    if (!own || !r->gpu || !all_right(r))
        return NULL;
    const own_kernel_launch *l = &own->launch;
    if (l->ctas > 0 && l->waves > 0) {
        s.ctas_a_sm = l->waves * l->ctas;
        s.tail = l->waves > 1 ? 1 - l->waves / ceil(l->waves) : NAN;
        s.occupancy = l->max_warps > 0 ? (double)l->warps / l->max_warps : NAN;
        s.limited_by = l->limit;
    }
    if (!r->emulated) {
        s.gpu = true;
        s.spill_bytes = l->spill_bytes;
        s.time_s = own->us[1] * 1e-6; /* in a graph, as the launch floor */
        s.launch_s = r->launch_s > 0 ? r->launch_s : NAN;
        s.of_roof = own->share[0];
        s.bound = own->roof[0];
    }
    return report_causes_of(&s, &cause, 1) ? cause : NULL;
}

typedef struct advice {
    char line[MOST_LINES][512];
    int n;
} advice;

static void advise(advice *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void advise(advice *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (a->n < MOST_LINES)
        vsnprintf(a->line[a->n++], sizeof a->line[0], fmt, ap);
    va_end(ap);
}

static void advise_gpu(const own_kernel_report *r, const own_kernel_row *own, advice *a)
{
    const own_kernel_launch *l = &own->launch;
    const own_kernel_row *ours = best_of_ours(r, own, 0);
    bool slow = !isfinite(own->share[0]) || own->share[0] < 0.85;
    if (l->spill_bytes)
        advise(a,
               "It spills %d bytes a thread to memory: keep fewer values at once, or give "
               "LAB_KERNEL fewer threads, so that each may have more registers.",
               l->spill_bytes);
    if (slow && isfinite(l->waves) && l->waves < 1)
        advise(
            a,
            "The grid fills %.0f %% of the places that the SMs have: give a row to more threads.",
            100 * l->waves);
    if (slow && l->max_warps && l->warps * 2 < l->max_warps)
        advise(a,
               "%d of %d warps fit on an SM, limited by %s: each needs more bytes on its way, or "
               "there must be more of them.",
               l->warps, l->max_warps, l->limit);
    if (slow)
        advise(a,
               "Sectors per request (2 for 2-byte loads, 16 for 16-byte loads of neighbours): ncu "
               "--target-processes all -k lab_kernel --metrics "
               "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio vitrine lab "
               "kernel ...");
    if (slow && ours && isfinite(ours->us[0]) && ours->us[0] < 0.95 * own->us[0])
        advise(a, "Ours takes %.0f %% of its time: src/ops/%s has the kernel, with its reasons.",
               100 * ours->us[0] / own->us[0], r->op);
    if (!slow)
        advise(a,
               "It is at %.0f %% of the %s roof: what is left are turns of the memory bus between "
               "reads and writes.",
               100 * own->share[0], own->roof[0]);
}

static void advise_cpu(const own_kernel_report *r, const own_kernel_row *own, advice *a)
{
    const own_kernel_row *ours = best_of_ours(r, own, 0);
    if (ours && isfinite(ours->us[0]) && ours->us[0] < 0.95 * own->us[0])
        advise(a,
               "Warm, our %s takes %.0f %% of its time: are the loops vectorised? Compile with "
               "-fopt-info-vec-missed and -march=native.",
               ours->name, 100 * ours->us[0] / own->us[0]);
    if (isfinite(own->share[1]) && own->share[1] < 0.6)
        advise(a,
               "Cold, it moves %.0f %% of what memory gives: count how often it reads each byte "
               "(perf stat -e LLC-loads).",
               100 * own->share[1]);
    if (a->n == 0)
        advise(a,
               "It is as fast as ours, or faster: try it with other shapes (--shape) and threads.");
}

static void put_next(const own_kernel_report *r, const vt_term *term, vt_buf *b)
{
    const own_kernel_row *own = own_row(r);
    advice a = {.n = 0};
    const report_cause *cause = own_kernel_cause(r);
    if (cause && (r->emulated || noise_of(r) < MUCH_NOISE))
        advise(&a, "Seen: %s. Likely cause: %s. What to do: %s.", cause->seen, cause->cause,
               cause->action);
    if (!all_right(r))
        advise(&a, "Make it right first: the message says which case failed, and where.");
    else if (r->emulated)
        advise(&a, "Run it on a GPU: an emulated one shows results, races and the launch alone.");
    else if (!own)
        advise(&a, "It was not timed: see the message.");
    else if (noise_of(r) >= MUCH_NOISE)
        advise(&a, "Run it again when the machine is quiet: these times say little.");
    else if (r->gpu)
        advise_gpu(r, own, &a);
    else
        advise_cpu(r, own, &a);
    for (int i = 0; i < a.n; i++) {
        if (i == 0)
            branch(b, term, true, "NEXT");
        else
            more(b, true);
        vt_text_wrap(b, a.line[i], INDENT, term->width);
        vt_buf_putc(b, '\n');
    }
}

/* Appends the lines of `from`, cut to the terminal's width. No line has escape sequences beyond its
 * first columns. */
static void add_cut(vt_buf *b, const vt_buf *from, int32_t width)
{
    for (size_t at = 0; at < from->len;) {
        const char *line = from->data + at, *end = memchr(line, '\n', from->len - at);
        size_t n = end ? (size_t)(end - line) : from->len - at, kept = n;
        while (kept > 0 && (vt_text_width(line, kept) > width ||
                            (kept < n && ((unsigned char)line[kept] & 0xc0) == 0x80)))
            kept--;
        vt_buf_add(b, line, kept);
        vt_buf_putc(b, '\n');
        at += n + 1;
    }
}

void own_kernel_card(const own_kernel_report *r, const vt_term *term, vt_buf *out)
{
    vt_buf b = {0};
    int32_t width = term->width > 0 && term->width < VT_TERM_WIDTH ? term->width : VT_TERM_WIDTH;
    vt_buf_printf(&b, "%.40s as %s%s%s\n", r->file, r->op, r->machine[0] ? " on " : "", r->machine);
    put_check(r, term, &b);
    put_cost(r, term, &b);
    put_times(r, term, &b);
    put_hardware(r, term, &b);
    put_roofline(r, term, &b);
    put_next(r, term, &b);
    out->failed |= b.failed;
    add_cut(out, &b, width);
    vt_buf_release(&b);
}
