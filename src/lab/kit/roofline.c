/* Drawing a roofline (roofline.h). Both axes are logarithmic: a column is a fixed factor of
 * intensity, a line a fixed factor of FLOP/s. */
#include "lab/kit/roofline.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 72, LINES = 14, LEFT = 11 };

roofline_roof lab_roof(const lab *l, bool matrix)
{
    const vt_roofs *r = &l->roofs;
    bool bf16 = matrix && r->is_gpu;
    return (roofline_roof){.bytes_per_s = r->memory_bytes_per_s,
                           .flops_per_s = bf16 ? r->bf16_per_s : r->fp32_per_s,
                           .memory = "memory read",
                           .unit = bf16 ? "bf16" : "fp32"};
}

double roofline_ridge(const roofline_roof *r)
{
    return r->bytes_per_s > 0 && r->flops_per_s > 0 ? r->flops_per_s / r->bytes_per_s : NAN;
}

/* The ranges of the axes: x is log2 of FLOP/byte, y log2 of FLOP/s. */
typedef struct axes {
    double x0, x1, y0, y1;
} axes;

static double limit_at(const roofline_roof *r, double intensity)
{
    return fmin(intensity * r->bytes_per_s, r->flops_per_s);
}

static bool is_shown(const roofline_point *p)
{
    return isfinite(p->seconds) && p->seconds > 0 && p->bytes > 0 && p->flops > 0;
}

static axes axes_of(const roofline_roof *r, const roofline_point *point, int32_t n)
{
    double ridge = log2(roofline_ridge(r)), top = log2(r->flops_per_s);
    axes a = {.x0 = ridge - 3, .x1 = ridge + 3, .y1 = top, .y0 = top - 3};
    for (int32_t i = 0; i < n; i++)
        if (is_shown(&point[i])) {
            double x = log2(point[i].flops / point[i].bytes),
                   y = log2(point[i].flops / point[i].seconds);
            a.x0 = fmin(a.x0, floor(x) - 1);
            a.x1 = fmax(a.x1, ceil(x) + 1);
            a.y0 = fmin(a.y0, floor(y) - 1);
            a.y1 = fmax(a.y1, y);
        }
    return a;
}

static int column_of(const axes *a, double x)
{
    int c = (int)lround((x - a->x0) / (a->x1 - a->x0) * (COLUMNS - 1));
    return c < 0 ? 0 : c >= COLUMNS ? COLUMNS - 1 : c;
}

static int line_of(const axes *a, double y) /* 0: the top */
{
    int k = (int)lround((a->y1 - y) / (a->y1 - a->y0) * (LINES - 1));
    return k < 0 ? 0 : k >= LINES ? LINES - 1 : k;
}

/* The grid: 0 is empty, '/' and '-' are the roof, letters are points; '*' where several lie, and
 * whether there is such a place is returned. */
static bool fill(char grid[LINES][COLUMNS], const axes *a, const roofline_roof *r,
                 const roofline_point *point, int32_t n)
{
    bool several = false;
    memset(grid, 0, LINES * COLUMNS);
    for (int c = 0; c < COLUMNS; c++) {
        double x = a->x0 + (a->x1 - a->x0) * c / (COLUMNS - 1), y = limit_at(r, exp2(x));
        if (log2(y) >= a->y0)
            grid[line_of(a, log2(y))][c] = y < r->flops_per_s ? '/' : '-';
    }
    for (int32_t i = 0; i < n; i++)
        if (is_shown(&point[i])) {
            char *at = &grid[line_of(a, log2(point[i].flops / point[i].seconds))]
                            [column_of(a, log2(point[i].flops / point[i].bytes))];
            bool empty = *at == 0 || *at == '/' || *at == '-';
            *at = empty ? (char)('A' + i) : '*';
            several |= !empty;
        }
    return several;
}

