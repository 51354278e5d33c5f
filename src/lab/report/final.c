/* final-report.md: what was found, what was tried, what is open (report/inside.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/kit/physics.h"
#include "lab/kit/result.h"
#include "lab/report/inside.h"
#include "lab/report/status.h"

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

/* Writes what a lab found, in a line: its first finding, or else its first item that has a line. */
static void key_finding(const lab_def *d, const json_t *result, vt_buf *b)
{
    const json_t *finding = report_first_finding(result);
    size_t begin = b->len;
    if (finding) {
        vt_buf_puts(b, report_string(finding, "text"));
        return;
    }
    for (const lab_item_def *item = d->items; item->key && b->len == begin; item++) {
        const json_t *o = json_object_get(json_object_get(result, "items"), item->key);
        if (!json_object_get(o, "missing"))
            report_item_line(o, b);
    }
    if (b->len == begin)
        vt_buf_puts(b, "nothing was measured here");
}

static void key_findings(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "| lab | state | key finding |\n|---|---|---|\n");
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        vt_buf line = {0};
        if (r->result[i])
            key_finding(d, r->result[i], &line);
        else
            report_not_run(d, &line);
        vt_buf_printf(b, "| %s %s | %s | ", d->number, d->name,
                      r->result[i] ? report_string(r->result[i], "state") : "open");
        report_cell(b, line.data ? line.data : "");
        vt_buf_puts(b, " |\n");
        vt_buf_release(&line);
    }
    vt_buf_putc(b, '\n');
}

/* ---- timelines ---- */

/* An item of a lab of this track. */
typedef struct told {
    const char *number, *key;
} told;

static const lab_item_def *item_def_of(const lab_def *d, const char *key)
{
    const lab_item_def *item = d->items;
    while (item->key && strcmp(item->key, key) != 0)
        item++;
    return item->key ? item : NULL;
}

/* The first of these items that was measured; false: none. */
static bool first_item(const report *r, const told *t, vt_buf *b)
{
    for (; t->key; t++)
        for (int i = 0; i < r->n; i++) {
            const lab_item_def *item = item_def_of(r->lab[i], t->key);
            const json_t *o = json_object_get(json_object_get(r->result[i], "items"), t->key);
            if (strcmp(r->lab[i]->number, t->number) != 0 || !item || !o ||
                json_object_get(o, "missing"))
                continue;
            vt_buf_printf(b, "From lab %s %s. ", r->lab[i]->number, r->lab[i]->name);
            report_item(o, item, b);
            return true;
        }
    return false;
}

/* Where this track measures nothing of the kind: the page of the track that does. */
static void see_track(const report *r, lab_track other, const char *what, vt_buf *b)
{
    if (r->track == other || (r->track == LAB_MINI_SGLANG && other == LAB_SGLANG))
        vt_buf_printf(b, "not run here yet: `vitrine lab %s all` tells %s.\n\n",
                      lab_track_name[r->track], what);
    else
        vt_buf_printf(b,
                      "No result of this track tells %s; "
                      "[that of %s](" TO_LABS "%s/reports/%s/final-report.md) does.\n\n",
                      what, lab_track_name[other], lab_track_name[other], r->machine);
}

static void timelines(const report *r, vt_buf *b)
{
    static const told request[LAB_TRACKS][3] = {[LAB_SGLANG] = {{"01", "steps"}},
                                                [LAB_MINI_SGLANG] = {{"06", "timeline"},
                                                                     {"01", "order"}},
                                                [LAB_EXPERIMENTS] = {{"3", "breakdown"}}},
                      ranks[LAB_TRACKS][3] = {
                          [LAB_SGLANG] = {{"06", "flow"}, {"06", "prediction"}},
                          [LAB_MINI_SGLANG] = {{"05", "layer_share"}, {"05", "sizes"}},
                          [LAB_EXPERIMENTS] = {{"5", "configurations"}}};
    vt_buf_puts(b, "## One request\n\n");
    if (!first_item(r, request[r->track], b))
        see_track(r, LAB_SGLANG, "the timeline of a request", b);
    vt_buf_puts(b, "## Communication\n\n");
    if (!first_item(r, ranks[r->track], b))
        see_track(r, LAB_SGLANG, "where ranks of a layer communicate", b);
}

/* ---- opportunities ---- */

typedef enum priority { HIGH, MEDIUM, LOW, NEVER } priority;

