/* The templates of the pages see this of a track's results (report/inside.h): texts and lists, in
 * which every member is there and has its type, whatever the results hold. A number is a text with
 * its unit, null where there is none. */
#include <math.h>
#include <string.h>

#include "lab/kit/list.h"
#include "lab/kit/physics.h"
#include "lab/report/inside.h"
#include "lab/report/status.h"

json_t *report_text(vt_buf *b)
{
    json_t *text = b->failed ? NULL : json_string(b->data ? b->data : "");
    vt_buf_release(b);
    return text;
}

json_t *report_figure(double v, vt_unit unit)
{
    vt_buf b = {0};
    if (!isfinite(v))
        return json_null();
    vt_text_figure(&b, v, unit);
    return report_text(&b);
}

/* Appends a value to a list that may be NULL; NULL where one of them is missing: out of memory. */
json_t *report_append(json_t *list, json_t *value)
{
    if (list && json_array_append_new(list, value) == 0)
        return list;
    if (!list)
        json_decref(value);
    json_decref(list);
    return NULL;
}

/* ---- members of a result ---- */

bool report_item_line(const json_t *item, vt_buf *b)
{
    if (json_object_get(item, "text"))
        vt_buf_puts(b, report_string(item, "text"));
    else if (json_object_get(item, "missing"))
        vt_buf_printf(b, "not measured here, because %s", report_string(item, "missing"));
    else if (json_object_get(item, "value")) {
        vt_unit unit = VT_COUNT;
        double v = report_number(item, "value");
        vt_unit_find(report_string(item, "unit"), &unit);
        if (isfinite(v))
            vt_text_figure(b, v, unit);
        else
            vt_buf_puts(b, "not measured");
        vt_buf_printf(b, " (%s)", report_string(item, "tag"));
        if (*report_string(item, "of"))
            vt_buf_printf(b, ": %s", report_string(item, "of"));
    } else
        return false;
    return true;
}

/* A fence that is longer than any run of backticks in the drawing. */
static json_t *fence_of(const char *drawing)
{
    vt_buf fence = {0};
    size_t n = 3;
    for (const char *p = strchr(drawing, '`'); p; p = strchr(p, '`')) {
        size_t run = strspn(p, "`");
        n = run >= n ? run + 1 : n;
        p += run;
    }
    while (n-- > 0)
        vt_buf_putc(&fence, '`');
    return report_text(&fence);
}

static json_t *columns_of(const json_t *table)
{
    json_t *out = json_array(), *c;
    size_t i;
    json_array_foreach(json_object_get(table, "columns"), i, c)
        out = report_append(out, json_string(json_is_string(c) ? json_string_value(c) : ""));
    return out;
}

static json_t *rows_of(const json_t *table)
{
    json_t *out = json_array(), *row, *c;
    size_t i, k;
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        json_t *cells = json_array();
        json_array_foreach(row, k, c)
            cells = report_append(cells, json_string(report_string(c, "text")));
        out = report_append(out, cells);
    }
    return out;
}

static json_t *view_item(const lab_item_def *def, const json_t *o)
{
    vt_buf line = {0};
    bool told = report_item_line(o, &line), drawn = json_object_get(o, "drawing") != NULL;
    return json_pack("{s:s s:s s:b s:b s:b s:o s:o s:s s:o s:s s:o s:o}", "key", def->key, "what",
                     def->what, "hardware", def->hardware, "there", o != NULL, "pictured",
                     drawn || json_object_get(o, "rows"), "line",
                     told ? report_text(&line) : json_null(), "missing",
                     json_object_get(o, "missing") ? json_string(report_string(o, "missing"))
                                                   : json_null(),
                     "title", report_string(o, "title"), "fence",
                     drawn ? fence_of(report_string(o, "drawing")) : json_null(), "drawing",
                     report_string(o, "drawing"), "columns", columns_of(o), "rows", rows_of(o));
}

static json_t *view_prediction(const lab_def *d, const json_t *p)
{
    vt_unit unit = VT_COUNT;
    double own = report_number(p, "own"), came = report_number(p, "measured"), over = came / own;
    vt_unit_find(report_string(p, "unit"), &unit);
    /* a time that nothing grades, of a busy machine or of a step that was taken apart to time it,
     * says nothing of what is slow */
    bool graded = isfinite(over) && strcmp(report_string(p, "unit"), "s") == 0 &&
                  strncmp(report_string(p, "grade"), "not graded", 10) != 0;
    return json_pack("{s:s s:s s:s s:s s:o s:o s:o s:o s:b}", "lab", d->number, "what",
                     report_string(p, "what"), "how", report_string(p, "how"), "grade",
                     report_string(p, "grade"), "own", report_figure(own, unit), "measured",
                     report_figure(came, unit), "over", graded ? json_real(over) : json_null(),
                     "times", report_figure(over, VT_RATIO), "timed",
                     strcmp(report_string(p, "unit"), "s") == 0);
}

