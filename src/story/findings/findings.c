/* Findings (findings.h). Each threshold is a named constant here and is printed with its
 * findings; it marks what is worth a look, not what is wrong. Severity W: worth doing something
 * about; N: good to know. */
#include "story/findings/findings_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/nvml.h"
#include "story/record/ranks.h"

static const double near_roof = 0.60;     /* from here on an op counts as bound by its roof */
static const double far_from_roof = 0.35; /* below it there is something to find */
static const double worth_a_look = 0.10;  /* an op is judged from this share of device time on */
static const double little_work_s = 2e-6;
static const double large_share = 0.30;
static const double idle_workers = 0.10;
static const double host_share = 0.05;
static const double itl_spread = 1.5;
static const double unexplained = 0.02;
static const double queued_share = 0.20;
static const double padded_rows = 0.25;
static const double gpu_idle = 0.05;
static const double timed_slower = 1.25;
static const double host_bound = 0.80;
static const double many_kernels = 0.20;
static const double disturbed_share = 0.05; /* of the steps */

/* Seconds summed over a phase's typical steps -> over all of its steps. */
static double per_request(const phase *p, double typical_s)
{
    return p->n_timed ? typical_s / p->n_timed * p->n_steps : NAN;
}

/* These words follow the numbers of an op that is judged without some of its calls. */
static const char *left_out(const op_sum *o)
{
    return o->once.n == 0  ? ""
           : o->once.n > 1 ? " (two slow calls left out)"
           : o->once.first ? " (the start in its first call left out)"
                           : " (one slow call left out)";
}

/* The evidence about an op, and the end of its finding. */
static void end_op(findings *f, const phase *p, const op_sum *o)
{
    finding_links(f, o->slowest_step, o->slowest);
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "op", o->kind);
    vt_json_int(f->w, "steps", p->n_timed);
    vt_json_real(f->w, "share", op_usual_s(o) / phase_usual_s(p));
    vt_json_real(f->w, "of_roof", isnan(op_usual_of_roof(o)) ? 0.0 : op_usual_of_roof(o));
    finding_end(f);
}

/* Compares the ops that matter with the roof that binds them. */
static void judge_roofs(findings *f, const phase *p)
{
    double bound_s = 0, floor_s = 0, all_s = phase_usual_s(p);
    for (int32_t i = 0; i < p->n_ops; i++)
        if (!p->op[i].link && op_bound(&p->op[i]) == STORY_BOUND_MEMORY) {
            bound_s += op_usual_s(&p->op[i]);
            floor_s += p->op[i].floor_s;
        }
    if (all_s > 0 && bound_s > 0.5 * all_s && floor_s > near_roof * bound_s) {
        finding_begin(
            f, 'N', "roof.memory", "60 % of the read roof",
            "%s is bound by memory: %.0f %% of its time moves bytes at %.0f %% of the read roof",
            p->name, 100 * bound_s / all_s, 100 * floor_s / bound_s);
        vt_json_string(f->w, "phase", p->name);
        vt_json_int(f->w, "steps", p->n_timed);
        vt_json_real(f->w, "share", bound_s / all_s);
        vt_json_real(f->w, "of_roof", floor_s / bound_s);
        finding_end(f);
    }
    if (phase_too_few(p))
        return;
    int32_t told = 0; /* the longest ops come first; a finding for two of them is enough */
    for (int32_t i = 0; i < p->n_ops && told < 2; i++) {
        const op_sum *o = &p->op[i];
        double s = op_usual_s(o), of_roof = op_usual_of_roof(o);
        bool gap = !o->link && s > worth_a_look * all_s && of_roof < far_from_roof;
        told += gap;
        if (gap && o->work_s < little_work_s * o->n_calls) {
            finding_begin(
                f, 'W', "call.latency", "2 us of work a call, for ops above 10 % of the time",
                "%s %s takes %.0f %% of the time%s: %.1f us a call for %.1f us of work; %s binds "
                "it, not a roof",
                p->name, o->kind, 100 * s / all_s, left_out(o), s / o->n_calls * 1e6,
                o->work_s / o->n_calls * 1e6,
                p->n_lanes ? "starting and draining a kernel"
                           : "getting all workers to start and to meet");
            finding_gain(f, per_request(p, s - o->floor_s));
            finding_cause(f, "launch");
            end_op(f, p, o);
        } else if (gap) {
            finding_begin(
                f, 'W', "roof.gap", "35 % of the roof, for ops above 10 % of the time",
                "%s %s takes %.0f %% of the time at %.0f %% of its %s roof%s: %.0f %% of it could "
                "go",
                p->name, o->kind, 100 * s / all_s, 100 * of_roof, story_bound_name(op_bound(o)),
                left_out(o), 100 * (1 - of_roof));
            finding_gain(f, per_request(p, s - o->floor_s));
            finding_cause(f, "op %s", o->kind);
            end_op(f, p, o);
        }
    }
}

