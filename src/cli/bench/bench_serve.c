/* vitrine bench serve: load for a server that speaks OpenAI's API (load/run.h).
 *
 * This file turns options into a plan and runs it; bench_serve_report.c says what came of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/utf8.h"
#include "cli/bench/bench_serve.h"
#include "cli/bench/lengths.h"
#include "openai/json_load.h"

enum { CLOSED_AT_ONCE = 16, OPEN_AT_ONCE = 4096, SPARE_FILES = 64 };

/* ---- the plan ---- */

static vt_status check_usage(const cli *c, vt_err *err)
{
    const vt_options *o = c->options;
    bool chat = strcmp(vt_options_get(o, "api"), "chat") == 0;
    int n = vt_options_given(o, "lengths") + vt_options_given(o, "dataset") +
            vt_options_given(o, "trace");
    if (n > 1)
        return vt_fail(err, VT_ERR_USAGE, "--lengths, --dataset and --trace: give one of them");
    if (vt_options_flag(o, "ids") && chat)
        return vt_fail(err, VT_ERR_USAGE, "--ids: chats have no token ids; add --api completions");
    if (vt_options_flag(o, "ids") &&
        (vt_options_given(o, "dataset") || vt_options_int(o, "turns") > 1))
        return vt_fail(err, VT_ERR_USAGE, "--ids: not with --dataset or --turns, which are text");
    if (vt_options_given(o, "trace") && vt_options_int(o, "turns") > 1)
        return vt_fail(err, VT_ERR_USAGE, "--turns: not with --trace, whose requests stand alone");
    if (vt_options_given(o, "rate") && vt_options_given(o, "trace"))
        return vt_fail(err, VT_ERR_USAGE, "--rate: not with --trace, which has its own times");
    return VT_OK;
}

static vt_status plan_lengths(const cli *c, vt_load_plan *p, vt_err *err)
{
    cli_lengths l = {0};
    uint64_t rng = p->seed;
    vt_status status = cli_get_lengths(c, &rng, &l, err);
    int64_t n = l.n, most = vt_options_int(c->options, "num");
    if (vt_options_given(c->options, "num") && most < n)
        n = most;
    for (int32_t i = 0; status == VT_OK && i < n; i++)
        status = vt_load_plan_add(p, l.input[i], l.output[i],
                                  (int32_t)vt_options_int(c->options, "turns"), err);
    cli_lengths_release(&l);
    return status;
}

static vt_status plan_file(const cli *c, const char *path, load_bench *b, vt_err *err)
{
    const vt_options *o = c->options;
    vt_buf text = {0};
    int32_t most = vt_options_given(o, "num") ? (int32_t)vt_options_int(o, "num") : INT32_MAX;
    int32_t out[2] = {0, 0};
    TRY(cli_read_file(path, &text, err));
    vt_status status = VT_OK;
    if (vt_options_given(o, "trace")) {
        status = vt_trace_parse(cli_file_name(path), text.data, text.len, most, &b->trace, err);
        if (status == VT_OK)
            status = vt_load_plan_trace(&b->plan, &b->trace, err);
    } else {
        if (vt_options_given(o, "output-range"))
            status = cli_read_range(c, "output-range", "output", &out[0], &out[1], err);
        if (status == VT_OK)
            status = vt_load_plan_dataset(&b->plan, cli_file_name(path), text.data, text.len, most,
                                          (int32_t)vt_options_int(o, "turns"), out[1], err);
    }
    vt_buf_release(&text);
    return status;
}

static vt_status make_plan(const cli *c, load_bench *b, vt_err *err)
{
    const vt_options *o = c->options;
    const char *file = vt_options_get(o, "trace");
    file = file ? file : vt_options_get(o, "dataset");
    b->plan.seed = (uint64_t)vt_options_int(o, "seed");
    b->plan.ids = vt_options_flag(o, "ids");
    b->plan.vocab = (int32_t)vt_options_int(o, "vocab");
    b->plan.shared = (int32_t)vt_options_int(o, "shared-front");
    b->plan.groups = (int32_t)vt_options_int(o, "groups");
    return file ? plan_file(c, file, b, err) : plan_lengths(c, &b->plan, err);
}

/* ---- the server ---- */

