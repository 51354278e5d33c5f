/* key-findings.md sees this of the files that the experiments leave beside their results
 * (report/inside.h). */
#include <stdio.h>
#include <string.h>

#include "lab/report/inside.h"

static const json_t *file_of(const report *r, const char *name)
{
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].name, name) == 0)
            return r->file[i].json;
    return NULL;
}

static json_t *figure_of(const json_t *o, const char *key, double times, vt_unit unit)
{
    return report_figure(report_number(o, key) * times, unit);
}

static json_t *view_baseline(const json_t *f)
{
    if (!f)
        return json_null();
    return json_pack("{s:o s:o s:o s:o s:o}", "ttft",
                     figure_of(json_object_get(f, "ttft"), "p50_ms", 1e-3, VT_SECONDS), "itl",
                     figure_of(json_object_get(f, "itl"), "p50_ms", 1e-3, VT_SECONDS), "rate",
                     figure_of(f, "output_tokens_per_s", 1, VT_TOKENS_PER_S), "requests",
                     figure_of(f, "requests", 1, VT_COUNT), "concurrency",
                     figure_of(f, "concurrency", 1, VT_COUNT));
}

static json_t *view_cache(const json_t *f)
{
    if (!f)
        return json_null();
    return json_pack("{s:o s:o s:o s:o s:o s:o}", "speedup",
                     figure_of(f, "hit_speedup", 1, VT_RATIO), "first",
                     figure_of(f, "first_ttft_ms", 1e-3, VT_SECONDS), "later",
                     figure_of(f, "later_ttft_ms", 1e-3, VT_SECONDS), "gain",
                     figure_of(f, "concurrent_gain", 1, VT_RATIO), "with_room",
                     figure_of(f, "found_with_room", 1, VT_COUNT), "under_pressure",
                     figure_of(f, "found_under_pressure", 1, VT_COUNT));
}

static json_t *view_scaling(const report *r)
{
    json_t *out = json_array();
    double one = report_number(file_of(r, "tp_single.json"), "output_tokens_per_s");
    for (int i = 0; i < r->n_files && file_of(r, "tp_single.json"); i++) {
        const report_file *f = &r->file[i];
        double rate = report_number(f->json, "output_tokens_per_s");
        if (strncmp(f->name, "tp_", 3) == 0)
            out = report_append(out, json_pack("{s:s# s:o s:o}", "name", f->name + 3,
                                               (int)strcspn(f->name + 3, "."), "rate",
                                               report_figure(rate, VT_TOKENS_PER_S), "ratio",
                                               report_figure(rate / one, VT_RATIO)));
    }
    return out;
}

/* ---- kernels ---- */

enum { ATTENTION, MLP, NORM, OTHER, GROUPS };

/* The group of "decode linear.gate+up". The matrix products around attention (QKV, output) count as
 * "other", because profiles of other systems show them among the matrix products too. */
static int group_of(const char *kernel)
{
    if (strstr(kernel, "norm"))
        return NORM;
    if (strstr(kernel, "attention"))
        return ATTENTION;
    if (strstr(kernel, "linear.gate") || strstr(kernel, "linear.up") ||
        strstr(kernel, "linear.down") || strstr(kernel, "silu_mul") || strstr(kernel, "moe_"))
        return MLP;
    return OTHER;
}

/* Sums shares in per cent by group; false: the file has no line that can be read. */
static bool read_kernels(const char *text, double *share, char top[GROUPS][64])
{
    double best[GROUPS] = {0};
    bool some = false;
    while (text && *text) {
        double percent, total, calls, mean;
        int at = 0;
        char line[256];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(n < 255 ? n : 255), text);
        if (sscanf(line, "%lf %lf %lf %lf %n", &percent, &total, &calls, &mean, &at) == 4 && at) {
            int g = group_of(line + at);
            share[g] += percent;
            some = true;
            if (percent > best[g]) {
                best[g] = percent;
                snprintf(top[g], sizeof top[g], "%.63s", line + at);
                vt_text_clean_line(top[g]);
                for (char *p = top[g]; (p = strpbrk(p, "`|<")) != NULL;)
                    *p = ' '; /* it stands in a code span of a table */
            }
        }
        text += n + (text[n] == '\n');
    }
    return some;
}

/* null: no summary; an empty list: one without a line of numbers. */
static json_t *view_groups(const report *r)
{
    static const char *const name[GROUPS] = {"attention", "MLP", "norm", "other"};
    double share[GROUPS] = {0};
    char top[GROUPS][64] = {"", "", "", ""};
    const char *text = NULL;
    int largest = 0;
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].name, "kernel_summary.txt") == 0)
            text = r->file[i].text.data;
    if (!text)
        return json_null();
    json_t *out = json_array();
    if (!read_kernels(text, share, top))
        return out;
    for (int i = 1; i < GROUPS; i++)
        largest = share[i] > share[largest] ? i : largest;
    for (int i = 0; i < GROUPS; i++) {
        char percent[32];
        snprintf(percent, sizeof percent, "%.1f", share[i]);
        out = report_append(out, json_pack("{s:s s:s s:s s:b}", "name", name[i], "share", percent,
                                           "top", top[i], "largest", i == largest));
    }
    return out;
}

/* The parts of a request's time. */
static json_t *view_parts(const json_t *breakdown)
{
    const char *key;
    json_t *v, *out = breakdown ? json_array() : json_null();
    json_object_foreach((json_t *)(uintptr_t)breakdown, key, v)
    {
        vt_buf safe = {0};
        report_put_safe(&safe, key);
        out = report_append(out, json_pack("{s:o s:o}", "part", report_text(&safe), "time",
                                           figure_of(breakdown, key, 1e-3, VT_SECONDS)));
    }
    return out;
}

bool report_view_files(const report *r, json_t *view)
{
    json_t *member[] = {
        view_baseline(file_of(r, "baseline_benchmark.json")),
        view_cache(file_of(r, "radix_cache_results.json")), view_scaling(r), view_groups(r),
        view_parts(json_object_get(file_of(r, "profiling_results.json"), "breakdown"))};
    static const char *const name[] = {"baseline", "cache", "scaling", "groups", "parts"};
    bool whole = true;
    for (size_t i = 0; i < sizeof member / sizeof *member; i++)
        whole = json_object_set_new(view, name[i], member[i]) == 0 && whole;
    return whole;
}