/* If an op beats a roof, the roofs are measured again before the story is made. If an op still
 * beats one, the speed of this machine changes, and shares of roofs are too high. */
static void judge_measured(findings *f, const story_input *in, const phase *p)
{
    for (int32_t i = 0; in->roofs.measured && i < p->n_ops; i++) {
        const op_sum *o = &p->op[i];
        if (!op_beats_roof(p, o))
            continue;
        finding_begin(
            f, 'N', "roof.beaten", "105 % of the roof, for ops above 3 % of the time",
            "%s %s ran at %.0f %% of its %s roof: the roof was measured while the machine was "
            "busy; vitrine env measures it again",
            p->name, o->kind, 100 * op_of_roof(o), story_bound_name(op_bound(o)));
        end_op(f, p, o);
        return;
    }
}

static void judge_shares(findings *f, const phase *p)
{
    double bytes = 0;
    for (int32_t i = 0; i < p->n_ops; i++)
        bytes += p->op[i].link ? 0 : op_bytes(&p->op[i]);
    for (int32_t i = 0; i < p->n_ops; i++) {
        const op_sum *o = &p->op[i];
        if (!o->link && o->layer_first < 0 && o->s > large_share / 2 * p->ops_s && bytes > 0) {
            finding_begin(f, 'N', "share.outside", "15 % for one op outside the layers",
                          "%s alone costs %.0f %% of a %s step: it moves %.1f MB, %.0f %% of all",
                          o->kind, 100 * o->s / p->ops_s, p->name, op_bytes(o) / p->n_timed * 1e-6,
                          100 * op_bytes(o) / bytes);
            finding_cause(f, "op %s", o->kind);
            end_op(f, p, o);
        }
    }
    const op_sum *most = p->op;
    for (int32_t i = 1; i < p->n_ops; i++)
        if (op_usual_s(&p->op[i]) > op_usual_s(most))
            most = &p->op[i];
    if (p->n_ops && most->layer_first >= 0 && op_usual_s(most) > large_share * phase_usual_s(p)) {
        finding_begin(f, 'N', "share.largest", "30 % of the time",
                      "%s is the hotspot of %s: %.0f %% of its device time%s", most->kind, p->name,
                      100 * op_usual_s(most) / phase_usual_s(p), left_out(most));
        finding_cause(f, "op %s", most->kind);
        end_op(f, p, most);
    }
}

