/* analysis.md: a box a kernel, then a box a lab that has no kernel of its own (report/inside.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/kit/result.h"
#include "lab/report/inside.h"
#include "ops/op.h"

enum { BOX_WIDTH = 92 };

/* Wraps the text at spaces into lines of the box, which is a code block; bytes that continue a
 * character have no width. */
static void put_wrapped(vt_buf *b, const char *first, const char *next, const char *safe)
{
    int column = 0;
    vt_buf plain = {0};
    report_code(&plain, safe);
    const char *text = plain.data ? plain.data : "";
    vt_buf_puts(b, first);
    while (*text) {
        size_t n = strcspn(text, " \n");
        int width = 0;
        for (size_t i = 0; i < n; i++)
            width += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (column > 0 && column + 1 + width > BOX_WIDTH) {
            vt_buf_putc(b, '\n');
            vt_buf_puts(b, next);
            column = 0;
        }
        if (column > 0)
            vt_buf_putc(b, ' ');
        vt_buf_add(b, text, n);
        column += width + (column > 0);
        text += n;
        text += strspn(text, " \n");
    }
    vt_buf_putc(b, '\n');
    b->failed |= plain.failed;
    vt_buf_release(&plain);
}

/* The one-line items of one kind; drawings and tables stand below the box. */
static void box_items(const lab_def *d, const json_t *result, bool hardware, vt_buf *b)
{
    int n = 0;
    const json_t *items = json_object_get(result, "items");
    for (const lab_item_def *item = d->items; item->key; item++) {
        vt_buf line = {0};
        if (item->hardware != hardware)
            continue;
        vt_buf_printf(&line, "%s: ", item->what);
        if (report_item_line(json_object_get(items, item->key), &line)) {
            put_wrapped(b, "│   - ", "│     ", line.data ? line.data : "");
            n++;
        }
        vt_buf_release(&line);
    }
    if (n == 0)
        vt_buf_puts(b, "│   - see the tables below\n");
}

static void box_predictions(const json_t *result, vt_buf *b)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(result, "predictions"), i, p)
    {
        vt_buf line = {0};
        lab_unit unit = LAB_COUNT;
        double own = report_number(p, "own"), came = report_number(p, "measured");
        lab_unit_find(report_string(p, "unit"), &unit);
        vt_buf_printf(&line, "%s: expected ", report_string(p, "what"));
        lab_put(&line, own, unit);
        vt_buf_puts(&line, ", came ");
        lab_put(&line, came, unit);
        vt_buf_printf(&line, " (%s)", report_string(p, "grade"));
        put_wrapped(b, "│   - ", "│     ", line.data ? line.data : "");
        vt_buf_release(&line);
    }
    if (json_array_size(json_object_get(result, "predictions")) == 0)
        vt_buf_puts(b, "│   - this lab predicts no number\n");
}

/* What the first table with a column "bound" says in its first row; "" if there is none. */
static const char *class_of(const json_t *result)
{
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
            if (name && strcmp(name, "bound") == 0 && row)
                return report_string(json_array_get(row, i), "text");
        }
    }
    return "";
}

static void box_insight(const json_t *result, vt_buf *b)
{
    size_t i;
    json_t *k;
    const json_t *finding = report_first_finding(result);
    if (finding)
        put_wrapped(b, "    - ", "      ", report_string(finding, "text"));
    json_array_foreach(json_object_get(result, "knobs"), i, k)
    {
        vt_buf line = {0};
        vt_buf_printf(&line, "%s (", report_string(k, "name"));
        report_verdict(k, &line);
        vt_buf_printf(&line, "): %s", report_string(k, "why"));
        put_wrapped(b, "    - ", "      ", line.data ? line.data : "");
        vt_buf_release(&line);
    }
    if (!finding && json_array_size(json_object_get(result, "knobs")) == 0)
        vt_buf_puts(b, "    - no knob of this lab was turned\n");
}

static void put_box(const lab_def *d, const json_t *result, const char *title, vt_buf *b)
{
    const char *class = class_of(result);
    vt_buf_printf(b, "```\n%s, lab %s %s%s\n├── execution model\n", title, lab_track_name[d->track],
                  d->number, json_is_true(json_object_get(result, "quick")) ? " (quick)" : "");
    box_items(d, result, false, b);
    vt_buf_puts(b, "├── performance\n");
    box_predictions(result, b);
    vt_buf_puts(b, "├── hardware behaviour\n");
    box_items(d, result, true, b);
    vt_buf_printf(b, "├── class: %s%s\n└── insight\n",
                  *class ? class : "a whole process, not one kernel", *class ? "-bound" : "");
    box_insight(result, b);
    vt_buf_puts(b, "```\n\n");
    const json_t *items = json_object_get(result, "items");
    for (const lab_item_def *item = d->items; item->key; item++) {
        const json_t *o = json_object_get(items, item->key);
        if (json_object_get(o, "rows") || json_object_get(o, "drawing"))
            report_item(o, item, b);
    }
}

/* The position of the kernel's lab in this track; -1: it is another track's. */
static int lab_of(const report *r, const report_kernel *k)
{
    char name[64];
    for (int i = 0; i < r->n; i++) {
        snprintf(name, sizeof name, "%s %s", lab_track_name[r->track], r->lab[i]->number);
        if (strcmp(name, k->lab) == 0)
            return i;
    }
    return -1;
}

void report_analysis(const report *r, vt_buf *b)
{
    const char *shown[REPORT_MAX_LABS] = {NULL};
    report_head(r, b, "analysis",
                "A box a kernel: execution model, performance, hardware behaviour, class and "
                "insight; below it the tables and drawings of its lab.");
    for (const report_kernel *k = report_kernels; k->op; k++) {
        const vt_op *op = vt_op_find(k->op);
        int at = lab_of(r, k);
        vt_buf_printf(b, "## %s\n\n%s.\n\n", k->op, op ? op->what : "");
        if (at < 0) {
            vt_buf_printf(b,
                          "Measured by `vitrine lab %s`, in the reports of that track: ", k->lab);
            vt_buf_printf(b, "[%.*s](" TO_LABS "%.*s/reports/%s/analysis.md#%s)\n\n",
                          (int)strcspn(k->lab, " "), k->lab, (int)strcspn(k->lab, " "), k->lab,
                          r->machine, k->op);
        } else if (shown[at])
            vt_buf_printf(b, "The same lab as of [%s](#%s) measures it.\n\n", shown[at], shown[at]);
        else if (!r->result[at]) {
            report_not_run(r->lab[at], b);
            vt_buf_putc(b, '\n');
        } else {
            put_box(r->lab[at], r->result[at], k->op, b);
            shown[at] = k->op;
        }
    }
    for (int i = 0; i < r->n; i++) {
        if (shown[i])
            continue;
        vt_buf_printf(b, "## Lab %s: %s\n\n", r->lab[i]->number, r->lab[i]->name);
        if (r->result[i])
            put_box(r->lab[i], r->result[i], r->lab[i]->name, b);
        else {
            report_not_run(r->lab[i], b);
            vt_buf_putc(b, '\n');
        }
    }
}
