/* Prints the report of `vitrine bench serve`: a table, a JSON object, a line for each request. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_serve.h"

enum { SHOWN_TURNS = 12, SHOWN_REASONS = 5 };

static const char *tokens_by(const vt_load_summary *s)
{
    return s->by_pieces == 0 ? "usage" : s->by_usage == 0 ? "pieces" : "usage and pieces";
}

static int32_t n_turns(const load_bench *b)
{
    int32_t most = 0;
    for (int32_t i = 0; i < b->plan.n; i++)
        most = b->plan.session[i].n_turns > most ? b->plan.session[i].n_turns : most;
    return most;
}

static int32_t n_failed(const vt_load_summary *s)
{
    return s->n - s->ended[VT_LOAD_OK] - s->ended[VT_LOAD_OPEN];
}

static bool has_slo(const load_bench *b)
{
    return b->slo.ttft > 0 || b->slo.itl > 0 || b->slo.tpot > 0 || b->slo.e2e > 0;
}

static double cpu_share(const load_bench *b) { return b->out.cpu_s / b->summary.wall_s; }

/* ---- JSON ---- */

static void put_spread(vt_json *w, const char *name, const vt_load_spread *s)
{
    vt_json_open(w, name, '{');
    vt_json_int(w, "n", s->n);
    vt_json_fixed(w, "mean", s->mean * 1e3, 3);
    vt_json_fixed(w, "p50", s->p50 * 1e3, 3);
    vt_json_fixed(w, "p90", s->p90 * 1e3, 3);
    vt_json_fixed(w, "p99", s->p99 * 1e3, 3);
    vt_json_fixed(w, "max", s->max * 1e3, 3);
    vt_json_close(w);
}

static vt_status put_turns(const load_bench *b, vt_json *w, vt_err *err)
{
    vt_json_open(w, "turns", '[');
    for (int32_t i = 0, n = n_turns(b); i < n && n > 1; i++) {
        vt_load_turns t;
        TRY(vt_load_measure_turn(b->out.result, b->out.n, i, &t, err));
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "answers", t.n);
        vt_json_fixed(w, "prompt_tokens", t.prompt, 1);
        vt_json_fixed(w, "cached_tokens", t.cached, 1);
        vt_json_fixed(w, "computed_tokens", t.prompt - t.cached, 1);
        vt_json_fixed(w, "new_tokens", t.fresh, 1);
        vt_json_fixed(w, "ttft_p50_ms", t.ttft_p50 * 1e3, 3);
        vt_json_close(w);
    }
    vt_json_close(w);
    return VT_OK;
}

static void put_counts(const load_bench *b, vt_json *w)
{
    const vt_load_summary *s = &b->summary;
    vt_json_int(w, "requests", s->n);
    vt_json_int(w, "planned", b->plan.n_turns);
    vt_json_int(w, "completed", s->ended[VT_LOAD_OK]);
    vt_json_int(w, "failed", n_failed(s));
    vt_json_int(w, "unfinished", s->ended[VT_LOAD_OPEN]);
    vt_json_bool(w, "interrupted", b->out.stopped);
    vt_json_open(w, "errors", '{');
    for (int e = VT_LOAD_OK + 1; e < VT_LOAD_N_ENDS; e++)
        if (s->ended[e])
            vt_json_int(w, vt_load_end_name((vt_load_end)e), s->ended[e]);
    vt_json_close(w);
    vt_json_string(w, "tokens_by", tokens_by(s));
    vt_json_known(w, "prompt_tokens", s->n_prompt_known ? s->prompt_tokens : -1);
    vt_json_known(w, "cached_tokens", s->n_cached_known ? s->cached_tokens : -1);
    vt_json_int(w, "output_tokens", s->output_tokens);
}

static vt_status put_object(const load_bench *b, vt_json *w, vt_err *err)
{
    const vt_load_summary *s = &b->summary;
    cli_bench_begin(w, b->c, "serve", b->model);
    put_counts(b, w);
    vt_json_fixed(w, "wall_s", s->wall_s, 3);
    vt_json_fixed(w, "requests_per_s", s->requests_per_s, 3);
    vt_json_fixed(w, "output_tokens_per_s", s->output_tokens_per_s, 2);
    if (s->n_prompt_known)
        vt_json_fixed(w, "total_tokens_per_s", s->total_tokens_per_s, 2);
    put_spread(w, "ttft_ms", &s->ttft);
    put_spread(w, "itl_ms", &s->itl);
    put_spread(w, "tpot_ms", &s->tpot);
    put_spread(w, "e2e_ms", &s->e2e);
    if (has_slo(b)) {
        vt_json_int(w, "good", s->n_good);
        vt_json_fixed(w, "goodput_per_s", s->goodput_per_s, 3);
    }
    vt_json_fixed(w, "late_ms", s->late_s * 1e3, 3);
    vt_json_fixed(w, "client_cpu", cpu_share(b), 4);
    vt_json_int(w, "connections", b->out.client.connects);
    vt_json_int(w, "sent_again", b->out.client.resent);
    TRY(put_turns(b, w, err));
    return vt_json_end(w) ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for the report");
}