/* A verdict within a large noise is an open question, as one that was not measured. */
static priority priority_of(const json_t *knob)
{
    const char *verdict = report_string(knob, "verdict");
    return strcmp(verdict, "gains") == 0          ? HIGH
           : strcmp(verdict, "loses") == 0        ? NEVER
           : report_is_hidden(knob)               ? MEDIUM
           : strcmp(verdict, "no gain here") == 0 ? LOW
                                                  : MEDIUM;
}

static void put_ratio(const json_t *knob, const char *key, const char *none, vt_buf *b)
{
    double v = report_number(knob, key);
    if (isfinite(v))
        lab_put(b, v, LAB_RATIO);
    else
        vt_buf_puts(b, none);
}

static void put_opportunity(const lab_def *d, const json_t *k, vt_buf *b)
{
    vt_buf_puts(b, "| ");
    report_cell(b, report_string(k, "name"));
    vt_buf_puts(b, " | ");
    report_cell(b, report_string(k, "what"));
    vt_buf_puts(b, " | ");
    report_cell(b, report_string(k, "where"));
    vt_buf_puts(b, " | ");
    put_ratio(k, "expected", "bytes promise none", b);
    vt_buf_puts(b, " | ");
    put_ratio(k, "gain", "not measured", b);
    if (isfinite(report_noise(k))) {
        vt_buf_puts(b, " | ");
        lab_put(b, report_noise(k), LAB_SHARE);
    } else
        vt_buf_puts(b, " | not measured");
    vt_buf_puts(b, " | ");
    report_cell(b, report_string(k, "why"));
    vt_buf_printf(b, " | %s |\n", d->number);
}

static void knobs_of(const report *r, priority wanted, vt_buf *b)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        size_t at;
        json_t *k;
        json_array_foreach(json_object_get(r->result[i], "knobs"), at, k)
        {
            if (priority_of(k) != wanted)
                continue;
            vt_buf_puts(b, n++ ? ""
                               : "| knob | what was timed | where | expected gain | measured gain "
                                 "| noise | why | lab |\n|---|---|---|---:|---:|---:|---|---|\n");
            put_opportunity(r->lab[i], k, b);
        }
    }
    vt_buf_puts(b, n ? "\n" : "none in these results\n\n");
}

static void opportunities(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Opportunities by priority\n\nA gain is the time before over the time after. "
                   "The expected one was computed before the run, from bytes. All machines side by "
                   "side: [knobs.md](" TO_LABS "knobs.md).\n\n### High: measured to gain "
                   "here\n\n");
    knobs_of(r, HIGH, b);
    vt_buf_puts(b, "### Medium: not measured here yet, or hidden by the noise\n\n");
    knobs_of(r, MEDIUM, b);
    vt_buf_puts(b, "### Low: tried, and of no gain here\n\n");
    knobs_of(r, LOW, b);
    vt_buf_puts(b, "### Not to be done: it loses\n\n");
    knobs_of(r, NEVER, b);
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

static void what_is_right(const report *r, vt_buf *b)
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
    for (int i = 0; i < r->n; i++) {
        json_array_foreach(json_object_get(r->result[i], "predictions"), at, c)
        {
            if (strcmp(report_string(c, "grade"), "within 20 %") == 0)
                vt_buf_printf(b, "- %s is what bytes and roofs promise (lab %s)\n",
                              report_string(c, "what"), r->lab[i]->number);
        }
    }
    vt_buf_putc(b, '\n');
}

/* From this factor on a time is worth a look: the long end of an expected range. */
#define FAR_FROM_PROMISE 2.0

