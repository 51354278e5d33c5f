/* Loading the results of a folder, and writing the pages (report.h). */
#include "lab/report/report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "files/json.h"
#include "lab/kit/list.h"
#include "lab/kit/result.h"
#include "lab/report/inside.h"
#include "text/template/template.h"

const report_page report_pages[] = {
    {"INDEX.md", "where to begin, the kernels, the ranges to expect, how to read a result"},
    {"environment.md", "the machine: its roofs, devices, links, compilers and profilers"},
    {"plan.md", "what each lab expects before it runs, and what came"},
    {"experiments.md", "each lab: timeline, hardware, pictures, observations"},
    {"analysis.md", "a box a kernel: execution, performance, hardware, class, insight"},
    {"kernel-dev-guide.md", "where the code is, how to profile it, how to add a kernel"},
    {"final-report.md", "findings, opportunities with verdicts, criteria, what was not measured"},
    {"final-report.html", "the final report as one file of HTML, with bars; it loads nothing"},
    {"key-findings.md", "four tables: baseline, prefix cache, scaling, kernels", true},
    {0}};

/* ---- loading ---- */

/* The members whose type the pages rely on. */
vt_status report_check_result(const char *folder, const lab_def *d, const json_t *result,
                              vt_err *err)
{
    static const char *const lists[] = {"predictions", "checks", "knobs", "findings", "files"},
                             *const objects[] = {"items", "machine", "roofs"};
    const char *wrong = NULL, *wanted = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !wrong; i++)
        if (!json_is_array(json_object_get(result, lists[i])))
            wrong = lists[i], wanted = "a list";
    for (size_t i = 0; i < sizeof objects / sizeof *objects && !wrong; i++)
        if (!json_is_object(json_object_get(result, objects[i])))
            wrong = objects[i], wanted = "an object";
    if (!wrong)
        return VT_OK;
    return vt_fail(err, VT_ERR_FORMAT,
                   "%s/%s_%s.json: member '%s' is missing or of another type, expected %s", folder,
                   d->number, d->name, wrong, wanted);
}

/* A number of bytes or of cores; 0: there is none. */
static int64_t read_size(const json_t *o, const char *key)
{
    double v = report_number(o, key);
    return v >= 1 && v <= 1e12 ? (int64_t)v : 0;
}

/* The first result that has them. On a CPU an L2 belongs to a core: together the threads have the
 * L2s of their cores. */
static void read_caches(report *r, const json_t *machine)
{
    const json_t *caches = json_object_get(machine, "caches");
    bool gpu = strcmp(report_string(machine, "device"), "cuda") == 0;
    int64_t threads = read_size(machine, "threads"), cores = read_size(machine, "cores"),
            l2 = read_size(caches, "l2_bytes");
    if (r->caches_known || l2 == 0 || (!gpu && (threads == 0 || cores == 0)))
        return;
    r->caches_known = true;
    r->l1d_size = read_size(caches, "l1d_bytes");
    r->roofs.l2_size = gpu ? l2 : l2 * (threads < cores ? threads : cores);
    r->roofs.l3_size = read_size(caches, "l3_bytes");
}

static void read_roofs(report *r, const json_t *result)
{
    const json_t *roofs = json_object_get(result, "roofs"),
                 *machine = json_object_get(result, "machine");
    read_caches(r, machine);
    if (r->of_machine && r->roofs.memory_bytes_per_s > 0)
        return;
    r->of_machine = machine;
    double threads = report_number(machine, "threads");
    r->roofs.threads = threads >= 1 && threads <= 4096 ? (int32_t)threads : 1;
    r->roofs.is_gpu = strcmp(report_string(machine, "device"), "cuda") == 0;
    for (int i = 0; i < VT_ROOFS; i++) {
        double v = report_number(json_object_get(roofs, vt_roof_rows[i].key), "value");
        if (v > 0)
            vt_roof_set(&r->roofs, (vt_roof_kind)i, v, VT_ROOF_MEASURED, 0);
    }
}

