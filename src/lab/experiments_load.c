/* Loads, servers and files of the experiments (experiments.h). */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/stats.h"
#include "files/json.h"
#include "lab/experiments.h"
#include "load/run.h"

/* ---- loads ---- */

enum { LEAST_VOCAB = 1000 }; /* ids below it are in every model's vocabulary */

static vt_status run_plan(lab *l, const lab_server *s, const lab_load *load,
                          const vt_load_plan *plan, lab_answers *out, vt_err *err)
{
    vt_load_target target;
    vt_load_outcome o = {0};
    vt_load_slo none = {0};
    TRY(vt_load_target_parse(s->url, &target, err));
    vt_load_options options = {.plan = plan,
                               .target = &target,
                               .chat = !plan->ids,
                               .stream = true,
                               .ignore_eos = true,
                               .temperature = NAN,
                               .arrivals = VT_LOAD_CLOSED,
                               .concurrency = load->concurrency,
                               .timeout_s = 600};
    lab_note(l, "%d requests, %d at once ...", plan->n_turns, load->concurrency);
    lab_busy busy;
    lab_busy_begin(&busy, s);
    vt_status status = vt_load_run(&options, &o, err);
    l->busy |= lab_busy_end(&busy, s);
    if (status == VT_OK)
        status = vt_load_measure(o.result, o.n, o.gap, o.n_gaps,
                                 (double)(o.end_ns - o.begin_ns) * 1e-9, &none, &out->sum, err);
    if (status == VT_OK) {
        out->n = o.n;
        out->result = o.result;
        o.result = NULL;
        lab_check(l, out->sum.ended[VT_LOAD_OK] == plan->n_turns, "%d of %d requests were answered",
                  out->sum.ended[VT_LOAD_OK], plan->n_turns);
    }
    vt_load_outcome_release(&o);
    return status;
}

vt_status lab_load_run(lab *l, const lab_server *s, const lab_load *load, lab_answers *out,
                       vt_err *err)
{
    l->ran = true;
    vt_load_plan plan = {.ids = load->turns <= 1, /* turns of a chat are words */
                         .vocab = LEAST_VOCAB,
                         .shared = load->shared,
                         .groups = load->groups > 0 ? load->groups : 1,
                         .seed = load->seed};
    vt_status status = VT_OK;
    *out = (lab_answers){0};
    for (int32_t i = 0; status == VT_OK && i < load->n; i++)
        status = vt_load_plan_add(&plan, load->input, load->output,
                                  load->turns > 0 ? load->turns : 1, err);
    if (status == VT_OK)
        status = run_plan(l, s, load, &plan, out, err);
    vt_load_plan_release(&plan);
    return status;
}

void lab_answers_release(lab_answers *a)
{
    free(a->result);
    a->result = NULL;
}

double lab_answers_noise(const lab_answers *a)
{
    double sum[2] = {0, 0};
    int n[2] = {0, 0};
    for (int32_t i = 0; i < a->n; i++)
        if (a->result[i].end == VT_LOAD_OK) {
            sum[i >= a->n / 2] += vt_load_e2e(&a->result[i]);
            n[i >= a->n / 2]++;
        }
    return vt_noise((double[]){sum[0] / n[0], sum[1] / n[1]}, 2);
}

/* ---- files ---- */

vt_status lab_write_json(lab *l, const char *name, const json_t *object, const char *what,
                         vt_err *err)
{
    vt_buf text = {0};
    char *json = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    vt_buf_puts(&text, json ? json : "");
    vt_buf_putc(&text, '\n');
    vt_status status = json ? lab_write_text(l, name, &text, what, err)
                            : vt_fail(err, VT_ERR_MEMORY, "out of memory for %s", name);
    free(json);
    vt_buf_release(&text);
    return status;
}

vt_status lab_write_text(lab *l, const char *name, const vt_buf *text, const char *what,
                         vt_err *err)
{
    char path[PATH_MAX];
    vt_new_file f;
    if (text->failed)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %s", name);
    snprintf(path, sizeof path, "%s/%s", l->results, name);
    TRY(vt_new_file_begin(&f, path, err));
    bool written = fwrite(text->data ? text->data : "", 1, text->len, f.file) == text->len;
    int why = errno;
    TRY(vt_new_file_end(&f, path, written, err));
    if (!written)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
    lab_file(l, name, what);
    return VT_OK;
}

static void put_ms(json_t *o, const char *key, double s)
{
    json_object_set_new(o, key, isfinite(s) ? json_real(s * 1e3) : json_null());
}

