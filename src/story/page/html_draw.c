/* Drawings of a story's page of HTML: sparks, the ribbon of tokens, the roofline. All are SVG. */
#include <math.h>
#include <string.h>

#include "base/term/figure.h"

#include "story/page/html.h"

void html_spark(vt_buf *b, const double *value, int32_t n)
{
    double least = INFINITY, most = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (isfinite(value[i])) {
            least = fmin(least, value[i]);
            most = fmax(most, value[i]);
        }
    if (!(most >= least))
        return;
    double span = most > least ? most - least : 1;
    bool line = false;
    vt_buf_puts(b, "<svg class=\"spark\" viewBox=\"0 0 200 24\" preserveAspectRatio=\"none\" "
                   "aria-hidden=\"true\"><path d=\"");
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(value[i])) {
            line = false;
            continue;
        }
        vt_buf_printf(b, "%s%.1f %.1f", line ? "L" : "M", n > 1 ? 200.0 * i / (n - 1) : 100,
                      22 - 20 * ((value[i] - least) / span));
        line = true;
    }
    vt_buf_puts(b, "\"/></svg>");
}

/* ---- the ribbon ---- */

void html_ribbon(vt_buf *b, const json_t *story)
{
    enum { MOST = 4096 };
    const json_t *request = story_get(story, "request");
    const json_t *gaps = story_get(story_get(request, "itl_ms"), "values");
    double p50 = story_num(request, "itl_p50_ms"), most = 0;
    size_t n = json_array_size(gaps);
    n = n > MOST ? MOST : n;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, json_number_value(json_array_get(gaps, i)));
    if (n < 2 || !(most > 0) || !isfinite(most) || !(p50 > 0))
        return;
    vt_buf_printf(b,
                  "<section id=\"ribbon\"><h2>TOKENS <small>one bar a token, as high as the time "
                  "since the one before it; the highest is %.2f ms</small></h2>\n"
                  "<svg class=\"ribbon\" viewBox=\"0 0 %zu 60\" preserveAspectRatio=\"none\">",
                  most, n);
    for (size_t i = 0; i < n; i++) {
        double ms = json_number_value(json_array_get(gaps, i));
        if (!(ms >= 0))
            continue;
        vt_buf_printf(b,
                      "<rect%s x=\"%zu\" y=\"%.1f\" width=\".9\" height=\"%.1f\"><title>token %zu: "
                      "%.2f ms</title></rect>",
                      ms > 1.5 * p50 ? " class=\"late\"" : "", i, 60 - 60 * ms / most,
                      fmax(60 * ms / most, 0.5), i + 1, ms);
    }
    vt_buf_puts(b, "</svg></section>\n");
}

/* ---- the roofline ---- */

/* Pixels beside the plot: the rates on its left, the names of roofs on its right. */
enum { LEFT = 84, RIGHT = 132 };

typedef struct roofline {
    vt_buf *b;
    double memory;         /* bytes/s */
    double x[2], y[2];     /* FLOP/byte and FLOP/s, as log10, of the borders */
    int32_t width, height; /* of the plot itself */
} roofline;

static double at_x(const roofline *r, double v)
{
    return LEFT + r->width * (log10(v) - r->x[0]) / (r->x[1] - r->x[0]);
}

static double at_y(const roofline *r, double v)
{
    return 10 + r->height * (1 - (log10(v) - r->y[0]) / (r->y[1] - r->y[0]));
}

typedef struct point {
    const json_t *op;
    double intensity, rate; /* FLOP/byte, FLOP/s */
} point;

static double sum_of(const json_t *o, const char *const *key)
{
    double sum = 0;
    for (; *key; key++)
        sum += fmax(0, story_num(o, *key));
    return sum;
}

/* False where an op has no FLOPs, no bytes or no time. */
static bool read_point(const json_t *op, point *out)
{
    static const char *const bytes[] = {"weights", "kv", "activations", NULL};
    static const char *const flops[] = {"fp32", "bf16", "fp8", "int8", NULL};
    double n = sum_of(story_get(op, "flops"), flops),
           moved = sum_of(story_get(op, "expected_bytes"), bytes), us = story_num(op, "time_us");
    *out = (point){op, n / moved, n / us * 1e6};
    return n > 0 && moved > 0 && us > 0 && isfinite(out->intensity) && isfinite(out->rate) &&
           out->intensity > 1e-6 && out->intensity < 1e9 && out->rate > 1 && out->rate < 1e18;
}

/* Calls `each` for all points of all phases. */
static void each_point(const json_t *story, void (*each)(roofline *, const char *, const point *),
                       roofline *r)
{
    size_t i, k;
    const json_t *phase, *op;
    json_array_foreach(story_get(story, "phases"), i, phase)
    {
        char name[STORY_TEXT];
        story_text(phase, "name", name);
        json_array_foreach(story_get(phase, "ops"), k, op)
        {
            point p;
            if (k < STORY_ROWS && read_point(op, &p))
                each(r, name, &p);
        }
    }
}