static void put_time(vt_json *w, const char *name, double seconds)
{
    vt_json_fixed(w, name, seconds * 1e3, 3);
}

static void put_line(const load_bench *b, const vt_load_result *r, vt_buf *to)
{
    vt_json w;
    bool ok = r->end == VT_LOAD_OK;
    vt_json_begin(&w, to, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "chat", r->session);
    vt_json_int(&w, "turn", r->turn);
    put_time(&w, "due_ms", (double)(r->due_ns - b->out.begin_ns) * 1e-9);
    put_time(&w, "sent_ms", (double)(r->begin_ns - b->out.begin_ns) * 1e-9);
    vt_json_string(&w, "end", vt_load_end_name(r->end));
    vt_json_known(&w, "status", r->status ? r->status : -1);
    put_time(&w, "ttft_ms", vt_load_ttft(r));
    put_time(&w, "tpot_ms", ok ? vt_load_tpot(r) : NAN);
    put_time(&w, "e2e_ms", r->end == VT_LOAD_OPEN ? NAN : vt_load_e2e(r));
    put_time(&w, "longest_gap_ms", r->n_pieces > 1 ? (double)r->longest_gap_s : NAN);
    vt_json_int(&w, "pieces", r->n_pieces);
    vt_json_int(&w, "max_tokens", r->max_tokens);
    vt_json_known(&w, "prompt_tokens", r->prompt);
    vt_json_known(&w, "cached_tokens", r->cached);
    vt_json_known(&w, "completion_tokens", r->completion);
    if (has_slo(b))
        vt_json_bool(&w, "good", vt_load_is_good(r, &b->slo));
    if (r->why[0])
        vt_json_string(&w, "error", r->why);
    vt_json_close(&w);
    (void)vt_json_end(&w);
    vt_buf_putc(to, '\n');
}

static vt_status write_lines(const load_bench *b, const char *path, vt_err *err)
{
    vt_buf lines = {0};
    for (int32_t i = 0; i < b->out.n; i++)
        if (b->out.result[i].begin_ns)
            put_line(b, &b->out.result[i], &lines);
    if (lines.len) /* cli_write_file adds the last newline */
        lines.len--;
    vt_status status = lines.failed
                           ? vt_fail(err, VT_ERR_MEMORY, "out of memory for %s", path)
                           : cli_write_file(path, lines.data ? lines.data : "", lines.len, err);
    vt_buf_release(&lines);
    return status;
}

/* ---- text ---- */

static void add_row(vt_table *t, const char *name, const vt_load_spread *s)
{
    if (s->n == 0)
        return;
    vt_table_cell(t, "%s", name);
    const double v[] = {s->mean, s->p50, s->p90, s->p99, s->max};
    for (int i = 0; i < 5; i++)
        vt_table_cell(t, "%.*f", v[i] < 0.1 ? 2 : 1, v[i] * 1e3);
}

/* The reasons of failures, each different one once. */
static void put_reasons(const load_bench *b, vt_buf *out)
{
    const char *said[SHOWN_REASONS];
    int n = 0;
    for (int32_t i = 0; i < b->out.n && n < SHOWN_REASONS; i++) {
        const vt_load_result *r = &b->out.result[i];
        bool known = r->end == VT_LOAD_OK || r->end == VT_LOAD_OPEN || !r->why[0];
        for (int k = 0; k < n && !known; k++)
            known = strcmp(said[k], r->why) == 0;
        if (known)
            continue;
        said[n++] = r->why;
        char why[sizeof r->why];
        memcpy(why, r->why, sizeof why);
        vt_text_clean_line(why);
        vt_buf_printf(out, "  %s: %s\n", vt_load_end_name(r->end), why);
    }
}

