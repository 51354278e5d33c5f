/* final-report.md: what was found, what was tried, what is open (report_inside.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/physics.h"
#include "lab/report_inside.h"
#include "lab/result.h"
#include "lab/status.h"

/* ---- the machine, and a finding a lab ---- */

static void hardware_box(const report *r, vt_buf *b)
{
    static const vt_roof_kind shown[] = {VT_ROOF_MEMORY, VT_ROOF_COPY,    VT_ROOF_L2,
                                         VT_ROOF_FP32,   VT_ROOF_BF16,    VT_ROOF_INT8,
                                         VT_ROOF_KERNEL, VT_ROOF_MEETING, VT_ROOF_TO_DEVICE};
    vt_buf_printf(b, "```\n%s, device %s\n", report_string(r->of_machine, "name"),
                  r->of_machine ? report_string(r->of_machine, "device") : "not known yet");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        double v = vt_roof_get(&r->roofs, shown[i]);
        const vt_roof_row *row = &vt_roof_rows[shown[i]];
        if (!(v > 0))
            continue;
        vt_buf_printf(b, "├── %-24s ", row->name);
        lab_put(b, v,
                !row->unit          ? LAB_SECONDS
                : *row->unit == 'B' ? LAB_BYTES_PER_S
                                    : LAB_FLOP_PER_S);
        vt_buf_putc(b, '\n');
    }
    vt_buf_printf(b, "└── %d of %d labs run, %d of them in the quick form\n```\n\n", r->n_run, r->n,
                  r->n_quick);
    if (r->of_machine)
        report_caches(r, b);
}

static void key_findings(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "| lab | state | key finding |\n|---|---|---|\n");
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        const json_t *result = r->result[i];
        vt_buf_printf(b, "| %s %s | ", d->number, d->name);
        if (!result) {
            vt_buf_puts(b, "open | ");
            vt_buf line = {0};
            report_not_run(d, &line);
            report_cell(b, line.data ? line.data : "");
            vt_buf_release(&line);
            vt_buf_puts(b, " |\n");
            continue;
        }
        vt_buf_printf(b, "%s | ", report_string(result, "state"));
        const json_t *finding = report_first_finding(result);
        const lab_item_def *item = d->items;
        vt_buf line = {0};
        if (finding)
            vt_buf_puts(&line, report_string(finding, "text"));
        else
            for (; item->key && !line.len; item++) {
                const json_t *o = json_object_get(json_object_get(result, "items"), item->key);
                if (!json_object_get(o, "missing"))
                    report_item_line(o, &line);
            }
        report_cell(b, line.len ? line.data : "nothing was measured here");
        vt_buf_release(&line);
        vt_buf_puts(b, " |\n");
    }
    vt_buf_putc(b, '\n');
}

/* ---- timelines ---- */

/* The first of these items that was measured, of any lab of the track; false: none. */
static bool first_item(const report *r, const char *const *keys, vt_buf *b)
{
    for (; *keys; keys++)
        for (int i = 0; i < r->n; i++)
            for (const lab_item_def *item = r->lab[i]->items; item->key; item++) {
                const json_t *o = json_object_get(json_object_get(r->result[i], "items"), *keys);
                if (strcmp(item->key, *keys) != 0 || !o || json_object_get(o, "missing"))
                    continue;
                vt_buf_printf(b, "From lab %s %s. ", r->lab[i]->number, r->lab[i]->name);
                report_item(o, item, b);
                return true;
            }
    return false;
}

static void timelines(const report *r, vt_buf *b)
{
    static const char *const request[] = {"steps", "breakdown", "pass", "order", "timeline", NULL},
                             *const ranks[] = {"flow",  "layer_share",    "prediction",
                                               "sizes", "configurations", NULL};
    vt_buf_puts(b, "## One request\n\n");
    if (!first_item(r, request, b))
        vt_buf_puts(b, "This track has no timeline of a request in these results: `vitrine lab "
                       "sglang 01` makes one.\n\n");
    vt_buf_puts(b, "## Communication\n\n");
    if (!first_item(r, ranks, b))
        vt_buf_puts(b, "not run here yet: `vitrine lab sglang 06` and `vitrine lab mini-sglang 05` "
                       "tell what one rank allows.\n\n");
}

/* ---- opportunities ---- */

static int knobs_of(const report *r, const char *verdict, vt_buf *b)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        size_t at;
        json_t *k;
        json_array_foreach(json_object_get(r->result[i], "knobs"), at, k)
        {
            if (strcmp(report_string(k, "verdict"), verdict) != 0)
                continue;
            vt_buf_puts(b, n++ ? ""
                               : "| knob | where | expected gain | measured gain | why |\n"
                                 "|---|---|---:|---:|---|\n");
            vt_buf_puts(b, "| ");
            report_cell(b, report_string(k, "name"));
            vt_buf_puts(b, " | ");
            report_cell(b, report_string(k, "where"));
            vt_buf_puts(b, " | ");
            lab_put(b, report_number(k, "expected"), LAB_RATIO);
            vt_buf_puts(b, " | ");
            lab_put(b, report_number(k, "gain"), LAB_RATIO);
            vt_buf_puts(b, " | ");
            report_cell(b, report_string(k, "why"));
            vt_buf_puts(b, " |\n");
        }
    }
    vt_buf_puts(b, n ? "\n" : "none in these results\n\n");
    return n;
}