static void judge_workers(findings *f, const phase *p)
{
    double all = p->busy_s + p->wait_s;
    if (phase_too_few(p))
        return;
    if (all > 0 && p->wait_s > idle_workers * all) {
        finding_begin(f, 'W', "threads.wait", "10 % of the workers' time",
                      "%s: workers spend %.0f %% of their time waiting for each other at barriers",
                      p->name, 100 * p->wait_s / all);
        vt_json_string(f->w, "phase", p->name);
        vt_json_int(f->w, "steps", p->n_timed);
        vt_json_real(f->w, "wait_share", p->wait_s / all);
        finding_gain(f, per_request(p, p->timed_s * p->wait_s / all));
        finding_cause(f, "launch");
        finding_end(f);
    }
    if (p->timed_s > 0 && fabs(p->timed_s - p->ops_s) > unexplained * p->timed_s) {
        finding_begin(
            f, 'W', "time.unexplained", "2 % of the device time",
            "%s: the ops sum to %.3f ms of %.3f ms device time: %.1f %% lies outside them", p->name,
            p->ops_s * 1e3, p->timed_s * 1e3, 100 * (p->timed_s - p->ops_s) / p->timed_s);
        vt_json_string(f->w, "phase", p->name);
        vt_json_int(f->w, "steps", p->n_timed);
        vt_json_real(f->w, "share", (p->timed_s - p->ops_s) / p->timed_s);
        finding_gain(f, per_request(p, p->timed_s - p->ops_s));
        finding_end(f);
    }
}

/* Judges how a GPU ran the phase's steps. */
static void judge_launches(findings *f, const story_input *in, const phase *p, const phase_lane *g)
{
    double tokens = g->n_steps ? g->tokens / g->n_steps : 0, step_s = phase_step_s(p);
    double idle_s = g->n_idle ? g->idle_s / g->n_idle : 0;
    if (g->graph_least > 0 && tokens < (1 - padded_rows) * g->graph_least) {
        finding_begin(f, 'N', "graph.padding", "25 % of a graph's rows",
                      "%s runs in a graph for %d tokens with %.4g: %.0f %% of its rows are padding",
                      p->name, g->graph_least, tokens, 100 * (1 - tokens / g->graph_least));
        vt_json_string(f->w, "phase", p->name);
        vt_json_int(f->w, "graph_tokens", g->graph_least);
        vt_json_real(f->w, "tokens", tokens);
        finding_end(f);
    }
    if (idle_s > gpu_idle * step_s) {
        finding_begin(f, 'W', "gpu.idle", "5 % of a step",
                      "%s: the GPU stands idle for %.1f us before a step of %.1f us", p->name,
                      idle_s * 1e6, step_s * 1e6);
        vt_json_string(f->w, "phase", p->name);
        vt_json_int(f->w, "steps", g->n_idle);
        vt_json_real(f->w, "idle_us", idle_s * 1e6);
        finding_gain(f, idle_s * p->n_steps);
        finding_cause(f, "host");
        vt_json_real(f->w, "step_us", step_s * 1e6);
        finding_end(f);
    }
    double empty_s = g->n_steps ? g->kernels / g->n_steps * in->roofs.kernel_s : 0;
    if (empty_s > many_kernels * step_s) {
        finding_begin(
            f, 'N', "kernel.count", "20 % of a step",
            "%s launches %.0f kernels a step: empty ones, one after another, would take %.0f of "
            "its %.0f us",
            p->name, g->kernels / g->n_steps, empty_s * 1e6, step_s * 1e6);
        vt_json_string(f->w, "phase", p->name);
        vt_json_real(f->w, "kernels", g->kernels / g->n_steps);
        vt_json_real(f->w, "kernel_us", in->roofs.kernel_s * 1e6);
        finding_cause(f, "launch");
        vt_json_real(f->w, "step_us", step_s * 1e6);
        finding_end(f);
    }
}

/* Judges what timing a GPU's steps call by call did to them. Stamps do next to nothing. */
static void judge_timing(findings *f, const phase *p, const phase_lane *g)
{
    if (g->n_stamped > 0)
        return;
    double launch_s = g->n_timed ? g->prepare_timed_s / g->n_timed : 0,
           timed_s = p->n_timed ? p->timed_s / p->n_timed : NAN, step_s = phase_step_s(p);
    if (launch_s > host_bound * timed_s) {
        finding_begin(
            f, 'N', "timed.starved", "80 % of a timed step",
            "%s: the host needs %.0f us to launch a timed step of %.0f us call by call: where it "
            "is late the GPU waits, and the wait counts to the call",
            p->name, launch_s * 1e6, timed_s * 1e6);
        vt_json_string(f->w, "phase", p->name);
        vt_json_real(f->w, "prepare_us", launch_s * 1e6);
        vt_json_real(f->w, "timed_us", timed_s * 1e6);
        finding_end(f);
    }
    if (g->n_whole && timed_s > timed_slower * step_s) {
        finding_begin(
            f, 'N', "timed.slower", "1.25 times the untimed step",
            "timed call by call a %s step takes %.2f times as long as in its graph: shares are "
            "near, rates and shares of roofs are lower bounds",
            p->name, timed_s / step_s);
        vt_json_string(f->w, "phase", p->name);
        vt_json_real(f->w, "timed_us", timed_s * 1e6);
        vt_json_real(f->w, "whole_us", step_s * 1e6);
        finding_end(f);
    }
}

