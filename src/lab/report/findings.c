/* key-findings.md: the four tables of the experiments, filled from the files that they left
 * (report/inside.h). */
#include <math.h>
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

static void missing(vt_buf *b, int number)
{
    vt_buf_printf(b, "not run here yet: `vitrine lab experiments %d`\n\n", number);
}

static void put_or(vt_buf *b, double v, lab_unit unit)
{
    if (isfinite(v))
        lab_put(b, v, unit);
    else
        vt_buf_puts(b, "not measured");
}

static void baseline(const report *r, vt_buf *b)
{
    const json_t *f = file_of(r, "baseline_benchmark.json");
    vt_buf_puts(b, "## Performance baseline\n\n");
    if (!f) {
        missing(b, 2);
        return;
    }
    double ttft = report_number(json_object_get(f, "ttft"), "p50_ms") * 1e-3,
           itl = report_number(json_object_get(f, "itl"), "p50_ms") * 1e-3;
    vt_buf_puts(b, "| metric | value | notes |\n|---|---:|---|\n| TTFT (median) | ");
    put_or(b, ttft, LAB_SECONDS);
    vt_buf_puts(b, " | queue and prefill |\n| ITL (median) | ");
    put_or(b, itl, LAB_SECONDS);
    vt_buf_puts(b, " | decode |\n| throughput | ");
    put_or(b, report_number(f, "output_tokens_per_s"), LAB_TOKENS_PER_S);
    vt_buf_puts(b, " | output tokens; requests: ");
    put_or(b, report_number(f, "requests"), LAB_COUNT);
    vt_buf_puts(b, ", at once: ");
    put_or(b, report_number(f, "concurrency"), LAB_COUNT);
    vt_buf_puts(b, " |\n\n");
}

static void cache(const report *r, vt_buf *b)
{
    const json_t *f = file_of(r, "radix_cache_results.json");
    vt_buf_puts(b, "## Prefix cache\n\n");
    if (!f) {
        missing(b, 6);
        return;
    }
    vt_buf_puts(b, "| metric | value |\n|---|---|\n| cache hit speed-up (TTFT) | ");
    put_or(b, report_number(f, "hit_speedup"), LAB_RATIO);
    vt_buf_puts(b, " |\n| first against later requests | ");
    put_or(b, report_number(f, "first_ttft_ms") * 1e-3, LAB_SECONDS);
    vt_buf_puts(b, " against ");
    put_or(b, report_number(f, "later_ttft_ms") * 1e-3, LAB_SECONDS);
    vt_buf_puts(b, " |\n| concurrent benefit | ");
    put_or(b, report_number(f, "concurrent_gain"), LAB_RATIO);
    vt_buf_puts(b, " |\n| prefix found again, with room and under pressure | ");
    put_or(b, report_number(f, "found_with_room"), LAB_COUNT);
    vt_buf_puts(b, " and ");
    put_or(b, report_number(f, "found_under_pressure"), LAB_COUNT);
    vt_buf_puts(b, " tokens |\n\n");
}

/* Why a configuration with several devices is not there: as experiment 5 says. */
static void other_configuration(const report *r, const char *name, const char *key, vt_buf *b)
{
    const json_t *o = json_object_get(json_object_get(report_result(r, "5"), "items"), key);
    if (*report_string(o, "missing"))
        vt_buf_printf(b, "| %s | not measured here, because %s | |\n", name,
                      report_string(o, "missing"));
    else if (!o)
        vt_buf_printf(b, "| %s | not run here yet: `vitrine lab experiments 5` | |\n", name);
}