/* Reads a text file; one that is missing leaves *out empty. */
static vt_status read_text(const char *path, vt_buf *out, vt_err *err)
{
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return VT_OK;
    return vt_read_whole(path, 4 << 20, out, err);
}

static vt_status read_file(report *r, const char *name, vt_err *err)
{
    char path[PATH_MAX + 72];
    if (r->n_files == REPORT_MAX_FILES)
        return vt_fail(err, VT_ERR_FORMAT, "%s: more than %d files of experiments", r->folder,
                       REPORT_MAX_FILES);
    report_file *f = &r->file[r->n_files++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", r->folder, f->name);
    TRY(read_text(path, &f->text, err));
    if (f->text.len > 0 && strstr(name, ".json"))
        TRY(vt_json_load(path, f->text.data, f->text.len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE,
                         &f->json, err));
    return f->json ? report_make_safe(f->json, false, err) : VT_OK;
}

static int is_tp(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 8 && n < 64 && strncmp(e->d_name, "tp_", 3) == 0 &&
           strcmp(e->d_name + n - 5, ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The files of the experiments; tp_CONFIGURATION.json as many as there are. A file that is not
 * there is no error. */
static vt_status read_files(report *r, vt_err *err)
{
    static const char *const name[] = {"baseline_benchmark.json", "throughput_benchmark.json",
                                       "profiling_results.json",  "radix_cache_results.json",
                                       "kernel_summary.txt",      "memory_summary.txt"};
    struct dirent **found = NULL;
    vt_status status = VT_OK;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        TRY(read_file(r, name[i], err));
    int n = scandir(r->folder, &found, is_tp, by_name);
    if (n < 0 && errno == ENOENT)
        return VT_OK;
    if (n < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", r->folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (status == VT_OK)
            status = read_file(r, found[i]->d_name, err);
        free(found[i]);
    }
    free(found);
    return status;
}

/* The result of a lab of any track on this machine; NULL: not run. */
static vt_status load_other(const vt_options *o, lab_track t, const char *number, json_t **out,
                            vt_err *err)
{
    char folder[PATH_MAX];
    const lab_def *d = lab_find(t, number);
    if (!d)
        return VT_OK;
    TRY(lab_results_folder(o, t, folder, sizeof folder, err));
    TRY(lab_result_read(folder, d, out, err));
    if (!*out)
        return VT_OK;
    TRY(report_check_result(folder, d, *out, err));
    return report_make_safe(*out, false, err);
}

static vt_status load(const vt_options *o, lab_track t, report *r, vt_err *err)
{
    r->track = t;
    r->options = o;
    const char *machine = vt_options_given(o, "machine") ? vt_options_get(o, "machine") : "local";
    snprintf(r->machine, sizeof r->machine, "%.70s", machine);
    TRY(lab_results_folder(o, t, r->folder, sizeof r->folder, err));
    for (const lab_def *const *d = lab_list_of(t); *d && r->n < REPORT_MAX_LABS; d++) {
        json_t **result = &r->result[r->n];
        r->lab[r->n++] = *d;
        TRY(lab_result_read(r->folder, *d, result, err));
        if (!*result)
            continue;
        TRY(report_check_result(r->folder, *d, *result, err));
        TRY(report_make_safe(*result, false, err));
        r->n_run++;
        r->n_quick += json_is_true(json_object_get(*result, "quick"));
        r->n_disturbed += strcmp(report_string(*result, "state"), "disturbed") == 0;
        r->n_emulated += strcmp(report_string(*result, "state"), "emulated") == 0;
        read_roofs(r, *result);
    }
    TRY(load_other(o, LAB_SGLANG, "01", &r->flow, err));
    TRY(load_other(o, LAB_MINI_SGLANG, "06", &r->pass, err));
    return t == LAB_EXPERIMENTS ? read_files(r, err) : VT_OK;
}

static void release(report *r)
{
    for (int i = 0; i < r->n; i++)
        json_decref(r->result[i]);
    json_decref(r->flow);
    json_decref(r->pass);
    for (int i = 0; i < r->n_files; i++) {
        json_decref(r->file[i].json);
        vt_buf_release(&r->file[i].text);
    }
}

/* ---- writing ---- */

/* Made by tools/embed-kernels --table from pages/; ended by a NULL name. */
typedef struct template_file {
    const char *name, *text;
    uint64_t size;
} template_file;

extern const template_file vt_report_files[] __attribute__((visibility("hidden")));

static void add_template(vt_buf *source, const char *name)
{
    for (const template_file *f = vt_report_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            vt_buf_add(source, f->text, f->size);
}

static vt_status write_markdown(const char *page, json_t *view, vt_buf *b, vt_err *err)
{
    char name[64];
    vt_buf source = {0};
    vt_template *t = NULL;
    snprintf(name, sizeof name, "%s.jinja", page);
    add_template(&source, "shared.jinja");
    add_template(&source, "findings.jinja");
    add_template(&source, name);
    vt_buf_putc(&source, '\n'); /* a template's last line break is not of its text */
    vt_status status = source.failed || !view
                           ? vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", page)
                           : vt_template_parse(name, source.data, source.len, &t, err);
    if (status == VT_OK)
        status = vt_template_render_object(t, view, &(vt_template_limits){0}, b, err);
    vt_template_free(t);
    vt_buf_release(&source);
    return status;
}

/* "NAME.html" is made from the markdown of "NAME.md". */
vt_status report_write_page(const report_page *page, json_t *view, vt_buf *b, vt_err *err)
{
    char name[64];
    vt_buf markdown = {0};
    size_t stem = strcspn(page->name, ".");
    if (strcmp(page->name + stem, ".html") != 0)
        return write_markdown(page->name, view, b, err);
    snprintf(name, sizeof name, "%.*s.md", (int)stem, page->name);
    vt_status status = write_markdown(name, view, &markdown, err);
    if (status == VT_OK)
        report_html(markdown.data ? markdown.data : "", markdown.len, b);
    b->failed |= markdown.failed;
    vt_buf_release(&markdown);
    return status;
}

static vt_status write_page(const report_page *page, json_t *view, const char *path, vt_err *err)
{
    vt_buf b = {0};
    vt_status status = report_write_page(page, view, &b, err);
    if (status == VT_OK)
        status = b.failed ? vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path)
                          : vt_write_whole(path, b.data, b.len, err);
    vt_buf_release(&b);
    return status;
}

static vt_status write_pages(const vt_options *o, const report *r, vt_buf *said, vt_err *err)
{
    char root[PATH_MAX], folder[PATH_MAX];
    TRY(lab_root(o, root, sizeof root, err));
    if (snprintf(folder, sizeof folder, "%s/%s/reports/%s", root, lab_track_name[r->track],
                 r->machine) >= (int)sizeof folder - 64)
        return vt_fail(err, VT_ERR_USAGE, "--results: the path is too long");
    TRY(vt_make_folders(folder, err));
    json_t *view = report_view(r);
    vt_status status = VT_OK;
    for (const report_page *p = report_pages; p->name && status == VT_OK; p++) {
        char path[PATH_MAX + 64];
        if (p->experiments && r->track != LAB_EXPERIMENTS)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, p->name);
        status = write_page(p, view, path, err);
        if (status == VT_OK)
            vt_buf_printf(said, "%s\n", path);
    }
    json_decref(view);
    return status;
}

/* All results are read before the first page is written. */
vt_status lab_report(const vt_options *o, lab_track only, vt_buf *said, vt_err *err)
{
    report *r = calloc(LAB_TRACKS, sizeof *r);
    vt_status status = r ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for reports");
    for (int t = 0; t < LAB_TRACKS && status == VT_OK; t++)
        if (only == LAB_TRACKS || t == (int)only)
            status = load(o, (lab_track)t, &r[t], err);
    for (int t = 0; t < LAB_TRACKS && status == VT_OK; t++)
        if (only == LAB_TRACKS || t == (int)only)
            status = write_pages(o, &r[t], said, err);
    for (int t = 0; r && t < LAB_TRACKS; t++)
        release(&r[t]);
    free(r);
    return status;
}