static void opportunities(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Opportunities by priority\n\n### High: measured to gain here\n\n");
    knobs_of(r, "gains", b);
    vt_buf_puts(b, "### Medium: not measured here yet\n\n");
    knobs_of(r, "not measured", b);
    vt_buf_puts(b, "### Low: tried, and of no gain here\n\n");
    knobs_of(r, "no gain here", b);
    vt_buf_puts(b, "### Not to be done: it loses\n\n");
    knobs_of(r, "loses", b);
}

/* ---- bottlenecks ---- */

typedef struct gap {
    const lab_def *def;
    const json_t *p;
    double ratio; /* measured over expected, of times */
    int at;       /* in the order of the labs: decides between equal ones */
} gap;

static int by_ratio(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    return x->ratio < y->ratio ? 1 : x->ratio > y->ratio ? -1 : x->at - y->at;
}

enum { MAX_GAPS = 64 };

/* Times that came, over those that bytes and roofs promise, the largest first. */
static int gaps_of(const report *r, gap *out)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        size_t at;
        json_t *p;
        json_array_foreach(json_object_get(r->result[i], "predictions"), at, p)
        {
            double ratio = report_number(p, "measured") / report_number(p, "own");
            if (n < MAX_GAPS && isfinite(ratio) && strcmp(report_string(p, "unit"), "s") == 0)
                out[n] = (gap){r->lab[i], p, ratio, n}, n++;
        }
    }
    qsort(out, (size_t)n, sizeof *out, by_ratio);
    return n;
}

static void bottlenecks(const report *r, vt_buf *b)
{
    gap found[MAX_GAPS];
    int n = gaps_of(r, found);
    vt_buf_puts(b, "## Bottlenecks, ranked\n\nTimes that came, over what bytes, FLOPs and roofs "
                   "promise; the farthest from its promise first.\n\n");
    if (n == 0) {
        vt_buf_puts(b, "no lab of these results has measured a time that it had predicted\n\n");
        return;
    }
    vt_buf_puts(b, "| rank | what | promised | came | over it | lab | grade |\n"
                   "|---:|---|---:|---:|---:|---|---|\n");
    for (int i = 0; i < n; i++) {
        vt_buf_printf(b, "| %d | %s | ", i + 1, report_string(found[i].p, "what"));
        lab_put(b, report_number(found[i].p, "own"), LAB_SECONDS);
        vt_buf_puts(b, " | ");
        lab_put(b, report_number(found[i].p, "measured"), LAB_SECONDS);
        vt_buf_puts(b, " | ");
        lab_put(b, found[i].ratio, LAB_RATIO);
        vt_buf_printf(b, " | %s | %s |\n", found[i].def->number,
                      report_string(found[i].p, "grade"));
    }
    vt_buf_putc(b, '\n');
}

/* ---- what is right, what is to improve, what was learned ---- */

static void right_and_wrong(const report *r, vt_buf *b)
{
    size_t good = 0, all = 0, at;
    json_t *c;
    for (int i = 0; i < r->n; i++)
        json_array_foreach(json_object_get(r->result[i], "checks"), at, c)
        {
            all++;
            good += json_is_true(json_object_get(c, "ok"));
        }
    vt_buf_printf(b, "## What is right\n\n- %zu of %zu checks against references hold\n", good,
                  all);
    for (int i = 0; i < r->n; i++)
        json_array_foreach(json_object_get(r->result[i], "predictions"), at,
                           c) if (strcmp(report_string(c, "grade"), "within 20 %") == 0)
            vt_buf_printf(b, "- %s is what bytes and roofs promise (lab %s)\n",
                          report_string(c, "what"), r->lab[i]->number);
    vt_buf_puts(b, "\n## What is to improve\n\n");
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        json_array_foreach(json_object_get(r->result[i], "checks"), at,
                           c) if (!json_is_true(json_object_get(c, "ok")))
            vt_buf_printf(b, "- a check of lab %s failed: %s\n", r->lab[i]->number,
                          report_string(c, "text")),
            n++;
        n += report_findings(r->result[i], b);
    }
    vt_buf_puts(b, n ? "\n" : "- no lab of these results has a finding or a failed check\n\n");
    vt_buf_puts(b, "## Lessons\n\n");
    for (int i = 0; i < r->n; i++)
        if (r->result[i])
            vt_buf_printf(b, "- lab %s: %s\n", r->lab[i]->number, r->lab[i]->goal);
    vt_buf_puts(b, r->n_run ? "\n" : "- no lab was run here yet\n\n");
}

