/* vitrine lab: lists the labs, runs one, a track, or all (lab/kit/lab.h). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/json_write.h"
#include "base/plain_file.h"
#include "base/term/nearest.h"
#include "cli/cli.h"
#include "device/cpu.h"
#include "lab/kit/list.h"
#include "lab/kit/physics.h"
#include "lab/kit/result.h"
#include "lab/kit/run.h"
#include "lab/report/knob_table.h"
#include "lab/report/report.h"
#include "lab/report/status.h"
#include "version.h"

/* ---- what there is ---- */

/* "quick, 2026-11-22, 4 of 4 checks"; "open" where there is no result. */
static void put_done(vt_buf *b, const char *folder, const lab_def *d)
{
    json_t *r = NULL, *c;
    vt_err err = {0};
    size_t i, good = 0;
    if (lab_result_read(folder, d, &r, &err) != VT_OK)
        vt_buf_puts(b, "cannot be read");
    else if (!r)
        vt_buf_puts(b, "open");
    if (!r)
        return;
    const json_t *checks = json_object_get(r, "checks");
    json_array_foreach((json_t *)(uintptr_t)checks, i, c)
        good += json_is_true(json_object_get(c, "ok"));
    const char *when = json_string_value(json_object_get(r, "when"));
    vt_buf_printf(b, "%s%.10s, %zu of %zu checks",
                  json_is_true(json_object_get(r, "quick")) ? "quick, " : "", when ? when : "",
                  good, json_array_size(checks));
    json_decref(r);
}

/* Writes what one knows after each lab of the track. */
static void put_goals(lab_track t, vt_buf *b)
{
    vt_buf_puts(b, "\nAfterwards\n");
    for (const lab_def *const *d = lab_list_of(t); *d; d++) {
        vt_buf_printf(b, "  %-5s  ", (*d)->number);
        vt_text_wrap(b, (*d)->goal, 9, VT_TERM_WIDTH);
        vt_buf_putc(b, '\n');
    }
}

static vt_status list_track(const cli *c, lab_track t, vt_buf *b, vt_err *err)
{
    char folder[PATH_MAX];
    vt_table table;
    TRY(lab_results_folder(c->options, t, folder, sizeof folder, err));
    if (b->len)
        vt_buf_putc(b, '\n');
    else if (c->n_args == 0)
        vt_buf_puts(b,
                    "New here? labs/PLAN.md has a path for beginners, an hour long; its first lab "
                    "is\n'vitrine lab sglang 00 --quick'. 'vitrine lab TRACK' says what one "
                    "knows after each lab.\n\n");
    vt_text_ink(b, &c->out, VT_INK_BOLD, lab_track_name[t]);
    vt_buf_putc(b, '\n');
    vt_table_init(&table, "lab|name|done here");
    for (const lab_def *const *d = lab_list_of(t); *d; d++) {
        vt_buf done = {0};
        put_done(&done, folder, *d);
        vt_table_cell(&table, "%s", (*d)->number);
        vt_table_cell(&table, "%s", (*d)->name);
        vt_table_cell(&table, "%s", done.data ? done.data : "");
        vt_buf_release(&done);
    }
    vt_table_finish(&table, b, &c->out, 2);
    if (c->n_args > 0)
        put_goals(t, b);
    return VT_OK;
}

/* The same as JSON: an object a lab. `done`: as the table says; `result`: where its file is or
 * would be. */
static vt_status list_track_json(const cli *c, lab_track t, vt_json *w, vt_err *err)
{
    char folder[PATH_MAX], path[PATH_MAX + 128];
    TRY(lab_results_folder(c->options, t, folder, sizeof folder, err));
    for (const lab_def *const *d = lab_list_of(t); *d; d++) {
        vt_buf done = {0};
        put_done(&done, folder, *d);
        snprintf(path, sizeof path, "%s/%s_%s.json", folder, (*d)->number, (*d)->name);
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "track", lab_track_name[t]);
        vt_json_string(w, "lab", (*d)->number);
        vt_json_string(w, "name", (*d)->name);
        vt_json_string(w, "goal", (*d)->goal);
        vt_json_string(w, "done", done.data ? done.data : "");
        vt_json_string(w, "result", path);
        vt_json_close(w);
        vt_buf_release(&done);
    }
    return VT_OK;
}

/* LAB_TRACKS: of every track. */
static int list(const cli *c, lab_track only)
{
    vt_json w;
    vt_buf b = {0};
    vt_err err = {0};
    vt_status status = VT_OK;
    if (c->json) {
        vt_json_begin(&w, &b, -1);
        vt_json_open(&w, NULL, '[');
    }
    for (int t = 0; t < LAB_TRACKS && status == VT_OK; t++)
        if (only == LAB_TRACKS || t == (int)only)
            status = c->json ? list_track_json(c, (lab_track)t, &w, &err)
                             : list_track(c, (lab_track)t, &b, &err);
    if (c->json) {
        vt_json_close(&w);
        if (!vt_json_end(&w) && status == VT_OK)
            status = vt_fail(&err, VT_ERR_MEMORY, "out of memory for the list of labs");
        vt_buf_putc(&b, '\n');
    } else
        vt_buf_puts(&b, "\nRun one with 'vitrine lab TRACK NN', a track with 'vitrine lab TRACK "
                        "all'. Without a GPU the\nlabs run on the CPU.\n");
    if (status == VT_OK)
        return cli_text_print(&b);
    vt_buf_release(&b);
    return cli_fail(&err);
}

