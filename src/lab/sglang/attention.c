/* Lab sglang 05: one attention kernel, looked at closely.
 *
 *   tiles, work, roles   how the row that an engine would choose cuts each shape
 *   roofline             operations a byte against operations a second, from decode to prefill
 *   counters             what ncu reads (--ncu), beside the bytes that the shapes need
 *
 * The trail of the roofline is one of queries: each new query of a sequence uses the K and V that
 * are read anyway. More sequences do not move a decode to the right, because each brings K and V of
 * its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/sglang/attention.h"
#include "lab/sglang/inside.h"

/* Heads as the documents of this track have them: 32, 8 of K and V, of 128. */
static const sglang_heads heads = {32, 8, 128, 0, 0};

typedef struct point {
    bool decode, heavy; /* heavy: --quick leaves it out on a CPU */
    int32_t seqs, q_len, kv_len;
    char name[48], shape[160];
    bool ran;
    lab_kernel k;
} point;

enum { POINTS = 8 };

typedef struct dive {
    point p[POINTS];
    bool want[2]; /* prefill, decode */
} dive;

static const char *op_of(const point *p)
{
    return p->decode ? "attention_decode" : "attention_prefill";
}

static void make_points(const lab *l, dive *d)
{
    static const point all[POINTS] = {
        {.decode = true, .seqs = 1, .q_len = 1, .kv_len = 1024},
        {.decode = true, .seqs = 4, .q_len = 1, .kv_len = 1024},
        {.decode = true, .heavy = true, .seqs = 32, .q_len = 1, .kv_len = 4096},
        {.seqs = 1, .q_len = 16, .kv_len = 512},
        {.seqs = 1, .q_len = 128, .kv_len = 512},
        {.seqs = 1, .q_len = 512, .kv_len = 512},
        {.heavy = true, .seqs = 1, .q_len = 1024, .kv_len = 1024},
        {.heavy = true, .seqs = 4, .q_len = 512, .kv_len = 512}};
    int32_t shrink = l->emulated ? 8 : 1;
    memcpy(d->p, all, sizeof all);
    for (int i = 0; i < POINTS; i++) {
        point *p = &d->p[i];
        p->q_len = p->decode ? 1 : p->q_len / shrink;
        p->kv_len /= shrink;
        sglang_attention_shape(l, &heads, p->seqs, p->q_len, p->kv_len, p->shape);
        snprintf(p->name, sizeof p->name, p->decode ? "decode %d x %d" : "prefill %d x %d of %d",
                 p->seqs, p->decode ? p->kv_len : p->q_len, p->kv_len);
    }
}

static vt_status read_kernel(const lab *l, dive *d, vt_err *err)
{
    const char *name = lab_text(l, "kernel");
    d->want[0] = !name || strstr(name, "prefill");
    d->want[1] = !name || strstr(name, "decode");
    if (!d->want[0] && !d->want[1])
        return vt_fail(err, VT_ERR_USAGE,
                       "--kernel: '%.40s', expected attention_prefill or attention_decode", name);
    return VT_OK;
}

/* ---- how the work is cut ---- */

/* The part of a row's description that holds `word`, without the ", " around it; "" where none
 * does. */
static void cut_part(const char *cut, const char *word, char *out, size_t size)
{
    const char *at = strstr(cut, word);
    *out = '\0';
    if (!at)
        return;
    while (at > cut && at[-1] != ',')
        at--;
    at += strspn(at, " ");
    snprintf(out, size, "%.*s", (int)strcspn(at, ","), at);
}

/* Copies what stands after the width of the loads: roles of warps, and how parts are merged. */
static void cut_roles(const char *cut, char *out, size_t size)
{
    const char *at = strstr(cut, "loads of ");
    at = at ? strchr(at, ',') : NULL;
    snprintf(out, size, "%s", at ? at + 2 : "");
}

/* A table of one part of each description; `none`: where a row has no such part. */
static void tell_part(lab *l, const dive *d, const char *key, const char *title,
                      const char *columns, const char *word, const char *none)
{
    char text[200];
    lab_table(l, key, title, columns);
    for (int i = 0; i < POINTS; i++) {
        const point *p = &d->p[i];
        if (!p->ran)
            continue;
        if (word)
            cut_part(p->k.cut, word, text, sizeof text);
        else
            cut_roles(p->k.cut, text, sizeof text);
        lab_cells(l, "%s|%s|%s", p->name, p->k.impl, *text ? text : none);
        if (word && strcmp(word, "tiles of") == 0) {
            cut_part(p->k.cut, "loads of", text, sizeof text);
            lab_cell(l, "%s", text);
        }
    }
}

