/* Running a lab: the context, the reader's prediction, the items that must be there (lab.h). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/cpu.h"
#include "device/probe.h"
#include "lab/kit/devices.h"
#include "lab/kit/list.h"
#include "lab/kit/result.h"
#include "lab/kit/run.h"
#include "version.h"

/* ---- what the reader asked for ---- */

/* A lab's option may have a row of its own where another verb means something else by it. */
static const char *row_of(const lab *l, const char *key)
{
    int32_t n;
    const vt_option *o = vt_option_find(key, VT_FOR_LAB);
    if (o)
        l->asked[o - vt_option_table(&n)] = true;
    return o ? o->id ? o->id : o->key : NULL;
}

/* An option that only labs take, that was given, and that this lab never asked for. */
static void tell_unused_options(lab *l)
{
    static const char *const of_all[] = {"quick",   "predict", "no-predict",
                                         "results", "machine", "again"};
    int32_t n;
    const vt_option *t = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++) {
        bool used = l->asked[i] || t[i].verbs != VT_FOR_LAB;
        for (size_t k = 0; k < sizeof of_all / sizeof *of_all; k++)
            used = used || strcmp(t[i].key, of_all[k]) == 0;
        if (!used && vt_options_given(l->options, t[i].id ? t[i].id : t[i].key))
            lab_finding(l, "option.unused", "--%s was given, and this lab did not use it",
                        t[i].key);
    }
}

bool lab_flag(const lab *l, const char *key)
{
    const char *row = row_of(l, key);
    return row && vt_options_flag(l->options, row);
}

int64_t lab_int(const lab *l, const char *key, int64_t quick, int64_t full)
{
    const char *row = row_of(l, key);
    if (row && vt_options_given(l->options, row))
        return vt_options_int(l->options, row);
    return l->quick ? quick : full;
}

const char *lab_text(const lab *l, const char *key)
{
    const char *row = row_of(l, key);
    return row && vt_options_given(l->options, row) ? vt_options_get(l->options, row) : NULL;
}

void lab_note(lab *l, const char *fmt, ...)
{
    va_list args;
    if (!l->talk)
        return;
    va_start(args, fmt);
    fputs("  ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- the reader's prediction ---- */

/* "120us", "1.5 ms", "3e9 B/s", "40 %", "17": a value in the unit's own measure. NAN: it is
 * none. */
static double read_value(const char *text, vt_unit unit)
{
    static const struct {
        const char *suffix;
        double times;
        vt_unit unit;
    } known[] = {{"ns", 1e-9, VT_SECONDS},
                 {"us", 1e-6, VT_SECONDS},
                 {"ms", 1e-3, VT_SECONDS},
                 {"s", 1, VT_SECONDS},
                 {"B/s", 1, VT_BYTES_PER_S},
                 {"MB/s", 1e6, VT_BYTES_PER_S},
                 {"GB/s", 1e9, VT_BYTES_PER_S},
                 {"TB/s", 1e12, VT_BYTES_PER_S},
                 {"GFLOP/s", 1e9, VT_FLOP_PER_S},
                 {"TFLOP/s", 1e12, VT_FLOP_PER_S},
                 {"tok/s", 1, VT_TOKENS_PER_S},
                 {"tokens/s", 1, VT_TOKENS_PER_S},
                 {"B", 1, VT_BYTES},
                 {"KB", 1e3, VT_BYTES},
                 {"MB", 1e6, VT_BYTES},
                 {"GB", 1e9, VT_BYTES},
                 {"%", 0.01, VT_SHARE},
                 {"x", 1, VT_RATIO}};
    char *end;
    double v = strtod(text, &end);
    if (end == text)
        return NAN;
    end += strspn(end, " ");
    if (!*end)
        return unit == VT_COUNT || unit == VT_RATIO || unit == VT_TOKENS_PER_S ? v : NAN;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].unit == unit && strcasecmp(end, known[i].suffix) == 0)
            return v * known[i].times;
    return NAN;
}

static const char *example_of(vt_unit unit)
{
    static const char *const example[] = {"120us",    "1.5MB", "40GB/s", "200GFLOP/s",
                                          "150tok/s", "40%",   "1.3x",   "5"};
    return example[unit];
}

/* Returns true if a person sits there who can be asked. */
static bool is_reader_there(const lab *l)
{
    return l->talk && !lab_flag(l, "no-predict") && isatty(0) && isatty(2);
}

/* Asks until the answer is a value of this unit. NAN: the reader skips the question. */
static double ask_terminal(const char *what, vt_unit unit)
{
    char line[128];
    double v = NAN;
    do {
        fprintf(stderr, "  What do you expect? %s (such as %s; Enter to skip): ", what,
                example_of(unit));
        if (!fgets(line, sizeof line, stdin))
            return NAN;
        line[strcspn(line, "\n")] = '\0';
        v = read_value(line, unit);
        if (*line && !isfinite(v))
            fprintf(stderr, "  '%.40s' has no unit that fits; an answer looks like %s\n", line,
                    example_of(unit));
    } while (*line && !isfinite(v));
    return v;
}