static json_t *view_check(const lab_def *d, const json_t *c)
{
    return json_pack("{s:s s:b s:s}", "lab", d->number, "ok",
                     json_is_true(json_object_get(c, "ok")), "text", report_string(c, "text"));
}

static json_t *view_file(const lab_def *d, const json_t *f)
{
    (void)d;
    return json_pack("{s:s s:s}", "name", report_string(f, "name"), "what",
                     report_string(f, "what"));
}

/* A verdict within a large noise is an open question, as one that was not measured. */
static const char *priority_of(const json_t *knob)
{
    const char *verdict = report_string(knob, "verdict");
    return strcmp(verdict, "gains") == 0          ? "high"
           : strcmp(verdict, "loses") == 0        ? "never"
           : report_is_hidden(knob)               ? "medium"
           : strcmp(verdict, "no gain here") == 0 ? "low"
                                                  : "medium";
}

static json_t *optional_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *view_knob(const lab_def *d, const json_t *k)
{
    vt_buf verdict = {0};
    report_verdict(k, &verdict);
    return json_pack("{s:s s:s s:s s:s s:s s:s s:o s:o s:o s:o s:o s:o s:o}", "lab", d->number,
                     "name", report_string(k, "name"), "what", report_string(k, "what"), "where",
                     report_string(k, "where"), "why", report_string(k, "why"), "priority",
                     priority_of(k), "verdict", report_text(&verdict), "expected",
                     report_figure(report_number(k, "expected"), VT_RATIO), "before",
                     report_figure(report_number(k, "before_s"), VT_SECONDS), "after",
                     report_figure(report_number(k, "after_s"), VT_SECONDS), "gain",
                     report_figure(report_number(k, "gain"), VT_RATIO), "noise",
                     report_figure(report_noise(k), VT_SHARE), "ratio",
                     optional_real(report_number(k, "gain")));
}

typedef json_t *(*view_one)(const lab_def *d, const json_t *o);

static json_t *view_list(const lab_def *d, const json_t *list, view_one one)
{
    json_t *out = json_array(), *o;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, o) out = report_append(out, one(d, o));
    return out;
}

/* Findings about the lab's subject. Those about the machine's other users ("machine.busy") are left
 * out: the result's state says it. */
static json_t *findings_of(const json_t *result)
{
    json_t *out = json_array(), *f;
    size_t i;
    json_array_foreach(json_object_get(result, "findings"), i, f)
    {
        if (strncmp(report_string(f, "rule"), "machine.", 8) != 0)
            out = report_append(out, json_pack("{s:s s:s}", "text", report_string(f, "text"),
                                               "rule", report_string(f, "rule")));
    }
    return out;
}

/* Returns what the first table with a column "bound" says in its first row, and of what; "" if
 * there is none. */
static const char *bound_of(const json_t *result, const char **shape)
{
    *shape = "";
    const char *key;
    json_t *item;
    json_object_foreach(json_object_get(result, "items"), key, item)
    {
        size_t i;
        json_t *c;
        const json_t *row = json_array_get(json_object_get(item, "rows"), 0);
        json_array_foreach(json_object_get(item, "columns"), i, c)
        {
            const char *name = json_string_value(c);
            if (!name || strcmp(name, "bound") != 0 || !row)
                continue;
            *shape = report_string(json_array_get(row, 0), "text");
            return report_string(json_array_get(row, i), "text");
        }
    }
    return "";
}

static json_t *texts_of(const char *const *text, int max)
{
    json_t *out = json_array();
    for (int i = 0; i < max && text[i]; i++)
        out = report_append(out, json_string(text[i]));
    return out;
}

static json_t *view_lab(const lab_def *d, const json_t *result)
{
    vt_buf full = {0};
    const char *shape, *bound = bound_of(result, &shape);
    json_t *items = json_array();
    vt_buf_printf(&full, "%s %s", lab_track_name[d->track], d->number);
    for (const lab_item_def *item = d->items; item->key; item++)
        items = report_append(
            items, view_item(item, json_object_get(json_object_get(result, "items"), item->key)));
    return json_pack(
        "{s:s s:s s:s s:o s:s s:o s:o s:o s:b s:b s:s s:s s:s s:s s:s s:o s:o s:o s:o s:o s:o s:o "
        "s:o}",
        "number", d->number, "name", d->name, "when", report_string(result, "when"), "seconds",
        report_figure(report_number(result, "seconds"), VT_SECONDS), "goal", d->goal, "full",
        report_text(&full), "about", texts_of(d->about, 3), "aliases",
        texts_of(d->alias, LAB_MAX_ALIASES), "run", result != NULL, "quick",
        json_is_true(json_object_get(result, "quick")), "state", report_string(result, "state"),
        "tier", report_string(result, "tier"), "cannot_see", report_string(result, "cannot_see"),
        "bound", bound, "shape", shape, "charts", report_view_charts(d, result), "events",
        report_view_events(result), "entries", items, "predictions",
        view_list(d, json_object_get(result, "predictions"), view_prediction), "checks",
        view_list(d, json_object_get(result, "checks"), view_check), "knobs",
        view_list(d, json_object_get(result, "knobs"), view_knob), "findings", findings_of(result),
        "files", view_list(d, json_object_get(result, "files"), view_file));
}