static void tell_cuts(lab *l, const dive *d)
{
    tell_part(l, d, "tiles", "Query rows x head dimension x keys that one piece of work handles",
              "shape|row|tiles|loads", "tiles of", "not tiled");
    tell_part(l, d, "work",
              "Pieces of work over workers; a last wave that is not full leaves some idle",
              "shape|row|items", " item", "not described");
    tell_part(l, d, "roles",
              l->ordinal >= 0 ? "What the warps of a CTA do, and how parts are merged"
                              : "All workers of a CPU do the same; how parts are merged",
              "shape|row|roles and merging", NULL, "every warp does the same, nothing is merged");
}

/* ---- hardware ---- */

static void tell_occupancy(lab *l, const dive *d)
{
    if (l->ordinal < 0) {
        lab_item(l, "occupancy",
                 "a core holds one worker, so a CPU has no occupancy to compute; %d worker%s can "
                 "be busy at once if there are as many items. A decode of one sequence has as "
                 "many items as heads of K and V, %d here",
                 l->threads, l->threads == 1 ? "" : "s", heads.kv_heads);
        return;
    }
    lab_table(l, "occupancy",
              "Warps that an SM can hold of the most it could, by registers, shared "
              "memory and size of the CTA",
              "shape|kernel|>registers|>CTAs|>occupancy|limiter|>waves|>tail");
    for (int i = 0; i < POINTS; i++) {
        const point *p = &d->p[i];
        if (!p->ran)
            continue;
        lab_cells(l, "%s|%.24s|%d|%d|%f share|%s|%.2f|%f share", p->name, p->k.kernel,
                  p->k.registers, p->k.ctas_per_sm, p->k.occupancy, p->k.limited_by, p->k.waves,
                  p->k.tail);
    }
}

/* The unit that attention multiplies with: the matrix unit of a GPU, fp32 on a CPU. */
static double peak_of(const lab *l)
{
    return l->ordinal >= 0 ? l->roofs.bf16_per_s : l->roofs.fp32_per_s;
}

/* Logarithms on both axes; `·` is the roof, letters are the shapes. */
static void draw_roofline(vt_buf *b, const lab *l, const dive *d)
{
    enum { W = 64, H = 12 };
    char cell[H][W + 1];
    double memory = vt_roofs_bandwidth(&l->roofs), peak = peak_of(l);
    double x0 = log10(0.5), x1 = log10(4096), y1 = log10(peak * 1.5), y0 = y1 - 3;
    for (int y = 0; y < H; y++)
        memset(cell[y], ' ', W);
    for (int x = 0; x < W; x++) {
        double at = pow(10, x0 + (x + 0.5) * (x1 - x0) / W), roof = fmin(memory * at, peak);
        int y = (int)((log10(roof) - y0) / (y1 - y0) * H);
        if (y >= 0 && y < H)
            cell[y][x] = '.';
    }
    for (int i = 0; i < POINTS; i++) {
        const lab_kernel *k = &d->p[i].k;
        if (!d->p[i].ran || !(k->median_s > 0))
            continue;
        int x = (int)((log10(k->flops / k->bytes) - x0) / (x1 - x0) * W),
            y = (int)((log10(k->flops / k->median_s) - y0) / (y1 - y0) * H);
        while (x >= 0 && x + 1 < W && y >= 0 && y < H && cell[y][x] >= 'a')
            x++; /* beside a shape that stands there already */
        if (x >= 0 && x < W && y >= 0 && y < H)
            cell[y][x] = (char)('a' + i);
    }
    vt_text_printf(b, "FLOP/s; the flat roof is %f FLOP/s, the slope %f B/s\n", peak, memory);
    for (int y = H - 1; y >= 0; y--)
        vt_buf_printf(b, "%8.1e |%.*s\n", pow(10, y0 + (y + 0.5) * (y1 - y0) / H), W, cell[y]);
    vt_buf_printf(b, "         +%.*s\n", W,
                  "----------------------------------------------------------------");
    vt_buf_puts(b, "          0.5 FLOP/byte                                             4096\n");
    for (int i = 0; i < POINTS; i++) {
        const lab_kernel *k = &d->p[i].k;
        if (!d->p[i].ran)
            continue;
        vt_buf_printf(b, "  %c  %-24s %8.1f FLOP/byte  %8.2f GFLOP/s  ", 'a' + i, d->p[i].name,
                      k->flops / k->bytes, k->flops / k->median_s * 1e-9);
        if (isfinite(k->of_roof))
            vt_buf_printf(b, "%3.0f %% of its %s roof\n", 100 * k->of_roof, k->bound);
        else
            vt_buf_printf(b, "bound by %s\n", k->bound);
    }
}

static void tell_roofline(lab *l, const dive *d)
{
    vt_buf b = {0};
    if (l->emulated) {
        lab_missing(l, "roofline", "an emulated GPU has no speed");
        return;
    }
    draw_roofline(&b, l, d);
    lab_drawing(l, "roofline", "From decode to prefill: more queries use each byte of K and V", &b);
    vt_buf_release(&b);
}