static void put_head(const load_bench *b, vt_buf *out)
{
    const vt_load_summary *s = &b->summary;
    char model[sizeof b->model];
    memcpy(model, b->model, sizeof model);
    vt_text_clean_line(model);
    vt_buf_printf(out, "%s at %s: %d of %d requests answered in %.2f s", model,
                  vt_options_get(b->c->options, "url"), s->ended[VT_LOAD_OK], b->plan.n_turns,
                  s->wall_s);
    if (b->out.stopped)
        vt_buf_printf(out, " (interrupted; %d were open)", s->ended[VT_LOAD_OPEN]);
    vt_buf_printf(out, "\n  %.2f requests/s, %.1f output tokens/s", s->requests_per_s,
                  s->output_tokens_per_s);
    if (s->n_prompt_known)
        vt_buf_printf(out, ", %.1f tokens/s in all", s->total_tokens_per_s);
    vt_buf_printf(out, " (tokens by %s)\n", tokens_by(s));
    if (s->n_prompt_known) {
        vt_buf_printf(out, "  %lld prompt tokens", (long long)s->prompt_tokens);
        if (s->n_cached_known)
            vt_buf_printf(out, " (%lld from the cache)", (long long)s->cached_tokens);
        vt_buf_printf(out, ", %lld output tokens\n", (long long)s->output_tokens);
    }
    if (has_slo(b))
        vt_buf_printf(out, "  goodput %.2f requests/s: %d of %d requests within --slo %s\n",
                      s->goodput_per_s, s->n_good, s->n,
                      vt_options_get(b->c->options, "asked-slo"));
}

static vt_status put_turn_table(const load_bench *b, vt_buf *out, vt_err *err)
{
    vt_table t;
    int32_t n = n_turns(b);
    if (n < 2)
        return VT_OK;
    vt_buf_putc(out, '\n');
    vt_table_init(&t, ">turn|>answers|>prompt tokens|>cached|>computed|>new|>TTFT p50, ms");
    for (int32_t i = 0; i < n && i < SHOWN_TURNS; i++) {
        vt_load_turns m = {0};
        vt_status status = vt_load_measure_turn(b->out.result, b->out.n, i, &m, err);
        if (status != VT_OK) {
            vt_buf_release(&t.text);
            return status;
        }
        if (m.n == 0)
            continue;
        vt_table_cell(&t, "%d", i + 1);
        vt_table_cell(&t, "%d", m.n);
        vt_table_cell(&t, "%.1f", m.prompt);
        vt_table_cell(&t, "%.1f", m.cached);
        vt_table_cell(&t, "%.1f", m.prompt - m.cached);
        vt_table_cell(&t, "%.1f", m.fresh);
        vt_table_cell(&t, "%.1f", m.ttft_p50 * 1e3);
    }
    vt_table_finish(&t, out, &b->c->out, 2);
    return VT_OK;
}

static vt_status put_text(const load_bench *b, vt_buf *out, vt_err *err)
{
    const vt_load_summary *s = &b->summary;
    vt_table t;
    put_head(b, out);
    vt_buf_putc(out, '\n');
    vt_table_init(&t, "ms|>mean|>p50|>p90|>p99|>max");
    add_row(&t, "TTFT", &s->ttft);
    add_row(&t, "ITL", &s->itl);
    add_row(&t, "TPOT", &s->tpot);
    add_row(&t, "E2E", &s->e2e);
    vt_table_finish(&t, out, &b->c->out, 2);
    TRY(put_turn_table(b, out, err));
    if (n_failed(s)) {
        vt_buf_printf(out, "\n%d requests failed:", n_failed(s));
        for (int e = VT_LOAD_OK + 1; e < VT_LOAD_N_ENDS; e++)
            if (s->ended[e])
                vt_buf_printf(out, " %d %s", s->ended[e], vt_load_end_name((vt_load_end)e));
        vt_buf_putc(out, '\n');
        put_reasons(b, out);
    }
    vt_buf_printf(out, "\nThis client used %.0f %% of a core over %lld connections",
                  100 * cpu_share(b), (long long)b->out.client.connects);
    if (s->late_s > 1e-3)
        vt_buf_printf(out, "; it sent requests up to %.1f ms late", s->late_s * 1e3);
    vt_buf_puts(out, ".\n");
    return VT_OK;
}

vt_status load_bench_report(load_bench *b, int *code, vt_err *err)
{
    const char *jsonl = vt_options_get(b->c->options, "jsonl"),
               *file = vt_options_get(b->c->options, "report");
    vt_json object = {0};
    vt_buf text = {0};
    vt_status status = jsonl ? write_lines(b, jsonl, err) : VT_OK;
    if (status == VT_OK)
        status = put_object(b, &object, err);
    if (status == VT_OK && file)
        status = cli_write_file(file, object.out->data, object.out->len, err);
    if (status == VT_OK && b->c->json) {
        vt_buf_putc(object.out, '\n');
        cli_put_all(stdout, object.out->data, object.out->len);
    } else if (status == VT_OK) {
        status = put_text(b, &text, err);
        if (status == VT_OK)
            cli_put_all(stdout, text.data ? text.data : "", text.len);
    }
    vt_json_release(&object);
    vt_buf_release(&text);
    *code = b->out.stopped ? CLI_INTERRUPTED : n_failed(&b->summary) ? CLI_FAILED : CLI_DONE;
    return status;
}