/* The main quantity is asked for once. A slip of the keyboard is asked again; a --predict that
 * cannot be read is an error of usage. */
void lab_ask_reader(lab *l, json_t *p)
{
    vt_unit unit = VT_COUNT;
    const char *text = lab_text(l, "predict"),
               *what = json_string_value(json_object_get(p, "what"));
    vt_unit_find(json_string_value(json_object_get(p, "unit")), &unit);
    if (!text && !is_reader_there(l))
        return;
    int64_t begin_ns = vt_now_ns();
    double v = text ? read_value(text, unit) : ask_terminal(what, unit);
    l->thought_ns += vt_now_ns() - begin_ns;
    if (isfinite(v))
        json_object_set_new(p, "reader", json_real(v));
    else if (text && !l->refused.message[0])
        vt_fail(&l->refused, VT_ERR_USAGE,
                "--predict: '%.40s' is no value of '%s'; expected something like %s", text, what,
                example_of(unit));
}

const char *lab_grade(double expected, double measured)
{
    double ratio = measured == expected ? 1 : measured / expected; /* both may be 0 */
    if (!(ratio > 0))
        return "off by more";
    ratio = ratio < 1 ? 1 / ratio : ratio;
    return ratio <= 1.2 ? "within 20 %" : ratio <= 2 ? "within 2x" : "off by more";
}

/* ---- one lab ---- */

/* Returns true if other programs use the machine: more of them run than this program's labs would.
 * Labs that measure their own threads find out more exactly. */
static bool is_busy(void)
{
    double load = 0;
    return getloadavg(&load, 1) == 1 && load > 2 * vt_cpu_get()->n_cpus + 1;
}

static void put_size(json_t *o, const char *key, int64_t bytes)
{
    json_object_set_new(o, key, bytes > 0 ? json_integer(bytes) : json_null());
}

/* The size of one cache of each level: a core's L1d and L2, an L3; of a GPU its L2. Null: not
 * known. */
static json_t *caches_of(const lab *l)
{
    const vt_cpu *cpu = vt_cpu_get();
    json_t *o = json_object();
    if (l->ordinal >= 0) {
        put_size(o, "l2_bytes", l->roofs.l2_size);
        return o;
    }
    put_size(o, "l1d_bytes", cpu->l1d_bytes);
    put_size(o, "l2_bytes", cpu->l2_bytes);
    put_size(o, "l3_bytes", cpu->l3_bytes);
    return o;
}

static json_t *machine_of(const lab *l)
{
    const vt_cpu *cpu = vt_cpu_get();
    json_t *m = json_object();
    json_object_set_new(m, "name", json_string(l->ordinal >= 0 ? l->roofs.name : cpu->model));
    json_object_set_new(m, "device", json_string(l->ordinal >= 0 ? "cuda" : "cpu"));
    json_object_set_new(m, "cpu", json_string(cpu->model));
    json_object_set_new(m, "level", json_string(vt_isa_name(cpu->level)));
    json_object_set_new(m, "threads", json_integer(l->threads));
    json_object_set_new(m, "cores", json_integer(cpu->n_cores));
    json_object_set_new(m, "caches", caches_of(l));
    return m;
}

static void begin_result(lab *l)
{
    static const char *const lists[] = {"predictions", "checks", "knobs",
                                        "findings",    "files",  "events"};
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    const lab_def *d = l->def;
    json_t *r = l->result = json_object(), *about = json_array();
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_object_set_new(r, "schema", json_string("vitrine.lab"));
    json_object_set_new(r, "version", json_integer(1));
    json_object_set_new(r, "track", json_string(lab_track_name[d->track]));
    json_object_set_new(r, "lab", json_string(d->number));
    json_object_set_new(r, "name", json_string(d->name));
    json_object_set_new(r, "goal", json_string(d->goal));
    for (int i = 0; i < 3 && d->about[i]; i++)
        json_array_append_new(about, json_string(d->about[i]));
    json_object_set_new(r, "about", about);
    json_object_set_new(r, "machine", machine_of(l));
    json_object_set_new(r, "model", json_string(l->model));
    json_object_set_new(r, "commit", json_string(VT_COMMIT));
    json_object_set_new(r, "when", json_string(when));
    json_object_set_new(r, "quick", json_boolean(l->quick));
    json_object_set_new(r, "state", json_string(l->emulated ? "emulated" : "quiet"));
    json_object_set_new(r, "roofs", lab_roofs_json(&l->roofs));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        json_object_set_new(r, lists[i], json_array());
    json_object_set_new(r, "items", json_object());
}

const lab_knob_def *lab_knob_find(const lab_def *d, const char *name, const char *where)
{
    for (const lab_knob_def *k = d->knobs; k->mark; k++)
        if (strstr(name, k->mark) || strstr(where, k->mark))
            return k;
    return NULL;
}