static void judge_kernels(findings *f, const phase *p)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        for (int32_t k = 0; k < p->op[i].n_kernels; k++) {
            const vt_kernel_facts *kernel = kernel_facts(&p->op[i].kernel[k]);
            if (kernel->spill_bytes > 0) {
                finding_begin(f, 'W', "kernel.spill", "one byte",
                              "%s %s: a thread of its kernel spills %d bytes of registers", p->name,
                              p->op[i].kind, kernel->spill_bytes);
                vt_json_string(f->w, "phase", p->name);
                vt_json_string(f->w, "op", p->op[i].kind);
                vt_json_string(f->w, "kernel", kernel->name);
                vt_json_int(f->w, "spill_bytes", kernel->spill_bytes);
                finding_end(f);
            }
        }
}

static void judge_request(findings *f, const phase *decode, const story_facts *t)
{
    if (t->total_s > 0 && t->waits_s > host_share * t->total_s) {
        finding_begin(
            f, 'W', "host.gaps", "5 % of the request",
            "the device stood still for %.1f ms between this request's steps: %.0f %% of its time",
            t->waits_s * 1e3, 100 * t->waits_s / t->total_s);
        vt_json_real(f->w, "waits_ms", t->waits_s * 1e3);
        finding_gain(f, t->waits_s);
        finding_cause(f, "host");
        vt_json_real(f->w, "total_ms", t->total_s * 1e3);
        finding_end(f);
    }
    if (t->total_s > 0 && t->queue_s > queued_share * t->total_s) {
        finding_begin(f, 'W', "queue.share", "20 % of the request",
                      "%.0f %% of the request's time was waiting for its first step",
                      100 * t->queue_s / t->total_s);
        vt_json_real(f->w, "queue_ms", t->queue_s * 1e3);
        finding_gain(f, t->queue_s);
        vt_json_real(f->w, "total_ms", t->total_s * 1e3);
        finding_end(f);
    }
    if (t->calm_p99_s > itl_spread * t->calm_p50_s) {
        finding_begin(
            f, 'W', "itl.spread", "p99 above 1.5 times p50",
            "tokens come unevenly: the gap between two is %.2f ms (p50) and %.2f ms (p99)",
            t->calm_p50_s * 1e3, t->calm_p99_s * 1e3);
        vt_json_real(f->w, "p50_ms", t->calm_p50_s * 1e3);
        vt_json_real(f->w, "p99_ms", t->calm_p99_s * 1e3);
        if (t->slow.n > 0) {
            vt_json_int(f->w, "slow_tokens", t->slow.n);
            finding_gain(f, t->slow.excess_s);
            finding_links(f, t->slow.token[0].step, NULL);
            if (t->slow.token[0].cause == SLOW_CHUNK)
                finding_cause(f, "prefill");
        }
        finding_end(f);
    }
    if (decode->others >= 1 && t->total_s > 0) {
        finding_begin(f, 'N', "batch.shared", "one other sequence",
                      "its decode steps were shared with %.1f other sequences on average",
                      decode->others);
        vt_json_real(f->w, "others", decode->others);
        finding_end(f);
    }
}