static void scaling(const report *r, vt_buf *b)
{
    double one = report_number(file_of(r, "tp_single.json"), "output_tokens_per_s");
    vt_buf_puts(b, "## TP scaling\n\n");
    if (!file_of(r, "tp_single.json")) {
        missing(b, 5);
        return;
    }
    vt_buf_puts(b, "| configuration | throughput | against one device |\n|---|---:|---:|\n");
    for (int i = 0; i < r->n_files; i++) {
        const report_file *f = &r->file[i];
        double rate = report_number(f->json, "output_tokens_per_s");
        if (strncmp(f->name, "tp_", 3) != 0)
            continue;
        vt_buf_printf(b, "| %.*s | ", (int)strcspn(f->name + 3, "."), f->name + 3);
        put_or(b, rate, LAB_TOKENS_PER_S);
        vt_buf_puts(b, " | ");
        put_or(b, rate / one, LAB_RATIO);
        vt_buf_puts(b, " |\n");
    }
    other_configuration(r, "TP=2, fast link", "pairs", b);
    other_configuration(r, "TP=2, through the host", "host", b);
    other_configuration(r, "TP=4", "four", b);
    other_configuration(r, "TP=2, ranks of one CPU", "cpu_ranks", b);
    vt_buf_putc(b, '\n');
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

static void kernels(const report *r, vt_buf *b)
{
    static const char *const name[GROUPS] = {"attention", "MLP", "norm", "other"};
    double share[GROUPS] = {0};
    char top[GROUPS][64] = {"", "", "", ""};
    const char *text = NULL;
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].name, "kernel_summary.txt") == 0)
            text = r->file[i].text.data;
    vt_buf_puts(b, "## Kernels\n\n");
    if (!text) {
        missing(b, 4);
        return;
    }
    if (!read_kernels(text, share, top)) {
        vt_buf_puts(b, "not measured here, because kernel_summary.txt has no line of numbers: "
                       "`vitrine lab experiments 4` writes it anew\n\n");
        return;
    }
    int largest = 0;
    for (int i = 1; i < GROUPS; i++)
        largest = share[i] > share[largest] ? i : largest;
    vt_buf_puts(b, "| kernel | share of the time | observation |\n|---|---:|---|\n");
    for (int i = 0; i < GROUPS; i++) {
        vt_buf_printf(b, "| %s | %.1f %% | ", name[i], share[i]);
        if (!*top[i])
            vt_buf_puts(b, "no call of this group was timed |\n");
        else
            vt_buf_printf(b, "%smost of it in `%s` |\n", i == largest ? "the largest group; " : "",
                          top[i]);
    }
    vt_buf_puts(b, "\n\"Other\" has the products around attention (QKV, output), the LM head, "
                   "embedding, rope and store.\n\n");
}

/* "before_ms" is "before its submission"; another key stands as it is. */
static void put_part(const char *key, vt_buf *b)
{
    static const char *const words[][2] = {
        {"before_ms", "reading and tokenising, before it was submitted"},
        {"queue_ms", "waiting in the queue"},
        {"steps_ms", "in steps of the engine"},
        {"waits_ms", "between steps"},
        {"tail_ms", "after its last step"},
        {"total_ms", "from submission to end"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], key) == 0) {
            vt_buf_puts(b, words[i][1]);
            return;
        }
    report_put_safe(b, key);
}

static void request(const report *r, vt_buf *b)
{
    const json_t *f = file_of(r, "profiling_results.json"), *o = json_object_get(f, "breakdown");
    const char *key;
    json_t *v;
    vt_buf_puts(b, "## Where a request's time goes\n\n");
    if (!o) {
        missing(b, 3);
        return;
    }
    vt_buf_puts(b, "| part | time |\n|---|---:|\n");
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        vt_buf_puts(b, "| ");
        put_part(key, b);
        vt_buf_puts(b, " | ");
        put_or(b, json_is_number(v) ? json_number_value(v) * 1e-3 : NAN, LAB_SECONDS);
        vt_buf_puts(b, " |\n");
    }
    vt_buf_putc(b, '\n');
}

void report_key_findings(const report *r, vt_buf *b)
{
    report_head(r, b, "key findings",
                "What a client of the server sees, filled from the files of the experiments.");
    baseline(r, b);
    cache(r, b);
    scaling(r, b);
    kernels(r, b);
    request(r, b);
}
