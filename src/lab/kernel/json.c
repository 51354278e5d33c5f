/* The report of a user's kernel as JSON: see own_kernel.h. What was not measured is null. */
#include <math.h>

#include "lab/kernel/own_kernel.h"
#include "lab/report/causes.h"

static void put_case(vt_json *w, const own_kernel_case *c)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "case", c->name);
    vt_json_string(w, "verdict", own_kernel_verdict_name[c->verdict]);
    vt_json_string(w, "why", c->why[0] ? c->why : NULL);
    vt_json_real(w, "error", c->error);
    vt_json_real(w, "tolerance", c->allowed);
    vt_json_close(w);
}

static void put_launch(vt_json *w, const own_kernel_launch *l, bool emulated)
{
    vt_json_open(w, "launch", '{');
    vt_json_string(w, "kernel", l->kernel);
    vt_json_open(w, "grid", '[');
    for (int k = 0; k < 3; k++)
        vt_json_int(w, NULL, l->grid[k]);
    vt_json_close(w);
    vt_json_int(w, "threads", l->threads);
    vt_json_int(w, "dynamic_shared_bytes", l->dynamic_shared);
    vt_json_known(w, "registers", emulated ? -1 : l->registers); /* an emulated GPU has none */
    vt_json_known(w, "spill_bytes", emulated ? -1 : l->spill_bytes);
    vt_json_int(w, "static_shared_bytes", l->static_shared);
    vt_json_int(w, "ctas_per_sm", l->ctas);
    vt_json_int(w, "warps_per_sm", l->warps);
    vt_json_int(w, "max_warps_per_sm", l->max_warps);
    vt_json_string(w, "occupancy_limit", l->limit[0] ? l->limit : NULL);
    vt_json_real(w, "waves", l->waves);
    vt_json_close(w);
}

static void put_row(vt_json *w, const own_kernel_report *r, const own_kernel_row *row)
{
    static const char *const us[2][2] = {{"warm_us", "cold_us"}, {"cold_us", "graph_us"}},
                             *const share[2][2] = {{"warm_roof_share", "cold_roof_share"},
                                                   {"cold_roof_share", "graph_roof_share"}},
                             *const roof[2][2] = {{"warm_roof", "cold_roof"},
                                                  {"cold_roof", "graph_roof"}};
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "shape", row->shape);
    vt_json_string(w, "implementation", row->name);
    vt_json_bool(w, "own", row->own);
    vt_json_int(w, "bytes", row->bytes);
    vt_json_int(w, "flops", row->flops);
    for (int k = 0; k < 2; k++) {
        vt_json_real(w, us[r->gpu][k], row->us[k]);
        vt_json_real(w, share[r->gpu][k], row->share[k]);
        vt_json_string(w, roof[r->gpu][k], isfinite(row->share[k]) ? row->roof[k] : NULL);
    }
    vt_json_real(w, "median_over_best", row->spread > 0 ? row->spread : NAN);
    if (r->gpu)
        put_launch(w, &row->launch, r->emulated);
    vt_json_close(w);
}

void own_kernel_json(const own_kernel_report *r, vt_json *w)
{
    vt_json_string(w, "file", r->file);
    vt_json_string(w, "op", r->op);
    vt_json_string(w, "device", r->gpu ? "cuda" : "cpu");
    vt_json_string(w, "machine", r->machine[0] ? r->machine : NULL);
    vt_json_bool(w, "emulated", r->emulated);
    vt_json_bool(w, "race_detector", r->races);
    vt_json_string(w, "tolerance_reason", r->tolerance_reason);
    vt_json_real(w, "memory_bytes_per_s", r->memory_bytes_per_s > 0 ? r->memory_bytes_per_s : NAN);
    vt_json_real(w, "fp32_per_s", r->fp32_per_s > 0 ? r->fp32_per_s : NAN);
    const report_cause *cause = own_kernel_cause(r);
    if (cause) {
        vt_json_open(w, "cause", '{');
        vt_json_string(w, "key", cause->key);
        vt_json_string(w, "seen", cause->seen);
        vt_json_string(w, "cause", cause->cause);
        vt_json_string(w, "action", cause->action);
        vt_json_close(w);
    } else {
        vt_json_null(w, "cause");
    }
    vt_json_open(w, "cases", '[');
    for (int32_t i = 0; i < r->n_cases; i++)
        put_case(w, &r->cases[i]);
    vt_json_close(w);
    vt_json_open(w, "rows", '[');
    for (int32_t i = 0; i < r->n_rows; i++)
        put_row(w, r, &r->rows[i]);
    vt_json_close(w);
}