/* The machine had other things to do. */
static void judge_machine(findings *f, const story_machine *m)
{
    if (m->n_disturbed <= disturbed_share * m->n_steps)
        return;
    if (m->n_slow == m->n_disturbed)
        finding_begin(f, 'W', "machine.shared", "a clock 3 % lower, in more than 5 % of the steps",
                      "%d of %d steps ran at lower clocks than the others: down to %d of %d MHz",
                      m->n_disturbed, m->n_steps, m->mhz_least, m->mhz_most);
    else
        finding_begin(
            f, 'W', "machine.shared", "2 % of a step was run delay, in more than 5 % of the steps",
            "the CPUs are shared: workers had one for %.0f ms, and for %.0f ms they were ready and "
            "had none; %d of %d steps %s disturbed",
            m->cpu_s * 1e3, m->delay_s * 1e3, m->n_disturbed, m->n_steps,
            m->n_disturbed == 1 ? "was" : "were");
    vt_json_int(f->w, "steps", m->n_steps);
    vt_json_int(f->w, "disturbed_steps", m->n_disturbed);
    vt_json_int(f->w, "longest_delay_step", (int64_t)m->longest_step);
    vt_json_real(f->w, "run_delay_ms", m->delay_s * 1e3);
    vt_json_real(f->w, "cpu_ms", m->cpu_s * 1e3);
    finding_end(f);
}

/* The GPU held its clocks down in these steps: to stay within its power, or for its temperature. */
static void judge_clocks(findings *f, const story_machine *m)
{
    enum { POWER_CAP = 1 << 2, HELD = POWER_CAP | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 };
    if (m->throttle <= 0 || !(m->throttle & HELD))
        return;
    char by[128] = "", power[48] = "";
    size_t len = 0;
    for (int32_t i = 0; vt_nvml_reason(i); i++)
        if (m->throttle & HELD & INT64_C(1) << i)
            (void)vt_append(by, sizeof by, &len, "%s%s", len ? " and " : "", vt_nvml_reason(i));
    if (isfinite(m->power_w))
        snprintf(power, sizeof power, ", %.0f W in the mean", m->power_w);
    finding_begin(
        f, m->throttle & HELD & ~POWER_CAP ? 'W' : 'N', "machine.clocks",
        "a reason other than idle, in a sample of these steps",
        "the GPU's clocks were held by %s: SMs at %d to %d MHz%s; what the SMs bind takes "
        "longer by that, what memory binds does not",
        by, m->mhz_least, m->mhz_most, power);
    vt_json_string(f->w, "held_by", by);
    vt_json_int(f->w, "sm_mhz_least", m->mhz_least);
    vt_json_int(f->w, "sm_mhz_most", m->mhz_most);
    finding_end(f);
}

void story_findings(vt_json *w, const story_input *in, const story_record *r,
                    const phase phases[STORY_PHASES], const story_facts *t)
{
    findings *f = vt_calloc(1, sizeof *f);
    if (!f) {
        w->out->failed = true;
        return;
    }
    f->tokens = phases[STORY_DECODE].n_tokens > 0 ? phases[STORY_DECODE].n_tokens : 1;
    judge_machine(f, &t->machine);
    judge_clocks(f, &t->machine);
    for (int i = STORY_PHASES - 1; i >= 0; i--) { /* decode first: it is most of a request's time */
        const phase *p = &phases[i];
        const phase_lane *stream = phase_stream(p);
        if (stream && stream->n_steps) {
            judge_launches(f, in, p, stream);
            judge_timing(f, p, stream);
            judge_kernels(f, p);
        }
        if (p->n_timed == 0)
            continue;
        judge_roofs(f, p);
        judge_measured(f, in, p);
        judge_shares(f, p);
        judge_workers(f, p);
        findings_judge_cuts(f, p);
    }
    judge_request(f, &phases[STORY_DECODE], t);
    findings_judge_ranks(f, in, r);
    findings_judge_workers(f, in, r, phases, t);
    findings_judge_more(f, in, phases, &t->more);
    if (story_on_gpu(in))
        findings_judge_counters(
            f, t->counted, (double)story_find_source(in, VT_SOURCE_STREAM)->is.device.l2_bytes);
    findings_write(f, w);
    free(f);
}
