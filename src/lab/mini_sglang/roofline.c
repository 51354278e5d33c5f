/* A roofline in characters: both axes are logarithmic.
 *
 *   FLOP/s |       -----------   arithmetic roof
 *          |    /     P
 *          |  / 1 2 4            memory roof
 *          +-------------------- FLOPs a byte */
#include <math.h>
#include <string.h>

#include "lab/mini_sglang/mini_sglang.h"

enum { COLUMNS = 64, LINES = 14 };

/* From 1/4 to 1024 FLOPs a byte, and from `low` to twice the peak. */
static const double leftmost = -2, octaves = 12; /* powers of two */

typedef struct roofline {
    double peak, bandwidth, low;
    char cell[LINES][COLUMNS + 1];
} roofline;

static int column_of(double flop_per_byte)
{
    return (int)lround((log2(flop_per_byte) - leftmost) / octaves * (COLUMNS - 1));
}

static int line_of(const roofline *r, double per_s)
{
    return (int)lround((1 - log(per_s / r->low) / log(2 * r->peak / r->low)) * (LINES - 1));
}

static void draw_roofs(roofline *r)
{
    for (int line = 0; line < LINES; line++) {
        memset(r->cell[line], ' ', COLUMNS);
        r->cell[line][COLUMNS] = '\0';
    }
    for (int c = 0; c < COLUMNS; c++) {
        double x = exp2((double)c / (COLUMNS - 1) * octaves + leftmost),
               y = fmin(r->peak, x * r->bandwidth);
        int line = line_of(r, y);
        if (line >= 0 && line < LINES)
            r->cell[line][c] = y < r->peak ? '/' : '-';
    }
}

/* Right of a mark that is there already. */
static void put_mark(roofline *r, const mini_point *p)
{
    int c = column_of(p->flop_per_byte), line = line_of(r, p->per_s);
    if (c < 0 || c >= COLUMNS || line < 0 || line >= LINES)
        return;
    while (c + 1 < COLUMNS && !strchr(" /-", r->cell[line][c]))
        c++;
    r->cell[line][c] = p->mark;
}

static void put_lines(vt_buf *b, const roofline *r)
{
    for (int line = 0; line < LINES; line++) {
        double y = r->low * pow(2 * r->peak / r->low, 1 - (double)line / (LINES - 1));
        int last = COLUMNS;
        while (last > 0 && r->cell[line][last - 1] == ' ')
            last--;
        vt_buf_printf(b, "%9.3g | %.*s\n", y * 1e-9, last, r->cell[line]);
    }
    vt_buf_puts(b, "  GFLOP/s +-----------------------------------------------------------------\n"
                   "           0.25      1         4         16         64        256       1024 "
                   "FLOP/B\n");
}

void mini_roofline(lab *l, const char *key, const char *title, double peak, const mini_point *p,
                   int32_t n, const char *legend)
{
    roofline r = {.peak = peak, .bandwidth = l->roofs.memory_bytes_per_s};
    vt_buf b = {0};
    double least = r.bandwidth / 4;
    for (int32_t i = 0; i < n; i++)
        least = fmin(least, p[i].per_s);
    r.low = least / 1.5;
    draw_roofs(&r);
    for (int32_t i = 0; i < n; i++)
        put_mark(&r, &p[i]);
    put_lines(&b, &r);
    vt_text_printf(&b,
                   "  / memory roof %f B/s, - arithmetic roof %.3g GFLOP/s; the ridge is at %.1f "
                   "FLOP/B\n  %s\n",
                   r.bandwidth, r.peak * 1e-9, r.peak / r.bandwidth, legend);
    lab_drawing(l, key, title, &b);
    vt_buf_release(&b);
}