/* The members of all labs in one list. */
static json_t *all_of(const json_t *labs, const char *member)
{
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)labs, i, one)
    {
        if (out && json_array_extend(out, json_object_get(one, member)) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

/* ---- the machine ---- */

static vt_unit unit_of(const vt_roof_row *row)
{
    return !row->unit ? VT_SECONDS : *row->unit == 'B' ? VT_BYTES_PER_S : VT_FLOP_PER_S;
}

/* The first roofs that a result has. */
static const json_t *first_roofs(const report *r)
{
    const json_t *roofs = NULL;
    for (int i = 0; i < r->n && json_object_size(roofs) == 0; i++)
        roofs = json_object_get(r->result[i], "roofs");
    return roofs;
}

static json_t *view_roofs(const report *r)
{
    json_t *out = json_array();
    const json_t *roofs = first_roofs(r);
    for (int i = 0; i < VT_ROOFS; i++) {
        const json_t *o = json_object_get(roofs, vt_roof_rows[i].key);
        if (isfinite(report_number(o, "value")))
            out = report_append(
                out, json_pack("{s:s s:o s:s}", "name", vt_roof_rows[i].name, "figure",
                               report_figure(report_number(o, "value"), unit_of(&vt_roof_rows[i])),
                               "tag", report_string(o, "tag")));
    }
    return out;
}

/* The roofs of labs that were run another day, where they differ from those above by more than
 * repetitions do: a share is one of the roofs of its own run. */
static json_t *view_other_roofs(const report *r, const json_t *first)
{
    static const double same = 0.01;
    json_t *out = json_array();
    for (int i = 0; i < r->n; i++) {
        const json_t *own = json_object_get(r->result[i], "roofs");
        for (int k = 0; k < VT_ROOFS; k++) {
            const vt_roof_row *row = &vt_roof_rows[k];
            double v = report_number(json_object_get(own, row->key), "value"),
                   shown = report_number(json_object_get(first, row->key), "value");
            if (isfinite(v) && isfinite(shown) && fabs(v - shown) > same * shown)
                out = report_append(out,
                                    json_pack("{s:s s:s s:o s:s}", "lab", r->lab[i]->number, "name",
                                              row->name, "figure", report_figure(v, unit_of(row)),
                                              "when", report_string(r->result[i], "when")));
        }
    }
    return out;
}

static json_t *view_summary(const report *r)
{
    static const vt_roof_kind shown[] = {VT_ROOF_MEMORY, VT_ROOF_COPY,    VT_ROOF_L2,
                                         VT_ROOF_FP32,   VT_ROOF_BF16,    VT_ROOF_INT8,
                                         VT_ROOF_KERNEL, VT_ROOF_MEETING, VT_ROOF_TO_DEVICE};
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const vt_roof_row *row = &vt_roof_rows[shown[i]];
        double v = vt_roof_get(&r->roofs, shown[i]);
        if (v > 0)
            out = report_append(out, json_pack("{s:s s:o}", "name", row->name, "figure",
                                               report_figure(v, unit_of(row))));
    }
    return out;
}

/* A size of a cache; null: not known. */
static json_t *size_figure(int64_t bytes)
{
    return report_figure(bytes > 0 ? (double)bytes : NAN, VT_BYTES);
}

static json_t *view_caches(const report *r)
{
    if (!r->caches_known)
        return json_null();
    return json_pack("{s:o s:o s:b s:o}", "l1d", size_figure(r->l1d_size), "l2",
                     report_figure((double)r->roofs.l2_size, VT_BYTES), "together",
                     !r->roofs.is_gpu && r->roofs.threads > 1, "l3", size_figure(r->roofs.l3_size));
}

static json_t *view_machine(const json_t *m)
{
    vt_buf threads = {0};
    if (!m)
        return json_null();
    vt_buf_printf(&threads, "%.0f", report_number(m, "threads"));
    return json_pack("{s:s s:s s:s s:o}", "name", report_string(m, "name"), "device",
                     report_string(m, "device"), "level", report_string(m, "level"), "threads",
                     report_text(&threads));
}

/* ---- what stands beside the results ---- */

static json_t *view_pages(const report *r)
{
    json_t *out = json_array();
    for (const report_page *p = report_pages; p->name; p++)
        if (!p->experiments || r->track == LAB_EXPERIMENTS)
            out = report_append(out, json_pack("{s:s s:s}", "name", p->name, "what", p->what));
    return out;
}

static json_t *view_criteria(const report *r)
{
    json_t *out = json_array();
    for (const lab_criterion *c = lab_criteria; c->words; c++) {
        bool done = false;
        vt_buf why = {0};
        vt_err err = {0};
        if (c->track != r->track)
            continue;
        bool known = lab_criterion_state(r->options, c, &done, &why, &err) == VT_OK;
        if (!known)
            vt_buf_clear(&why), vt_buf_puts(&why, "a result cannot be read");
        out = report_append(out, json_pack("{s:b s:s s:s s:o}", "done", done && known, "words",
                                           c->words, "ours", c->ours, "why", report_text(&why)));
    }
    return out;
}

/* Claims whose lab is of this track, beside what that lab measured. */
static json_t *view_published(const report *r)
{
    json_t *out = json_array();
    for (const lab_claim *c = lab_claims; c->claim; c++) {
        size_t n = strcspn(c->lab, " ");
        const char *number = c->lab + n + (c->lab[n] == ' ');
        vt_buf recomputed = {0};
        vt_unit unit = VT_COUNT;
        if (strncmp(c->lab, lab_track_name[r->track], n) != 0 || lab_track_name[r->track][n])
            continue;
        const json_t *result = report_result(r, number),
                     *p = json_array_get(json_object_get(result, "predictions"), 0);
        lab_claim_recompute(c, &recomputed);
        vt_unit_find(report_string(p, "unit"), &unit);
        out = report_append(
            out,
            json_pack("{s:s s:o s:s s:s s:s s:b s:s s:o}", "claim", c->claim, "recomputed",
                      report_text(&recomputed), "verdict", c->verdict, "lab", c->lab, "number",
                      number, "run", result != NULL, "what", report_string(p, "what"), "measured",
                      report_figure(c->beside ? report_number(p, "measured") : NAN, unit)));
    }
    return out;
}

/* The rows of causes.h, each with the labs of these results that show it. */
static json_t *view_causes(const report *r)
{
    json_t *out = json_array();
    for (const report_cause *c = report_causes; c->seen; c++) {
        json_t *labs = json_array(), *f;
        for (int i = 0; i < r->n; i++) {
            size_t k;
            bool here = false;
            json_array_foreach(json_object_get(r->result[i], "findings"), k, f)
                here |= report_cause_of_finding(report_string(f, "rule")) == c;
            labs = here ? report_append(labs, json_string(r->lab[i]->number)) : labs;
        }
        out = report_append(out, json_pack("{s:s s:s s:s s:o}", "seen", c->seen, "cause", c->cause,
                                           "action", c->action, "labs", labs));
    }
    return out;
}

json_t *report_view(const report *r)
{
    json_t *labs = json_array();
    for (int i = 0; i < r->n; i++)
        labs = report_append(labs, view_lab(r->lab[i], r->result[i]));
    const lab_def *flow = lab_find(LAB_SGLANG, "01");
    json_t
        *knobs = all_of(labs, "knobs"),
        *view = json_pack(
            "{s:s s:o s:s s:s s:s s:o s:i s:i s:i s:i s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o}",
            "track", lab_track_name[r->track], "flow",
            flow && r->flow ? view_lab(flow, r->flow) : json_null(), "machine", r->machine,
            "env_track", lab_track_name[r->track == LAB_EXPERIMENTS ? LAB_SGLANG : r->track],
            "device", r->roofs.is_gpu ? "GPU" : "CPU", "of_machine", view_machine(r->of_machine),
            "n_run", r->n_run, "n_quick", r->n_quick, "n_disturbed", r->n_disturbed, "n_emulated",
            r->n_emulated, "roofs", view_roofs(r), "other_roofs",
            view_other_roofs(r, first_roofs(r)), "summary", view_summary(r), "caches",
            view_caches(r), "pages", view_pages(r), "criteria", view_criteria(r), "published",
            view_published(r), "causes", view_causes(r), "kernels", report_view_kernels(r, knobs),
            "predictions", all_of(labs, "predictions"), "checks", all_of(labs, "checks"));
    bool whole = view && json_object_set_new(view, "knobs", knobs) == 0;
    whole = json_object_set_new(view, "labs", labs) == 0 && whole && report_view_ranges(r, view) &&
            report_view_gains(r, view) && report_view_files(r, view);
    if (whole)
        return view;
    json_decref(view);
    return NULL;
}