/* ---- all ---- */

static vt_status run_points(lab *l, dive *d, vt_err *err)
{
    for (int i = 0; i < POINTS; i++) {
        point *p = &d->p[i];
        vt_err why;
        if (!d->want[p->decode] || (p->heavy && (l->emulated || (l->quick && l->ordinal < 0))))
            continue;
        vt_status status = lab_kernel_run(l, &(lab_kernel_ask){.op = op_of(p), .shape = p->shape},
                                          &p->k, &why);
        if (status == VT_ERR_UNSUPPORTED) {
            lab_finding(l, "shape.unsupported", "%s: %s", p->name, why.message);
            continue;
        }
        if (status != VT_OK)
            return vt_fail(err, status, "%s", why.message);
        p->ran = true;
    }
    if (l->quick && l->ordinal < 0)
        lab_finding(l, "form.quick",
                    "decode 32 x 4096, prefill 1024 and prefill 4 x 512 run in the full form only: "
                    "their check against the reference takes seconds on a CPU");
    return VT_OK;
}

/* The shape that the prediction and the card are about. */
static const point *main_point(const dive *d) { return d->want[0] ? &d->p[5] : &d->p[0]; }

/* Queries of one sequence together instead of one after the other. */
static void turn(lab *l, const dive *d)
{
    const point *one = &d->p[0], *four = &d->p[1];
    if (!one->ran || !four->ran)
        return;
    lab_turn(l,
             &(lab_knob){.name = "four decodes at once",
                         .where = "--max-running",
                         .what = "attention of one sequence at 1,024 tokens",
                         .gain = 4 * one->k.least_s / four->k.least_s,
                         .before_s = one->k.median_s,
                         .before_noise = one->k.noise,
                         .after_s = four->k.median_s / 4,
                         .after_noise = four->k.noise,
                         .why = "each sequence has its own K and V, so the bytes a sequence stay; "
                                "more items fill more workers, and the start is paid once"});
}

static vt_status measure(lab *l, dive *d, vt_err *err)
{
    char what[80];
    TRY(read_kernel(l, d, err));
    make_points(l, d);
    const point *p = main_point(d);
    snprintf(what, sizeof what, "%s %s", op_of(p), p->name);
    TRY(lab_kernel_predict(
        l, what, &(lab_kernel_ask){.op = op_of(p), .shape = p->shape},
        "FLOPs and bytes of the card over the measured roofs, and a launch or a meeting", err));
    TRY(run_points(l, d, err));
    if (p->ran)
        lab_outcome(l, what, p->k.median_s, p->k.disturbed);
    tell_cuts(l, d);
    if (p->ran)
        lab_kernel_card(l, "card", &p->k,
                        p->decode ? "softmax(q K^T) V for one new token of each sequence"
                                  : "causal softmax(Q K^T) V for new tokens, tile by tile with a "
                                    "running maximum and sum (online softmax)",
                        p->decode ? "smaller elements of K and V (--kv-dtype fp8) halve the bytes"
                                  : "larger tiles of queries use each key more often, as far as "
                                    "registers and shared memory allow");
    else
        lab_missing(l, "card", "no row here takes the shape %s", p->shape);
    tell_occupancy(l, d);
    tell_roofline(l, d);
    turn(l, d);
    sglang_ncu(l, op_of(p), p->shape, p->ran ? &p->k : NULL);
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    dive *d = calloc(1, sizeof *d);
    if (!d)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a lab");
    vt_status status = measure(l, d, err);
    free(d);
    return status;
}

const lab_def sglang_attention = {
    .track = LAB_SGLANG,
    .number = "05",
    .name = "attention_deep_dive",
    .goal = "You can say how an attention kernel cuts its work, what limits it, and where it "
            "stands on the roofline.",
    .about = {"The row that an engine would choose runs on decode and prefill shapes of 32 heads.",
              "A decode reads K and V once for one query; a prefill uses them for many.",
              "On a GPU with ncu, counters say what the shapes cannot: --ncu."},
    .alias = {"05_ncu_attention.sh", "05_attention_deep_dive.py"},
    .knobs = {{"--max-running", LAB_LOAD}},
    .items = {{"tiles", "tiles of each shape", false},
              {"work", "work distribution: items, workers, waves", false},
              {"roles", "specialised warps, and how split parts are merged", false},
              {"card", "the kernel's card", false},
              {"occupancy", "occupancy and its limiter", true},
              {"roofline", "position on the roofline", true},
              {"stalls", "stall reasons with their meaning", true},
              {"counters", "bytes moved, matrix unit, achieved occupancy, by ncu (--ncu)", true}},
    .kernels = true,
    .run = run,
};
