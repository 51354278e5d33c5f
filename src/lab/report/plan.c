/* plan.md and experiments.md: what was expected, and what came (report/inside.h). */
#include "lab/report/inside.h"

void report_plan(const report *r, vt_buf *b)
{
    size_t at;
    json_t *line;
    report_head(r, b, "plan",
                "Each lab with its expectation, computed before the run from bytes, FLOPs and "
                "roofs, and what came.");
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        vt_buf_printf(b, "## %s %s\n\n%s\n\n", d->number, d->name, d->goal);
        for (int k = 0; k < 3 && d->about[k]; k++)
            vt_buf_printf(b, "- %s\n", d->about[k]);
        vt_buf_puts(b, d->about[0] ? "\n" : "");
        vt_buf_puts(b, "It answers: ");
        for (const lab_item_def *item = d->items; item->key; item++)
            vt_buf_printf(b, "%s%s", item == d->items ? "" : "; ", item->what);
        vt_buf_puts(b, ".\n\n");
        if (!r->result[i]) {
            report_not_run(d, b);
            vt_buf_putc(b, '\n');
            continue;
        }
        report_predictions(r->result[i], b);
        report_checks(r->result[i], b);
        json_array_foreach(json_object_get(r->result[i], "files"), at, line) vt_buf_printf(
            b, "- left `%s`: %s\n", report_string(line, "name"), report_string(line, "what"));
        vt_buf_puts(b, json_array_size(json_object_get(r->result[i], "files")) ? "\n" : "");
    }
}

/* The items of one kind; returns how many. */
static int put_items(const lab_def *d, const json_t *result, bool drawing, bool hardware, vt_buf *b)
{
    int n = 0;
    const json_t *items = json_object_get(result, "items");
    for (const lab_item_def *item = d->items; item->key; item++) {
        const json_t *o = json_object_get(items, item->key);
        bool drawn = json_object_get(o, "drawing") != NULL;
        if (drawn != drawing || (!drawing && item->hardware != hardware))
            continue;
        report_item(o, item, b);
        n++;
    }
    return n;
}

/* The names of the process's drawings, which stand below; returns how many. */
static int put_drawn(const lab_def *d, const json_t *result, vt_buf *b)
{
    int n = 0;
    const json_t *items = json_object_get(result, "items");
    for (const lab_item_def *item = d->items; item->key; item++)
        if (!item->hardware && json_object_get(json_object_get(items, item->key), "drawing"))
            vt_buf_printf(b, "%s%s", n++ ? "; " : "Drawn below: ", item->what);
    vt_buf_puts(b, n ? ".\n\n" : "");
    return n;
}

static void put_lab(const lab_def *d, const json_t *result, vt_buf *b)
{
    vt_buf_puts(b, "### Execution timeline\n\n");
    int n = put_items(d, result, false, false, b);
    if (put_drawn(d, result, b) + n == 0)
        vt_buf_puts(b, "not measured here, because this lab looks at the hardware alone\n\n");
    vt_buf_puts(b, "### Hardware behaviour\n\n");
    if (put_items(d, result, false, true, b) == 0)
        vt_buf_puts(b, "not measured here, because this lab looks at the process alone\n\n");
    vt_buf_puts(b, "### Process visualisations\n\n");
    if (put_items(d, result, true, false, b) == 0)
        vt_buf_puts(b,
                    "not measured here, because this lab draws nothing; its tables are above\n\n");
    vt_buf_puts(b, "### Observations with hardware context\n\n");
    if (report_findings(result, b) == 0)
        vt_buf_puts(b, "- no rule of the lab found anything to say\n");
    vt_buf_printf(b, "- measured by %s; it cannot see %s\n\n", report_string(result, "tier"),
                  report_string(result, "cannot_see"));
    report_predictions(result, b);
}

void report_experiments(const report *r, vt_buf *b)
{
    report_head(r, b, "experiments",
                "Each lab in four sections: timeline, hardware, pictures, observations.");
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        vt_buf_printf(b, "## %s %s\n\n", d->number, d->name);
        if (r->result[i])
            put_lab(d, r->result[i], b);
        else {
            report_not_run(d, b);
            vt_buf_putc(b, '\n');
        }
    }
}