static void put_grid(vt_buf *b, char grid[LINES][COLUMNS], const axes *a)
{
    for (int k = 0; k < LINES; k++) {
        size_t begin = b->len;
        if (k % 4 == 0) {
            double y = exp2(a->y1 - (a->y1 - a->y0) * k / (LINES - 1));
            vt_text_rate(b, y, "FLOP");
        }
        vt_text_pad(b, begin, LEFT + 3);
        vt_buf_puts(b, "│");
        int last = COLUMNS - 1;
        while (last >= 0 && !grid[k][last])
            last--;
        for (int c = 0; c <= last; c++) {
            char g = grid[k][c];
            vt_buf_puts(b, g == '/' ? "╱" : g == '-' ? "─" : (char[]){g ? g : ' ', 0});
        }
        vt_buf_putc(b, '\n');
    }
}

static void put_scale(vt_buf *b, const axes *a)
{
    size_t begin = b->len;
    vt_text_pad(b, begin, LEFT + 3);
    vt_buf_puts(b, "└");
    for (int c = 0; c < COLUMNS; c++)
        vt_buf_puts(b, "─");
    vt_buf_putc(b, '\n');
    begin = b->len;
    int32_t used = 0;
    for (int x = (int)ceil(a->x0); x <= (int)a->x1; x++) {
        int32_t at = LEFT + 4 + column_of(a, x);
        if ((x % 2 && a->x1 - a->x0 > 8) || at < used || at > LEFT + COLUMNS - 14)
            continue;
        vt_text_pad(b, begin, at);
        vt_buf_printf(b, "%g", exp2(x));
        used = vt_text_width(b->data + begin, b->len - begin) + 2;
    }
    vt_buf_puts(b, "  FLOP/byte\n");
}

static void put_legend(vt_buf *b, const roofline_roof *r, const roofline_point *point, int32_t n,
                       bool several)
{
    bool above = false;
    vt_buf_printf(b, "ridge at %.3g FLOP/byte: left of it %s limits, right of it %s\n",
                  roofline_ridge(r), r->memory, r->unit);
    for (int32_t i = 0; i < n; i++) {
        const roofline_point *p = &point[i];
        size_t begin = b->len;
        if (!is_shown(p))
            continue;
        double intensity = p->flops / p->bytes, rate = p->flops / p->seconds;
        vt_buf_printf(b, "%c  %.36s", 'A' + i, p->name);
        vt_text_pad(b, begin, 41);
        vt_text_printf(b, "%7.3g FLOP/byte  %f FLOP/s", intensity, rate);
        vt_text_pad(b, begin, 73);
        double share = rate / limit_at(r, intensity);
        if (share > 1) /* its bytes lie nearer than in the memory whose roof is drawn */
            vt_buf_puts(b, "above its roof\n");
        else
            vt_buf_printf(b, "%3.0f %% of its roof\n", 100 * share);
        above |= share > 1;
    }
    if (above)
        vt_buf_printf(b, "above its roof: its bytes come from a cache, so %s does not limit it\n",
                      r->memory);
    if (several)
        vt_buf_puts(b, "*  several of these on one spot\n");
}

void lab_roofline(lab *l, const char *key, const char *title, const roofline_roof *roof,
                  const roofline_point *point, int32_t n)
{
    char grid[LINES][COLUMNS];
    vt_buf b = {0};
    int32_t shown = 0;
    n = n < ROOFLINE_POINTS ? n : ROOFLINE_POINTS;
    for (int32_t i = 0; i < n; i++)
        shown += is_shown(&point[i]);
    if (isnan(roofline_ridge(roof)) || shown == 0) {
        lab_missing(l, key, "%s",
                    l->emulated ? "an emulated GPU has no times and no roofs"
                                : "no roof of this device was measured");
        return;
    }
    axes a = axes_of(roof, point, n);
    bool several = fill(grid, &a, roof, point, n);
    put_grid(&b, grid, &a);
    put_scale(&b, &a);
    put_legend(&b, roof, point, n, several);
    lab_drawing(l, key, title, &b);
    vt_buf_release(&b);
}