/* The first model that the server lists. */
static vt_status find_model(load_bench *b, vt_err *err)
{
    char *body = NULL;
    size_t len = 0;
    int status = 0;
    json_t *list = NULL;
    vt_openai_error why = {0};
    TRY(vt_load_get(&b->target, "/v1/models", b->o.key, 30, &status, &body, &len, err));
    const char *id = NULL;
    if (status == 200 && vt_openai_json_load(body, len, &list, &why) == VT_OK)
        id = json_string_value(
            json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    if (id)
        snprintf(b->model, sizeof b->model, "%s", id);
    json_decref(list);
    free(body);
    return id ? VT_OK
              : vt_fail(err, VT_ERR_FORMAT,
                        "%s%s/v1/models: status %d, no model listed; name one with --model",
                        b->target.host, b->target.base, status);
}

static vt_status find_server(const cli *c, load_bench *b, vt_err *err)
{
    const char *name = vt_options_get(c->options, "api-key-env");
    const char *model = vt_options_get(c->options, "asked-model");
    TRY(vt_load_target_parse(vt_options_get(c->options, "url"), &b->target, err));
    if (name) {
        b->o.key = getenv(name);
        if (!b->o.key || !b->o.key[0])
            return vt_fail(err, VT_ERR_USAGE, "--api-key-env: the variable %.60s is not set", name);
        for (const char *k = b->o.key; *k; k++)
            if (*k <= ' ' || *k >= 0x7f)
                return vt_fail(err, VT_ERR_USAGE,
                               "--api-key-env: %.60s holds a space, a control or a character "
                               "beyond ASCII",
                               name);
    }
    if (!model)
        return find_model(b, err);
    snprintf(b->model, sizeof b->model, "%s", model);
    return VT_OK;
}

/* As many open files as connections need, as far as the system allows it. */
static vt_status raise_file_limit(int32_t connections, vt_err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return VT_OK;
    rlim_t need = (rlim_t)connections + SPARE_FILES;
    if (limit.rlim_cur >= need)
        return VT_OK;
    limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
    if (limit.rlim_cur < need || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "--concurrency: %d connections need %llu open files, the limit is %llu "
                       "(ulimit -n)",
                       connections, (unsigned long long)need, (unsigned long long)limit.rlim_max);
    return VT_OK;
}

static vt_status set_load(const cli *c, load_bench *b, vt_err *err)
{
    const vt_options *o = c->options;
    vt_load_options *l = &b->o;
    l->plan = &b->plan;
    l->target = &b->target;
    l->model = b->model;
    l->chat = strcmp(vt_options_get(o, "api"), "chat") == 0;
    l->stream = !vt_options_flag(o, "no-stream");
    l->ignore_eos = vt_options_flag(o, "ignore-eos");
    l->temperature = vt_options_given(o, "asked-temperature")
                         ? vt_options_float(o, "asked-temperature")
                         : NAN;
    l->timeout_s = vt_options_float(o, "timeout");
    bool own = strcmp(vt_options_get(o, "concurrency"), "auto") != 0;
    bool timed = vt_options_given(o, "trace") && !own;
    l->arrivals = vt_options_given(o, "rate") ? VT_LOAD_POISSON
                  : timed                     ? VT_LOAD_TRACE
                                              : VT_LOAD_CLOSED;
    l->rate = vt_options_given(o, "rate") ? vt_options_float(o, "rate")
                                          : vt_options_float(o, "speed");
    l->concurrency = own                             ? (int32_t)vt_options_int(o, "concurrency")
                     : l->arrivals == VT_LOAD_CLOSED ? CLOSED_AT_ONCE
                                                     : OPEN_AT_ONCE;
    if (l->concurrency > b->plan.n)
        l->concurrency = b->plan.n;
    return raise_file_limit(l->concurrency, err);
}

/* ---- running ---- */

static bool on_tick(void *user, const vt_load_progress *p)
{
    load_bench *b = user;
    int64_t now = vt_now_ns(), every = b->c->log.tty ? 200000000 : INT64_C(10000000000);
    if (cli_interrupted())
        return false;
    if (b->c->quiet || now - b->shown_ns < every)
        return true;
    b->shown_ns = now;
    fprintf(stderr,
            b->c->log.tty ? "\r%d of %d requests done, %d open, %d failed, %.0f pieces/s\033[K"
                          : "%d of %d requests done, %d open, %d failed, %.0f pieces/s\n",
            p->ended, p->total, p->busy, p->failed,
            p->elapsed_s > 0 ? (double)p->pieces / p->elapsed_s : 0);
    return true;
}

static vt_status run_load(const cli *c, load_bench *b, vt_err *err)
{
    b->o.on_tick = on_tick;
    b->o.user = b;
    b->shown_ns = vt_now_ns();
    TRY(vt_load_run(&b->o, &b->out, err));
    if (c->log.tty && !c->quiet)
        fputs("\r\033[K", stderr);
    double wall_s = (double)(b->out.end_ns - b->out.begin_ns) * 1e-9;
    return vt_load_measure(b->out.result, b->out.n, b->out.gap, b->out.n_gaps, wall_s, &b->slo,
                           &b->summary, err);
}

static vt_status check_files(const cli *c, vt_err *err)
{
    const char *file[] = {vt_options_get(c->options, "jsonl"),
                          vt_options_get(c->options, "report")};
    for (int i = 0; i < 2; i++)
        if (file[i])
            TRY(cli_check_writable(file[i], err));
    return VT_OK;
}

int cli_bench_serve(cli *c)
{
    vt_err err = {0};
    load_bench b = {.c = c};
    const char *slo = vt_options_get(c->options, "asked-slo");
    cli_catch_interrupt();
    vt_status status = check_usage(c, &err);
    if (status == VT_OK && slo)
        status = vt_load_slo_parse(slo, &b.slo, &err);
    if (status == VT_OK)
        status = check_files(c, &err);
    if (status == VT_OK)
        status = make_plan(c, &b, &err);
    if (status == VT_OK)
        status = find_server(c, &b, &err);
    if (status == VT_OK)
        status = set_load(c, &b, &err);
    if (status == VT_OK)
        status = run_load(c, &b, &err);
    int code = CLI_DONE;
    if (status == VT_OK)
        status = load_bench_report(&b, &code, &err);
    if (status != VT_OK)
        code = cli_fail(&err);
    vt_load_outcome_release(&b.out);
    vt_load_plan_release(&b.plan);
    vt_trace_file_release(&b.trace);
    return code;
}