/* ---- running ---- */

static lab_ask ask_of(const cli *c, const char *folder)
{
    lab_ask a = {.options = c->options,
                 .folder = folder,
                 .ordinal = vt_options_cuda(c->options),
                 .threads = (int32_t)vt_options_int(c->options, "threads"),
                 .quick = vt_options_flag(c->options, "quick"),
                 .talk = !c->quiet && !c->json};
    if (a.threads == 0)
        a.threads = vt_cpu_get()->n_cores;
    a.model = vt_options_given(c->options, "model") || a.ordinal < 0
                  ? vt_options_get(c->options, "model")
                  : "dummy:qwen3-0.6b";
    return a;
}

static int print(const cli *c, const json_t *result)
{
    vt_buf b = {0};
    if (c->json) {
        char *text = json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (!text)
            return CLI_FAILED;
        printf("%s\n", text);
        free(text);
        return CLI_DONE;
    }
    lab_result_render(result, &c->out, &b);
    int code = cli_text_print(&b);
    fflush(stdout);
    return code;
}

/* Runs a lab, writes its result, prints it. */
static int run_one(const cli *c, const lab_def *d)
{
    char folder[PATH_MAX];
    vt_err err = {0};
    json_t *result = NULL;
    bool failed = false;
    int32_t gpu;
    vt_status status = vt_options_gpus(c->options, 1, &gpu, &err);
    if (status == VT_OK)
        status = lab_results_folder(c->options, d->track, folder, sizeof folder, &err);
    if (status == VT_OK)
        status = vt_make_folders(folder, &err);
    if (status == VT_OK) {
        lab_ask a = ask_of(c, folder);
        status = lab_run(&a, d, &result, &failed, &err);
    }
    if (status == VT_OK)
        status = lab_result_write(result, d, folder, &err);
    if (status == VT_OK && !c->json)
        cli_note(c, "the result is %s/%s_%s.json", folder, d->number, d->name);
    int code = status == VT_OK ? print(c, result) : cli_fail(&err);
    json_decref(result);
    if (code == CLI_DONE && failed) {
        cli_say("lab %s %s: a check failed", lab_track_name[d->track], d->number);
        code = CLI_FAILED;
    }
    return code;
}

/* Returns true if this very program has run it in this form already. */
static bool is_done(const cli *c, const lab_def *d)
{
    char folder[PATH_MAX];
    vt_err err = {0};
    json_t *r = NULL;
    if (vt_options_flag(c->options, "again") ||
        lab_results_folder(c->options, d->track, folder, sizeof folder, &err) != VT_OK ||
        lab_result_read(folder, d, &r, &err) != VT_OK || !r)
        return false;
    const char *commit = json_string_value(json_object_get(r, "commit"));
    bool quick = json_is_true(json_object_get(r, "quick")),
         same = commit && strcmp(commit, VT_COMMIT) == 0;
    json_decref(r);
    return same && (!quick || vt_options_flag(c->options, "quick"));
}

static void add_failure(int *worst, int code)
{
    if (code == CLI_INTERRUPTED || (code != CLI_DONE && *worst != CLI_INTERRUPTED))
        *worst = code;
}

/* Labs that were not interrupted go on after one that failed. */
static int run_track(const cli *c, lab_track t)
{
    int worst = CLI_DONE;
    for (const lab_def *const *d = lab_list_of(t); *d && worst != CLI_INTERRUPTED; d++) {
        if (is_done(c, *d))
            cli_note(c, "lab %s %s is done already (--again runs it anew)", lab_track_name[t],
                     (*d)->number);
        else
            add_failure(&worst, run_one(c, *d));
    }
    return worst;
}

/* ---- reports, criteria, published numbers ---- */

/* Prints the text, or as JSON a list of its lines. */
static int print_lines(const cli *c, const vt_buf *b)
{
    json_t *list = json_array();
    for (const char *p = b->data; c->json && p && *p;) {
        size_t n = strcspn(p, "\n");
        json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] == '\n');
    }
    char *text = c->json ? json_dumps(list, JSON_COMPACT) : NULL;
    bool ok = c->json ? text && printf("%s\n", text) > 0
                      : fwrite(b->data, 1, b->len, stdout) == b->len;
    free(text);
    json_decref(list);
    return ok && fflush(stdout) == 0 ? CLI_DONE : CLI_FAILED;
}

/* LAB_TRACKS: of every track. */
static int write_report(const cli *c, lab_track only)
{
    vt_buf said = {0};
    vt_err err = {0};
    vt_status status = lab_report(c->options, only, &said, &err);
    int code = status == VT_OK ? print_lines(c, &said) : cli_fail(&err);
    vt_buf_release(&said);
    return code;
}