static void widen(roofline *r, const char *phase, const point *p)
{
    (void)phase;
    r->x[0] = fmin(r->x[0], log10(p->intensity));
    r->x[1] = fmax(r->x[1], log10(p->intensity));
    r->y[0] = fmin(r->y[0], log10(p->rate));
    r->y[1] = fmax(r->y[1], log10(p->rate));
}

static void put_point(roofline *r, const char *phase, const point *p)
{
    char kind[STORY_TEXT];
    double share = story_num(p->op, "share"), us = story_num(p->op, "time_us");
    share = share >= 0 && share <= 1 ? share : 0;
    vt_buf_printf(r->b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>",
                  strcmp(phase, "decode") == 0 ? "decode" : "prefill", at_x(r, p->intensity),
                  at_y(r, p->rate), 3 + 9 * sqrt(share));
    html_text(r->b, phase);
    vt_buf_putc(r->b, ' ');
    html_text(r->b, story_text(p->op, "kind", kind));
    vt_buf_printf(r->b, ": %.2f FLOP/byte, %.3g GFLOP/s, %.1f us a step, %.1f %% of it",
                  p->intensity, p->rate / 1e9, us, 100 * share);
    vt_buf_puts(r->b, "</title></circle>\n");
}

/* The slope of the memory and a line for each kind of arithmetic, from where they meet. */
static void put_roofs(const roofline *r, const json_t *roofs)
{
    static const struct {
        const char *key, *name;
    } roof[] = {{"fp32_per_s", "fp32"},
                {"bf16_per_s", "bf16"},
                {"fp8_per_s", "fp8"},
                {"int8_per_s", "int8"}};
    double end = pow(10, r->x[1]), top = 0, label = INFINITY;
    for (size_t i = 0; i < sizeof roof / sizeof *roof; i++) {
        double peak = story_num(roofs, roof[i].key);
        if (!(peak > 1 && peak < 1e18))
            continue;
        top = fmax(top, peak);
        /* beside the plot, above the label before it: two roofs may lie close together */
        label = fmin(at_y(r, peak) + 4, label - 13);
        vt_buf_printf(r->b,
                      "<line class=\"roof\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\">%s %s</text>\n",
                      at_x(r, fmin(peak / r->memory, end)), at_y(r, peak), at_x(r, end),
                      at_y(r, peak), at_x(r, end) + 6, label, roof[i].name,
                      vt_figure_of(peak, VT_FLOP_PER_S).text);
    }
    double begin = pow(10, r->x[0]), knee = top > 0 ? fmin(top / r->memory, end) : end;
    vt_buf_printf(r->b,
                  "<line class=\"roof\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                  "<text x=\"%d\" y=\"24\">memory %s</text>\n",
                  at_x(r, begin), at_y(r, begin * r->memory), at_x(r, knee),
                  at_y(r, knee * r->memory), LEFT + 4,
                  vt_figure_of(r->memory, VT_BYTES_PER_S).text);
}

static void put_axes(const roofline *r)
{
    for (double e = ceil(r->x[0]); e <= r->x[1]; e++)
        vt_buf_printf(r->b,
                      "<line class=\"grid\" x1=\"%.1f\" y1=\"10\" x2=\"%.1f\" y2=\"%d\"/><text "
                      "class=\"middle\" x=\"%.1f\" y=\"%d\">%g</text>\n",
                      at_x(r, pow(10, e)), at_x(r, pow(10, e)), 10 + r->height, at_x(r, pow(10, e)),
                      26 + r->height, pow(10, e));
    for (double e = ceil(r->y[0]); e <= r->y[1]; e++)
        vt_buf_printf(r->b,
                      "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text "
                      "class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                      LEFT, at_y(r, pow(10, e)), LEFT + r->width, at_y(r, pow(10, e)), LEFT - 6,
                      at_y(r, pow(10, e)) + 4, vt_figure_of(pow(10, e), VT_FLOP_PER_S).text);
}

/* ---- the trail: the step as a whole, from prefill to decodes of more and more sequences ---- */

/* False where the point has no place in the drawing. */
static bool read_stop(const json_t *trail, size_t i, point *out)
{
    const json_t *x = json_array_get(trail, i);
    double flops = story_num(x, "flops");
    *out = (point){x, flops / story_num(x, "bytes"), flops / story_num(x, "step_us") * 1e6};
    return isfinite(out->intensity) && isfinite(out->rate) && out->intensity > 1e-6 &&
           out->intensity < 1e9 && out->rate > 1 && out->rate < 1e18;
}

static bool is_measured(const json_t *stop) { return story_num(stop, "steps") > 0; }

/* *labelled is where the newest label of a modelled stop begins: the next one needs room beside
 * it, or has none. Measured ones always have theirs. */
