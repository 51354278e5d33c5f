/* Tables and drawings that the labs of the track sglang make from stories (docs/story-format.md).
 * Whatever a story lacks is left out or NAN: the labs turn that into lab_missing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/plain_file.h"
#include "base/stats.h"
#include "lab/sglang/inside.h"
#include "model/model.h"
#include "story/read.h"

bool sglang_disturbed(const json_t *story, const char *phase)
{
    char state[STORY_TEXT];
    const json_t *p = story_phase_named(story, phase), *machine = story_get(story, "machine");
    double steps = story_num(p, "disturbed_steps");
    if (strcmp(story_text(machine, "state", state), "unknown") == 0 || !isfinite(steps))
        return true;
    if (strcmp(phase, "prefill") == 0)
        return steps > 0 && !(story_num(machine, "withheld") < 0.05);
    return steps > story_num(p, "steps") / 4;
}

/* ---- shapes ---- */

vt_status sglang_model_heads(lab *l, sglang_heads *out, vt_err *err)
{
    vt_options *o = NULL;
    vt_model *m = NULL;
    vt_status status = vt_options_new(&o, err);
    if (status == VT_OK)
        status = vt_options_set(o, "model", l->model, err);
    if (status == VT_OK)
        status = vt_model_open(o, &m, err);
    if (status == VT_OK)
        *out = (sglang_heads){m->arch.n_heads, m->arch.n_kv_heads, m->arch.head_dim,
                              m->arch.n_layers, m->arch.hidden};
    vt_model_free(m);
    vt_options_free(o);
    return status;
}

void sglang_attention_shape(const lab *l, const sglang_heads *h, int32_t seqs, int32_t q_len,
                            int32_t kv_len, char out[160])
{
    bool gpu = l->ordinal >= 0;
    snprintf(out, 160,
             "seqs=%d,q_len=%d,kv_len=%d,heads=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d", seqs,
             q_len, kv_len, h->heads, h->kv_heads, h->head_dim, gpu ? "bf16" : "f16",
             gpu ? 64 : 16);
}

/* ---- decode steps ---- */

static const char *const step_columns[] = {"ms", "tokens", "seqs", "decodes", "prefill", NULL};

/* Returns true if step i computed decodes alone, of n_seqs sequences (0: any number). */
static bool pure_decode(const json_t *steps, size_t i, int32_t n_seqs)
{
    double seqs = story_cell(steps, "seqs", i), decodes = story_cell(steps, "decodes", i);
    return decodes > 0 && seqs == decodes && story_cell(steps, "tokens", i) == decodes &&
           (n_seqs == 0 || seqs == n_seqs);
}

/* The column's values over pure decode steps, malloc'ed. */
static double *decode_values(const json_t *story, const char *column, int32_t n_seqs, size_t *n)
{
    const json_t *steps = story_get(story, "steps");
    size_t rows = story_rows(steps, step_columns);
    double *v = vt_calloc(rows + 1, sizeof *v);
    *n = 0;
    for (size_t i = 0; v && i < rows; i++) {
        double x = story_cell(steps, column, i);
        if (pure_decode(steps, i, n_seqs) && isfinite(x))
            v[(*n)++] = x;
    }
    return v;
}

double sglang_decode_median(const json_t *story, const char *column, int32_t n_seqs)
{
    size_t n;
    double *v = decode_values(story, column, n_seqs, &n);
    double median = v ? vt_median(v, n) : NAN;
    free(v);
    return median;
}

double sglang_decode_noise(const json_t *story, int32_t n_seqs)
{
    size_t n;
    double *v = decode_values(story, "ms", n_seqs, &n), noise = v ? vt_noise(v, n) : NAN;
    free(v);
    return noise;
}

double sglang_step_s(const json_t *story)
{
    const json_t *decode = story_phase_named(story, "decode");
    double whole = story_num(story_get(decode, "gpu"), "whole_step_us");
    return (isfinite(whole) ? whole : story_num(decode, "step_us")) * 1e-6;
}

/* ---- events ---- */

bool sglang_event(const json_t *story, const char *event, double *ms, char text[STORY_TEXT])
{
    size_t i;
    json_t *e;
    char name[STORY_TEXT];
    json_array_foreach(story_get(story, "timeline"), i, e)
    {
        if (strcmp(story_text(e, "event", name), event) != 0)
            continue;
        *ms = story_num(e, "ms");
        story_text(e, "text", text);
        return true;
    }
    return false;
}

/* Milliseconds of the engine's own work for the phase's steps during which no step ran. */
static double host_ms(const json_t *story, const char *phase)
{
    static const char *const part[] = {"schedule", "prepare", "publish"};
    const json_t *p = story_phase_named(story, phase), *per = story_get(p, "per_step");
    double ms = 0, steps = story_num(p, "steps");
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char us[32], hidden[32];
        snprintf(us, sizeof us, "%s_us", part[i]);
        snprintf(hidden, sizeof hidden, "%s_hidden", part[i]);
        double one = story_num(per, us) * 1e-3 * (1 - story_num(per, hidden)) * steps;
        ms += isfinite(one) ? one : 0;
    }
    return ms;
}