static void criteria(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Criteria\n\n");
    int n = 0;
    for (const lab_criterion *c = lab_criteria; c->words; c++) {
        bool done = false;
        vt_buf why = {0};
        vt_err err = {0};
        if (c->track != r->track)
            continue;
        n++;
        vt_status status = lab_criterion_state(r->options, c, &done, &why, &err);
        vt_buf_printf(b, "- [%s] %s (here: %s): %s\n", done && status == VT_OK ? "x" : " ",
                      c->words, c->ours,
                      status == VT_OK && why.data ? why.data : "a result cannot be read");
        vt_buf_release(&why);
    }
    vt_buf_puts(b, n ? "\n" : "The experiments serve the criteria of the track sglang.\n\n");
}

/* Claims whose lab is of this track, beside what that lab measured. */
static void published(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Published numbers beside these\n\n");
    int n = 0;
    for (const lab_claim *c = lab_claims; c->claim; c++) {
        char track[24] = "", number[24] = "";
        sscanf(c->lab, "%23s %23s", track, number);
        if (strcmp(track, lab_track_name[r->track]) != 0)
            continue;
        vt_buf_puts(b,
                    n++ ? "" : "| published | recomputed | measured by the lab |\n|---|---|---|\n");
        vt_buf_printf(b, "| %s | ", c->claim);
        lab_claim_recompute(c, b);
        const json_t *p = json_array_get(json_object_get(report_result(r, number), "predictions"),
                                         0);
        lab_unit unit = LAB_COUNT;
        lab_unit_find(report_string(p, "unit"), &unit);
        vt_buf_puts(b, " | ");
        if (p && isfinite(report_number(p, "measured"))) {
            report_cell(b, report_string(p, "what"));
            vt_buf_puts(b, ": ");
            lab_put(b, report_number(p, "measured"), unit);
            vt_buf_puts(b, " |\n");
        } else if (report_result(r, number))
            vt_buf_printf(b, "lab %s has no single number for it: see analysis.md |\n", number);
        else
            vt_buf_printf(b, "not run here yet: `vitrine lab %s` |\n", c->lab);
    }
    vt_buf_puts(b, n ? "\n" : "none of them is measured by a lab of this track\n\n");
}

static void files_and_rest(const report *r, vt_buf *b)
{
    size_t at;
    json_t *f;
    vt_buf_puts(b, "## Files\n\n");
    for (int i = 0; i < r->n; i++) {
        if (!r->result[i])
            continue;
        vt_buf_printf(b, "- `%s_%s.json`\n", r->lab[i]->number, r->lab[i]->name);
        json_array_foreach(json_object_get(r->result[i], "files"), at, f)
            vt_buf_printf(b, "- `%s`: %s\n", report_string(f, "name"), report_string(f, "what"));
    }
    vt_buf_puts(b, r->n_run ? "\n## Next steps\n\n" : "none yet\n\n## Next steps\n\n");
    for (int i = 0; i < r->n; i++)
        if (!r->result[i])
            vt_buf_printf(b, "- `vitrine lab %s %s`: not run yet\n", lab_track_name[r->track],
                          r->lab[i]->number);
        else if (json_is_true(json_object_get(r->result[i], "quick")))
            vt_buf_printf(b, "- `vitrine lab %s %s`: run in the quick form only\n",
                          lab_track_name[r->track], r->lab[i]->number);
    vt_buf_puts(b, "- turn a knob of your own, and compare with the table of opportunities\n\n");
    vt_buf_puts(b, "## Not measured here\n\n");
    int n = 0;
    for (int i = 0; i < r->n; i++)
        for (const lab_item_def *item = r->lab[i]->items; r->result[i] && item->key; item++) {
            const json_t *o = json_object_get(json_object_get(r->result[i], "items"), item->key);
            if (!json_object_get(o, "missing"))
                continue;
            vt_buf_printf(b, "- %s (lab %s), because %s\n", item->what, r->lab[i]->number,
                          report_string(o, "missing"));
            n++;
        }
    vt_buf_puts(b, n          ? ""
                   : r->n_run ? "- every item of the labs that were run was measured\n"
                              : "- nothing was run here yet\n");
}

void report_final(const report *r, vt_buf *b)
{
    report_head(r, b, "final report",
                "What was found on this machine, what was tried, and what is open.");
    vt_buf_puts(b, "## Summary\n\n");
    hardware_box(r, b);
    key_findings(r, b);
    timelines(r, b);
    opportunities(r, b);
    bottlenecks(r, b);
    right_and_wrong(r, b);
    criteria(r, b);
    published(r, b);
    files_and_rest(r, b);
}