/* 'lab status [TRACK]' */
static int print_status(const cli *c, const char *track)
{
    lab_track only = LAB_TRACKS;
    vt_buf b = {0};
    vt_err err = {0};
    vt_status status = VT_OK;
    if (track && (!lab_track_find(track, &only) || only == LAB_EXPERIMENTS))
        status = vt_fail(&err, VT_ERR_USAGE,
                         "no criteria of '%.40s'; there are those of sglang, mini-sglang and "
                         "flashinfer",
                         track);
    if (status == VT_OK)
        status = lab_status(c->options, only, c->json, &c->out, &b, &err);
    if (status == VT_OK)
        return cli_text_print(&b);
    vt_buf_release(&b);
    return cli_fail(&err);
}

/* Writes ROOT/NAME and prints the page. */
static vt_status write_page(const cli *c, const char *name, const vt_buf *page, vt_err *err)
{
    char root[PATH_MAX - 32], path[PATH_MAX];
    if (page->failed)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", name);
    TRY(lab_root(c->options, root, sizeof root, err));
    TRY(vt_make_folders(root, err));
    snprintf(path, sizeof path, "%s/%s", root, name);
    return vt_write_whole(path, page->data, page->len, err);
}

/* 'lab physics' writes ROOT/physics.md, 'lab knobs' ROOT/knobs.md. */
static int print_page(const cli *c, const char *which)
{
    vt_buf page = {0};
    vt_err err = {0};
    vt_status status = VT_OK;
    bool knobs = strcmp(which, "knobs") == 0;
    if (knobs)
        status = lab_knob_table(c->options, &page, &err);
    else
        lab_physics_page(&page);
    if (status == VT_OK)
        status = write_page(c, knobs ? "knobs.md" : "physics.md", &page, &err);
    int code = status == VT_OK ? print_lines(c, &page) : cli_fail(&err);
    vt_buf_release(&page);
    return code;
}

/* The environment of all tracks first, then track by track, then the reports. */
static int run_all(const cli *c)
{
    int worst = CLI_DONE;
    for (int t = 0; t < LAB_EXPERIMENTS; t++) {
        const lab_def *first = lab_list_of((lab_track)t)[0];
        if (first && !is_done(c, first))
            add_failure(&worst, run_one(c, first));
    }
    for (int t = 0; t < LAB_EXPERIMENTS; t++)
        add_failure(&worst, run_track(c, (lab_track)t));
    if (worst != CLI_INTERRUPTED)
        add_failure(&worst, write_report(c, LAB_TRACKS));
    return worst;
}

static int no_track(const char *name)
{
    vt_err err = {0};
    vt_nearest n = vt_nearest_begin(name);
    for (int t = 0; t < LAB_TRACKS; t++)
        vt_nearest_try(&n, lab_track_name[t]);
    vt_fail(&err, VT_ERR_USAGE,
            "no track '%.40s'%s%s%s there are sglang, mini-sglang, flashinfer and experiments; "
            "'vitrine lab list' shows their labs",
            name, n.best ? ", did you mean " : "", n.best ? n.best : "", n.best ? "?" : ";");
    return cli_fail(&err);
}

static int run_words(const cli *c)
{
    vt_err err = {0};
    lab_track t;
    const lab_def *d;
    const char *track = c->n_args > 0 ? c->arg[0] : NULL, *which = c->n_args > 1 ? c->arg[1] : NULL;
    if (!track)
        return list(c, LAB_TRACKS);
    if (strcmp(track, "all") == 0 && !which)
        return run_all(c);
    if (strcmp(track, "status") == 0)
        return print_status(c, which);
    if ((strcmp(track, "physics") == 0 || strcmp(track, "knobs") == 0) && !which)
        return print_page(c, track);
    if (strcmp(track, "report") == 0 && !which)
        return write_report(c, LAB_TRACKS);
    if (!lab_track_find(track, &t))
        return no_track(track);
    if (!which)
        return list(c, t);
    if (strcmp(which, "all") == 0)
        return run_track(c, t);
    if (strcmp(which, "report") == 0)
        return write_report(c, t);
    if (lab_find_or_fail(t, which, &d, &err) != VT_OK)
        return cli_fail(&err);
    return run_one(c, d);
}

/* Runs what the words ask for: "list" in front of them says nothing, "sglang/00" is two words. */
int cli_lab(cli *c)
{
    char track[64];
    const char *word[2] = {c->n_args > 0 ? c->arg[0] : NULL, c->n_args > 1 ? c->arg[1] : NULL};
    cli words = *c;
    words.arg = word;
    if (word[0] && strcmp(word[0], "list") == 0) {
        word[0] = word[1];
        words.n_args--;
    }
    const char *slash = words.n_args == 1 ? strchr(word[0], '/') : NULL;
    if (slash && slash[1] && slash - word[0] < (int)sizeof track) {
        snprintf(track, sizeof track, "%.*s", (int)(slash - word[0]), word[0]);
        word[0] = track;
        word[1] = slash + 1;
        words.n_args = 2;
    }
    return run_words(&words);
}