sglang_gap sglang_gap_before(const json_t *story, size_t i)
{
    static const double least_ms = 0.1, least_share = 0.002; /* of the whole timeline */
    const json_t *events = story_get(story, "timeline"), *last = NULL;
    double end = 0, whole = 0, at = story_num(json_array_get(events, i), "at_ms");
    char phase[STORY_TEXT] = "", name[STORY_TEXT];
    for (size_t k = 0; k < json_array_size(events); k++) {
        const json_t *e = json_array_get(events, k);
        double begin = story_num(e, "at_ms"), ms = story_num(e, "ms");
        whole = fmax(whole, begin);
        /* what is summed over steps is no stretch of time */
        bool sum = strcmp(story_text(e, "event", name), "publish") == 0 ||
                   strcmp(name, "detokenise") == 0 || strcmp(name, "write") == 0;
        if (k >= i || begin + (isfinite(ms) && !sum ? ms : 0) < end)
            continue;
        end = begin + (isfinite(ms) && !sum ? ms : 0);
        last = e;
    }
    sglang_gap gap = {.at_ms = end, .ms = at - end};
    if (!(gap.ms > least_ms) || gap.ms < least_share * whole)
        return (sglang_gap){.ms = 0};
    double host = host_ms(story, story_text(last, "event", phase));
    if (host > gap.ms / 2)
        snprintf(gap.why, sizeof gap.why,
                 "no step ran: the engine's own work for the %s steps, as far as no step hid it, "
                 "took %s",
                 phase, vt_figure_of(host * 1e-3, VT_SECONDS).text);
    else
        snprintf(gap.why, sizeof gap.why, "no step ran; no event that was recorded says why");
    return gap;
}

static void put_moment(vt_buf *b, double at_ms, const char *branch, const char *event, double ms,
                       const char *text)
{
    enum { TEXT_AT = 38, MARGIN = 4 }; /* drawings are indented by the margin */
    size_t line = b->len;
    vt_buf_printf(b, "%9.2f ms %s %s", at_ms, branch, event);
    vt_text_pad(b, line, 27);
    if (isfinite(ms))
        vt_text_figure(b, ms * 1e-3, VT_SECONDS);
    vt_text_pad(b, line, TEXT_AT);
    vt_text_wrap(b, text, TEXT_AT, VT_TERM_WIDTH - MARGIN);
    vt_buf_putc(b, '\n');
}

void sglang_draw_timeline(vt_buf *b, const json_t *story)
{
    const json_t *events = story_get(story, "timeline");
    size_t n = json_array_size(events);
    for (size_t i = 0; i < n && i < STORY_ROWS; i++) {
        const json_t *e = json_array_get(events, i);
        char event[STORY_TEXT], text[STORY_TEXT];
        sglang_gap gap = sglang_gap_before(story, i);
        if (gap.ms > 0)
            put_moment(b, gap.at_ms, "├─", "gap", gap.ms, gap.why);
        put_moment(b, story_num(e, "at_ms"),
                   i == 0       ? "┌─"
                   : i + 1 == n ? "└─"
                                : "├─",
                   story_text(e, "event", event), story_num(e, "ms"), story_text(e, "text", text));
    }
}

/* ---- tables ---- */

double sglang_of_roof(const json_t *op)
{
    double share = story_num(op, "of_roof");
    return share > 1 ? NAN : share;
}

static double op_bytes(const json_t *op)
{
    const json_t *bytes = story_get(op, "expected_bytes");
    return story_num(bytes, "weights") + story_num(bytes, "kv") + story_num(bytes, "activations");
}

void sglang_table_ops(lab *l, const char *key, const char *title, const json_t *phase, size_t most)
{
    const json_t *ops = story_get(phase, "ops");
    size_t n = json_array_size(ops), shown = n < most ? n : most;
    double layers = 0, rest_us = 0, rest_share = 0;
    lab_table(l, key, title, "op|runs as|>calls|>a step|>a call|>share|>bytes|>of roof|bound");
    for (size_t i = 0; i < n; i++) {
        const json_t *op = json_array_get(ops, i);
        char kind[STORY_TEXT], impl[STORY_TEXT], bound[STORY_TEXT];
        double us = story_num(op, "time_us"), calls = story_num(op, "calls");
        layers = fmax(layers, calls);
        if (i >= shown) {
            rest_us += us;
            rest_share += story_num(op, "share");
            continue;
        }
        lab_cells(l, "%s|%s|%.0f|%f s|%f s|%f share|%f B|%f share|%s", story_text(op, "kind", kind),
                  story_text(op, "impl", impl), calls, us * 1e-6, us * 1e-6 / calls,
                  story_num(op, "share"), op_bytes(op), sglang_of_roof(op),
                  story_text(op, "bound", bound));
    }
    if (n > shown) {
        lab_cell(l, "%zu others", n - shown);
        for (int i = 0; i < 2; i++)
            lab_cell(l, "%s", "");
        lab_cells(l, "%f s|%s|%f share", rest_us * 1e-6, "", rest_share);
        for (int i = 0; i < 3; i++)
            lab_cell(l, "%s", "");
    }
}