static void put_stop(const roofline *r, const point *at, double *labelled)
{
    char phase[STORY_TEXT];
    double n = story_num(at->op, "sequences");
    vt_buf_printf(
        r->b, "<rect class=\"step%s\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\"><title>",
        is_measured(at->op) ? "" : " hollow", at_x(r, at->intensity) - 4, at_y(r, at->rate) - 4);
    html_text(r->b, is_measured(at->op) ? "measured " : "modelled ");
    html_text(r->b, story_text(at->op, "phase", phase));
    vt_buf_printf(r->b, " step of %.4g sequences: %.3g FLOP a byte, %.3g GFLOP/s, %.1f us", n,
                  at->intensity, at->rate / 1e9, story_num(at->op, "step_us"));
    vt_buf_puts(r->b, "</title></rect>\n");
    bool prefill = strcmp(phase, "prefill") == 0;
    double x = at_x(r, at->intensity) + 7;
    if (!prefill && !is_measured(at->op) && x < *labelled + 22)
        return;
    *labelled = prefill ? *labelled : x;
    vt_buf_printf(r->b, "<text class=\"stop\" x=\"%.1f\" y=\"%.1f\">", x,
                  at_y(r, at->rate) + (prefill ? 26 : 14));
    if (prefill)
        vt_buf_puts(r->b, "prefill");
    else
        vt_buf_printf(r->b, "%.3g", n);
    vt_buf_puts(r->b, "</text>\n");
}

/* A line from stop to stop, in the order of the list; where it leads to a modelled one it is
 * dashed. */
static void put_trail(roofline *r, const json_t *trail)
{
    point before = {0}, now;
    double labelled = -INFINITY;
    for (size_t i = 0; i < json_array_size(trail) && i < STORY_ROWS; i++) {
        if (!read_stop(trail, i, &now))
            continue;
        if (before.op)
            vt_buf_printf(r->b,
                          "<line class=\"trail%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                          "y2=\"%.1f\"/>\n",
                          is_measured(now.op) ? "" : " model", at_x(r, before.intensity),
                          at_y(r, before.rate), at_x(r, now.intensity), at_y(r, now.rate));
        before = now;
    }
    for (size_t i = 0; i < json_array_size(trail) && i < STORY_ROWS; i++)
        if (read_stop(trail, i, &now))
            put_stop(r, &now, &labelled);
}

void html_roofline(vt_buf *b, const json_t *story)
{
    const json_t *trail = story_get(story, "trail");
    point stop;
    const json_t *roofs = story_get(story, "roofs");
    static const char *const peak[] = {"fp32_per_s", "bf16_per_s", "fp8_per_s", "int8_per_s"};
    roofline r = {.b = b,
                  .memory = story_num(roofs, "memory_bytes_per_s"),
                  .x = {INFINITY, -INFINITY},
                  .y = {INFINITY, -INFINITY},
                  .width = 640,
                  .height = 300};
    if (!(r.memory > 1 && r.memory < 1e18))
        return;
    each_point(story, widen, &r);
    for (size_t i = 0; i < json_array_size(trail) && i < STORY_ROWS; i++)
        if (read_stop(trail, i, &stop))
            widen(&r, "", &stop);
    if (!(r.x[1] >= r.x[0]))
        return;
    for (size_t i = 0; i < sizeof peak / sizeof *peak; i++) {
        double v = story_num(roofs, peak[i]);
        if (v > 1 && v < 1e18) {
            r.y[1] = fmax(r.y[1], log10(v));
            r.x[1] = fmax(r.x[1], log10(v / r.memory));
        }
    }
    /* whole decades, with room for a circle on their borders */
    r.x[0] = floor(r.x[0] - 0.05);
    r.x[1] = floor(r.x[1] + 0.05) + 1;
    r.y[0] = floor(r.y[0] - 0.05);
    r.y[1] = floor(r.y[1] + 0.05) + 1;
    vt_buf_printf(
        b,
        "<section id=\"roofline\"><h2>ROOFLINE <small>FLOP/byte that each op must do, and "
        "FLOP/s that it did, under measured roofs; larger circles take more of the "
        "step; squares are whole steps, prefill and decodes of so many sequences, hollow where "
        "modelled</small></h2>\n<div class=\"scroll\"><svg class=\"roofline\" viewBox=\"0 -10 "
        "%d %d\">",
        LEFT + r.width + RIGHT, 60 + r.height);
    put_axes(&r);
    put_roofs(&r, roofs);
    each_point(story, put_point, &r);
    put_trail(&r, trail);
    vt_buf_printf(b,
                  "<text x=\"%d\" y=\"%d\">FLOP/byte</text><g transform=\"translate(%d, %d)\">"
                  "<circle class=\"prefill\" r=\"5\"/><text x=\"10\" y=\"4\">prefill</text>"
                  "<circle class=\"decode\" cx=\"80\" r=\"5\"/><text x=\"90\" y=\"4\">decode"
                  "</text></g></svg></div></section>\n",
                  LEFT, 44 + r.height, LEFT + 100, 40 + r.height);
}