/* Checks that failed, times far from their promise, knobs that gain. */
static void what_to_improve(const report *r, vt_buf *b)
{
    size_t at;
    json_t *c;
    gap found[MAX_GAPS];
    int n = 0, gaps = gaps_of(r, found);
    vt_buf_puts(b, "## What is to improve\n\n");
    for (int i = 0; i < r->n; i++) {
        json_array_foreach(json_object_get(r->result[i], "checks"), at, c)
        {
            if (json_is_true(json_object_get(c, "ok")))
                continue;
            vt_buf_printf(b, "- a check of lab %s failed: %s\n", r->lab[i]->number,
                          report_string(c, "text"));
            n++;
        }
    }
    for (int i = 0; i < gaps && found[i].ratio >= FAR_FROM_PROMISE; i++, n++) {
        vt_buf_printf(b, "- %s: ", report_string(found[i].p, "what"));
        lab_put(b, found[i].ratio, LAB_RATIO);
        vt_buf_printf(b, " of what bytes, FLOPs and roofs promise (lab %s; %s)\n",
                      found[i].def->number, report_string(found[i].p, "grade"));
    }
    for (int i = 0; i < r->n; i++) {
        json_array_foreach(json_object_get(r->result[i], "knobs"), at, c)
        {
            if (priority_of(c) != HIGH)
                continue;
            vt_buf_printf(b, "- \"%s\" (%s): ", report_string(c, "name"),
                          report_string(c, "where"));
            lab_put(b, report_number(c, "gain"), LAB_RATIO);
            vt_buf_printf(b, " as fast, for %s (lab %s)\n", report_string(c, "what"),
                          r->lab[i]->number);
            n++;
        }
    }
    vt_buf_puts(b, n ? "\n"
                     : "- no check of these results failed, no time is far from its promise, and "
                       "no knob gains\n\n");
}

/* Writes what each lab teaches, and what it found here, with its numbers. */
static void lessons(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Lessons\n\n");
    for (int i = 0; i < r->n; i++) {
        if (!r->result[i])
            continue;
        vt_buf_printf(b, "**Lab %s %s.** %s\n\n", r->lab[i]->number, r->lab[i]->name,
                      r->lab[i]->goal);
        if (report_findings(r->result[i], b) > 0) {
            vt_buf_putc(b, '\n');
            continue;
        }
        vt_buf_puts(b, "- ");
        key_finding(r->lab[i], r->result[i], b);
        vt_buf_puts(b, "\n\n");
    }
    vt_buf_puts(b, r->n_run ? "" : "- no lab was run here yet\n\n");
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

static void files(const report *r, vt_buf *b)
{
    size_t at;
    json_t *f;
    vt_buf_printf(b, "## Files\n\nBelow `labs/%s/results/%s/`:\n\n", lab_track_name[r->track],
                  r->machine);
    for (int i = 0; i < r->n; i++) {
        if (!r->result[i])
            continue;
        vt_buf_printf(b, "- `%s_%s.json`\n", r->lab[i]->number, r->lab[i]->name);
        json_array_foreach(json_object_get(r->result[i], "files"), at, f)
            vt_buf_printf(b, "- `%s`: %s\n", report_string(f, "name"), report_string(f, "what"));
    }
    vt_buf_puts(b, r->n_run ? "\n" : "- none yet\n\n");
    vt_buf_puts(b, "Made from them, beside this page: ");
    for (const report_page *p = report_pages; p->name; p++)
        if (!p->experiments || r->track == LAB_EXPERIMENTS)
            vt_buf_printf(b, "%s[%s](%s)", p == report_pages ? "" : ", ", p->name, p->name);
    vt_buf_puts(b, ".\n\n");
}

static void next_steps(const report *r, vt_buf *b)
{
    const char *track = lab_track_name[r->track];
    vt_buf_puts(b, "## Next steps\n\n");
    for (int i = 0; i < r->n; i++) {
        if (!r->result[i])
            vt_buf_printf(b, "- `vitrine lab %s %s`: not run yet\n", track, r->lab[i]->number);
        else if (json_is_true(json_object_get(r->result[i], "quick")) && r->n_quick < r->n)
            vt_buf_printf(b,
                          "- `vitrine lab %s %s`: run in the quick form only, which counts for no "
                          "criterion\n",
                          track, r->lab[i]->number);
    }
    if (r->n_quick == r->n && r->n > 0)
        vt_buf_printf(
            b,
            "- `vitrine lab %s all`: every lab was run in the quick form only, which counts "
            "for no criterion\n",
            track);
    if (r->n_disturbed)
        vt_buf_printf(b,
                      "- run the %d disturbed labs again on a quiet machine: their times are not "
                      "graded\n",
                      r->n_disturbed);
    vt_buf_puts(b, "- begin with the first line of \"What is to improve\", and measure again\n"
                   "- try a kernel of your own beside ours: `vitrine lab kernel`\n\n");
}

static void not_measured(const report *r, vt_buf *b)
{
    int n = 0;
    vt_buf_puts(b, "## Not measured here\n\n");
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
    what_is_right(r, b);
    what_to_improve(r, b);
    lessons(r, b);
    criteria(r, b);
    published(r, b);
    files(r, b);
    next_steps(r, b);
    not_measured(r, b);
}