static void check_knobs(lab *l)
{
    size_t i;
    json_t *k;
    json_array_foreach(json_object_get(l->result, "knobs"), i, k)
    {
        const char *name = json_string_value(json_object_get(k, "name")),
                   *where = json_string_value(json_object_get(k, "where"));
        if (name && where && !lab_knob_find(l->def, name, where))
            lab_check(l, false, "the lab does not declare its knob '%s' (%s)", name, where);
    }
}

/* The lab's own items must all be there, and nothing may be told twice under another name. */
static void check_items(lab *l)
{
    const json_t *items = json_object_get(l->result, "items");
    for (const lab_item_def *i = l->def->items; i->key; i++)
        if (!json_object_get(items, i->key))
            lab_check(l, false, "the lab does not tell its item '%s' (%s)", i->key, i->what);
    if (l->late)
        lab_check(l, false, "the reader was asked for a prediction after the lab had begun to run");
}

/* Which tier measured, and what it does not see. */
static void put_tier(lab *l)
{
    char why[256], blind[320];
    bool events = vt_probe_perf_events(why, sizeof why);
    snprintf(blind, sizeof blind, "bytes moved, cache misses, stalls: %s", why);
    const char *tier = l->counted ? "T0: clocks, and exact bytes and FLOPs; T3: counters of single "
                                    "kernels, by ncu"
                       : l->vitals ? "T0: clocks, and exact bytes and FLOPs; T3: counters of each "
                                     "call of a step, by CUPTI"
                                   : "T0: clocks, and exact bytes and FLOPs";
    const char *cannot = l->counted ? "what changes within a kernel, and counters of other kernels "
                                      "than those that ncu ran"
                         : l->vitals ? "what changes within a kernel, and why its warps wait: ncu "
                                       "reads that, in labs of single kernels with --ncu"
                         : l->ordinal >= 0
                             ? "bytes moved, cache hits, stalls: ncu reads them, in labs of single "
                               "kernels with --ncu; occupancy is computed from the launch"
                         : events ? "bytes moved, cache misses, stalls: hardware events are "
                                    "read a step, in stories, and not a case"
                                  : blind;
    json_object_set_new(l->result, "tier", json_string(tier));
    json_object_set_new(l->result, "cannot_see", json_string(cannot));
}

/* Before a person is asked or waits: which lab this is, and what it is about to do. */
static void introduce(lab *l)
{
    const lab_def *d = l->def;
    vt_buf b = {0};
    if (!is_reader_there(l))
        return;
    vt_buf_printf(&b, "LAB %s %s %s\n  ", lab_track_name[d->track], d->number, d->name);
    vt_text_wrap(&b, d->goal, 2, VT_TERM_WIDTH);
    for (int i = 0; i < 3 && d->about[i]; i++) {
        vt_buf_puts(&b, "\n  - ");
        vt_text_wrap(&b, d->about[i], 4, VT_TERM_WIDTH);
    }
    fprintf(stderr, "%s\n\n", b.data ? b.data : "");
    vt_buf_release(&b);
}

vt_status lab_run(const lab_ask *ask, const lab_def *def, json_t **result, bool *failed,
                  vt_err *err)
{
    bool asked[LAB_MAX_OPTIONS] = {false};
    lab l = {.def = def,
             .asked = asked,
             .options = ask->options,
             .model = ask->model,
             .ordinal = ask->ordinal,
             .quick = ask->quick,
             .threads = ask->threads,
             .results = ask->folder,
             .talk = ask->talk,
             .begin_ns = vt_now_ns(),
             .busy = is_busy(),
             .term = {.width = VT_TERM_WIDTH}};
    *result = NULL;
    vt_status status = lab_devices_open(&l, err);
    if (status == VT_OK && ask->ordinal >= 0 && l.emulated && !def->kernels)
        status = vt_fail(err, VT_ERR_UNSUPPORTED,
                         "lab %s %s measures times, which mean nothing on an emulated GPU; use "
                         "--device cpu",
                         lab_track_name[def->track], def->number);
    if (status == VT_OK) {
        begin_result(&l);
        introduce(&l);
        status = def->run(&l, err);
    }
    if (status == VT_OK && l.refused.message[0]) {
        *err = l.refused;
        status = l.refused.status;
    }
    if (status == VT_OK) {
        check_items(&l);
        check_knobs(&l);
        tell_unused_options(&l);
        if (l.events_left > 0)
            lab_event(&l, vt_now_ns(), "%d events more, which are not listed", l.events_left);
        put_tier(&l);
        double seconds = (double)(vt_now_ns() - l.begin_ns - l.thought_ns) * 1e-9;
        if (!json_object_get(l.result, "seconds")) /* a lab may tell an older result anew */
            json_object_set_new(l.result, "seconds", json_real(seconds));
    }
    lab_devices_close(&l);
    if (status != VT_OK) {
        json_decref(l.result);
        return status;
    }
    *result = l.result;
    *failed = l.failed;
    return VT_OK;
}