/* The parts of a step. */
typedef struct composition {
    double seqs, decodes, prompt;
} composition;

static composition composition_of(const json_t *steps, size_t i)
{
    composition c = {story_cell(steps, "seqs", i), story_cell(steps, "decodes", i), 0};
    c.prompt = story_cell(steps, "tokens", i) - c.decodes;
    return c;
}

static bool same_kind(const composition *a, const composition *b)
{
    return a->seqs == b->seqs && a->decodes == b->decodes && a->prompt == b->prompt;
}

void sglang_table_batch(lab *l, const char *key, const char *title, const json_t *story,
                        size_t most)
{
    const json_t *steps = story_get(story, "steps");
    size_t n = story_rows(steps, step_columns), rows = 0;
    lab_table(l, key, title,
              ">steps|>decodes|>prompts|>prompt tokens|>a step|>tokens/s|>pages held|>free");
    for (size_t i = 0, end; i < n; i = end) {
        composition c = composition_of(steps, i), next;
        double ms = 0;
        for (end = i; end < n; end++) {
            next = composition_of(steps, end);
            if (!same_kind(&c, &next))
                break;
            ms += story_cell(steps, "ms", end);
        }
        if (rows++ >= most)
            continue;
        ms /= (double)(end - i);
        lab_cell(l, end - i == 1 ? "%.0f" : "%.0f..%.0f", story_cell(steps, "id", i),
                 story_cell(steps, "id", end - 1));
        lab_cells(l, "%.0f|%.0f|%.0f|%f s|%.0f|%.0f|%.0f", c.decodes, c.seqs - c.decodes, c.prompt,
                  ms * 1e-3, (c.decodes + c.prompt) / (ms * 1e-3),
                  story_cell(steps, "held", end - 1), story_cell(steps, "free", end - 1));
    }
    if (rows > most) {
        lab_cell(l, "%zu more", rows - most);
        for (int i = 0; i < 7; i++)
            lab_cell(l, "%s", "");
    }
}

/* ---- requests ---- */

vt_status sglang_open(lab *l, const char *const *settings, int64_t max_running, vt_engine **out,
                      vt_err *err)
{
    enum { MOST = 16 };
    const char *all[MOST + 5];
    char running[24];
    bool memory = false;
    int n = 0;
    snprintf(running, sizeof running, "%lld", (long long)max_running);
    all[n++] = "max-running";
    all[n++] = running;
    for (int i = 0; settings && settings[i] && n < MOST; i++) {
        memory |= strcmp(settings[i], "kv-memory") == 0;
        all[n++] = settings[i];
    }
    if (!memory) { /* auto would take most of a GPU, and a lab opens several engines */
        all[n++] = "kv-memory";
        all[n++] = l->ordinal >= 0 ? "4G" : "1G";
    }
    all[n] = NULL;
    return lab_engine_open(l, all, out, err);
}

vt_status sglang_prompt(lab *l, uint64_t seed, const int32_t *shared, int32_t n_shared, int32_t n,
                        int32_t **out, vt_err *err)
{
    int32_t *ids = vt_calloc((size_t)n + 1, sizeof *ids);
    if (!ids)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a prompt of %d tokens", n);
    lab_random_prompt(l, seed, ids, n);
    if (shared)
        memcpy(ids, shared, (size_t)(n_shared < n ? n_shared : n) * sizeof *ids);
    *out = ids;
    return VT_OK;
}

void sglang_release(lab_request *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        free((void *)r[i].prompt);
        r[i].prompt = NULL;
        lab_request_release(&r[i]);
    }
}

vt_status sglang_run_one(lab *l, vt_engine *e, const int32_t *prompt, int32_t n, int32_t n_gen,
                         lab_request *out, vt_err *err)
{
    lab_request r = {.prompt = prompt, .n_prompt = n, .n_gen = n_gen};
    vt_status status = lab_requests_run(l, e, &r, 1, err);
    if (status == VT_OK)
        *out = r;
    else
        lab_request_release(&r);
    return status;
}

/* ---- files ---- */

const char *sglang_self(char out[SGLANG_PATH])
{
    ssize_t n = readlink(lab_self(), out, SGLANG_PATH - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

/* Writes to a path that the person typed, which may be a device or a link. */
static vt_status write_named(const char *path, const char *text, size_t len, vt_err *err)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text, 1, len, f) == len;
    int why = errno;
    if (f && fclose(f) != 0) {
        why = errno;
        ok = false;
    }
    return ok ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
}

vt_status sglang_write(lab *l, const char *path, const char *name, const char *what,
                       const char *text, size_t len, vt_err *err)
{
    char place[1024];
    snprintf(place, sizeof place, "%s/%s", l->results, name);
    TRY(path ? write_named(path, text, len, err) : vt_write_whole(place, text, len, err));
    lab_file(l, path ? path : name, what);
    return VT_OK;
}