json_t *lab_spread_json(const vt_load_spread *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "n", json_integer(s->n));
    put_ms(o, "mean_ms", s->mean);
    put_ms(o, "p50_ms", s->p50);
    put_ms(o, "p90_ms", s->p90);
    put_ms(o, "p99_ms", s->p99);
    put_ms(o, "max_ms", s->max);
    return o;
}

json_t *lab_summary_json(const lab_load *load, const vt_load_summary *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "requests", json_integer(s->n));
    json_object_set_new(o, "concurrency", json_integer(load->concurrency));
    json_object_set_new(o, "input_tokens_asked", json_integer(load->input));
    json_object_set_new(o, "output_tokens_asked", json_integer(load->output));
    json_object_set_new(o, "prompt_tokens", json_integer(s->prompt_tokens));
    json_object_set_new(o, "cached_tokens", json_integer(s->cached_tokens));
    json_object_set_new(o, "output_tokens", json_integer(s->output_tokens));
    json_object_set_new(o, "wall_s", json_real(s->wall_s));
    json_object_set_new(o, "output_tokens_per_s", json_real(s->output_tokens_per_s));
    json_object_set_new(o, "ttft", lab_spread_json(&s->ttft));
    json_object_set_new(o, "itl", lab_spread_json(&s->itl));
    json_object_set_new(o, "e2e", lab_spread_json(&s->e2e));
    return o;
}

/* ---- a server that stays ---- */

static json_t *read_left(lab *l)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/server.json", l->results);
    return json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
}

/* Whether the process is a server of this program: a number may have been given away anew. */
static bool is_server(int pid)
{
    char path[64], line[64] = "";
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *f = pid > 1 ? fopen(path, "r") : NULL;
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f)
        fclose(f);
    return n > 14 && memcmp(line, "vitrine\0serve", 14) == 0;
}

static bool find_left(lab *l, lab_server *out, const char **model, json_t **left)
{
    *out = (lab_server){0};
    *left = read_left(l);
    *model = json_string_value(json_object_get(*left, "model"));
    const char *url = json_string_value(json_object_get(*left, "url"));
    out->pid = (int)json_integer_value(json_object_get(*left, "pid"));
    snprintf(out->url, sizeof out->url, "%s", url ? url : "");
    snprintf(out->log, sizeof out->log, "%s/server.log", l->results);
    return url && is_server(out->pid);
}

bool lab_server_is_left(lab *l)
{
    lab_server s;
    json_t *left;
    const char *model;
    bool found = find_left(l, &s, &model, &left);
    json_decref(left);
    return found;
}

vt_status lab_server_leave(lab *l, lab_server *s, vt_err *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "pid", json_integer(s->pid));
    json_object_set_new(o, "port", json_integer(s->port));
    json_object_set_new(o, "url", json_string(s->url));
    json_object_set_new(o, "model", json_string(l->model));
    vt_status status = lab_write_json(l, "server.json", o, "the server that is left running", err);
    json_decref(o);
    if (status == VT_OK)
        lab_server_let_go(s);
    return status;
}

vt_status lab_server_borrow(lab *l, const char *const *args, lab_server *out, bool *own,
                            vt_err *err)
{
    json_t *left;
    const char *model;
    bool runs = find_left(l, out, &model, &left),
         fits = runs && model && strcmp(model, l->model) == 0 && lab_server_answers(out);
    json_decref(left);
    *own = !fits;
    if (fits) {
        lab_note(l, "using the server that experiment 1 left at %s", out->url);
        return VT_OK;
    }
    /* one that runs with another model goes on writing its log */
    return lab_server_start_with_log(l, args, runs ? "server_own.log" : "server.log", out, err);
}

vt_status lab_server_end_left(lab *l, vt_err *err)
{
    const struct timespec nap = {0, 20000000};
    char path[PATH_MAX];
    lab_server s;
    json_t *left;
    const char *model;
    bool found = find_left(l, &s, &model, &left);
    json_decref(left);
    if (!found)
        return vt_fail(err, VT_ERR_USAGE, "--stop: experiment 1 left no server running here");
    kill(s.pid, SIGTERM);
    for (int i = 0; i < 1500 && is_server(s.pid); i++)
        nanosleep(&nap, NULL);
    if (is_server(s.pid))
        return vt_fail(err, VT_ERR_IO, "the server (process %d) did not end in 30 s", s.pid);
    snprintf(path, sizeof path, "%s/server.json", l->results);
    unlink(path);
    return VT_OK;
}
