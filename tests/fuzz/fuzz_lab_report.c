/* Pages of reports (lab/report/inside.h): whatever a result's JSON or a file of the experiments
 * holds, every page is text that ends, and the same input gives the same page. The input is the
 * result of every lab of a track, and each of the files. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "lab/kit/list.h"
#include "lab/report/inside.h"
#include "lab/report/knob_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void fill(report *r, lab_track t, json_t *json, const uint8_t *data, size_t size)
{
    static const char *const file[] = {
        "baseline_benchmark.json", "profiling_results.json", "radix_cache_results.json",
        "tp_single.json",          "tp_pair.json",           "kernel_summary.txt"};
    r->track = t;
    snprintf(r->machine, sizeof r->machine, "fuzz");
    r->of_machine = json_object_get(json, "machine");
    for (const lab_def *const *d = lab_list_of(t); *d && r->n < REPORT_MAX_LABS; d++) {
        r->lab[r->n] = *d;
        r->result[r->n++] = json;
    }
    r->n_run = r->n;
    r->flow = r->pass = json;
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        report_file *f = &r->file[r->n_files++];
        snprintf(f->name, sizeof f->name, "%s", file[i]);
        f->json = json;
        vt_buf_add(&f->text, data, size);
    }
}

static void write_all(const report *r)
{
    vt_err err = {0};
    json_t *view = report_view(r), *same = report_view(r);
    for (const report_page *p = report_pages; p->name; p++) {
        vt_buf a = {0}, b = {0};
        must(report_write_page(p, view, &a, &err) == VT_OK);
        must(report_write_page(p, same, &b, &err) == VT_OK);
        must(!a.failed && a.len > 0 && strlen(a.data) == a.len);
        must(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
        vt_buf_release(&a);
        vt_buf_release(&b);
    }
    json_decref(view);
    json_decref(same);
}

/* The same result on two machines, and on one of two. */
static void write_knobs(json_t *json)
{
    vt_err err = {0};
    const lab_def *d = lab_list_of(LAB_EXPERIMENTS)[0];
    for (int i = 0; i < 2; i++) {
        vt_buf a = {0};
        if (lab_knob_table_of(d, json, i ? json : NULL, &a, &err) == VT_OK)
            must(!a.failed && a.len > 0 && strlen(a.data) == a.len);
        else
            must(err.message[0] != '\0' && a.len == 0);
        vt_buf_release(&a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_err err = {0};
    json_t *json = NULL;
    if (vt_json_load("fuzz", (const char *)data, size, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE,
                     &json, &err) != VT_OK)
        json = NULL;
    /* the experiments alone: the criteria of the other tracks would look at results on disk */
    report *r = calloc(1, sizeof *r);
    must(r != NULL);
    fill(r, LAB_EXPERIMENTS, json, data, size);
    write_all(r);
    write_knobs(json);
    for (int i = 0; i < r->n_files; i++)
        vt_buf_release(&r->file[i].text);
    free(r);
    json_decref(json);
    return 0;
}
