/* The criteria of the tracks (status.h). */
#include "lab/report/status.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json_write.h"
#include "lab/kit/list.h"
#include "lab/kit/result.h"

const lab_criterion lab_criteria[] = {
    {LAB_SGLANG,
     "Understood RadixCache hit/miss behavior and cache eviction patterns",
     "prefix cache: hit, miss and eviction, from the engine and from a client",
     {"sglang 02", "experiments 6"}},
    {LAB_SGLANG,
     "Measured prefill vs decode kernel characteristics",
     "the transition from prefill to decode, and attention on the roofline",
     {"sglang 01", "sglang 05"}},
    {LAB_SGLANG,
     "Compared FlashInfer vs Triton backend performance",
     "attention rows fa2 and fa3 (on a CPU: portable, avx2, avx512)",
     {"sglang 03"}},
    {LAB_SGLANG,
     "Analyzed TP scaling with NVLink topology",
     "ranks over the links that this machine has, measured where several devices are",
     {"sglang 06:fast_link", "experiments 5:pairs"}},
    {LAB_SGLANG,
     "Identified key bottlenecks in SGLang serving",
     "bottlenecks of this server, ranked in the final report",
     {"sglang 01", "sglang 04", "experiments 3"}},
    {LAB_MINI_SGLANG,
     "Profiled all custom kernels (Index, Store, NCCL, Radix)",
     "embed, kv_store, all_reduce and the copies around it, prefix_match",
     {"mini-sglang 02", "mini-sglang 03", "mini-sglang 05", "mini-sglang radix"}},
    {LAB_MINI_SGLANG,
     "Analyzed FlashInfer integration patterns",
     "which attention row runs when, and its place in a forward pass",
     {"mini-sglang 04", "mini-sglang 06"}},
    {LAB_MINI_SGLANG,
     "Created per-kernel optimization guides",
     "kernel-dev-guide.md: each kernel with what was tried and the verdict",
     {"mini-sglang 02", "mini-sglang 03", "mini-sglang radix"}},
    {LAB_MINI_SGLANG,
     "Generated tutorial materials for beginners",
     "a page a lab, and the beginner's path of INDEX.md",
     {"mini-sglang 00", "mini-sglang 01"}},
    {LAB_FLASHINFER,
     "Understood attention kernel internals (prefill/decode)",
     "online softmax, tiles, waves; split-K, merge with LSE",
     {"flashinfer 02", "flashinfer 03"}},
    {LAB_FLASHINFER,
     "Analyzed normalization kernel efficiency",
     "RMSNorm against the copy roof, fused addition against two kernels",
     {"flashinfer 04"}},
    {LAB_FLASHINFER,
     "Studied RoPE implementation and variants",
     "rope in place, interleaved and half-split, llama3 and yarn",
     {"flashinfer 05"}},
    {LAB_FLASHINFER,
     "Learned JIT compilation workflow",
     "what is compiled when, its key, cold against warm",
     {"flashinfer 00", "flashinfer 06"}},
    {LAB_FLASHINFER,
     "Created kernel development guide",
     "kernel-dev-guide.md, and each kernel on every shape against its reference",
     {"flashinfer 01", "flashinfer 02"}},
    {LAB_TRACKS, NULL, NULL, {NULL}}};

/* "sglang 06:fast_link" */
typedef struct wanted {
    lab_track track;
    const lab_def *def; /* NULL: this program does not have the lab */
    char number[24], item[40];
} wanted;

static void read_wanted(const char *text, wanted *w)
{
    char track[24];
    *w = (wanted){0};
    if (sscanf(text, "%23s %23[^:]:%39s", track, w->number, w->item) >= 2 &&
        lab_track_find(track, &w->track))
        w->def = lab_find(w->track, w->number);
}

/* "2 of 9 checks failed", "quick results do not count ..." ...; NULL: good. */
static const char *fault_of(const json_t *result, const wanted *w, vt_buf *why)
{
    size_t i, bad = 0;
    json_t *c;
    json_array_foreach(json_object_get(result, "checks"), i, c)
        bad += !json_is_true(json_object_get(c, "ok"));
    if (bad) {
        vt_buf_printf(why, "%zu of its checks failed", bad);
        return "failed";
    }
    if (json_is_true(json_object_get(result, "quick"))) {
        vt_buf_puts(why, "quick results do not count: run it without --quick");
        return "quick";
    }
    const json_t *item = json_object_get(json_object_get(result, "items"), w->item);
    const char *missing = json_string_value(json_object_get(item, "missing"));
    if (!*w->item || (item && !missing))
        return NULL;
    vt_buf_printf(why, "'%s' was not measured there%s", w->item, missing ? ": " : "");
    for (; missing && *missing; missing++) /* a semicolon begins the next result's line */
        vt_buf_putc(why, *missing == ';' ? ',' : *missing);
    return "missing";
}

vt_status lab_criterion_state(const vt_options *o, const lab_criterion *c, bool *done, vt_buf *why,
                              vt_err *err)
{
    const char *machine = vt_options_given(o, "machine") ? vt_options_get(o, "machine") : "local";
    *done = true;
    for (int i = 0; i < LAB_CRITERION_FILES && c->lab[i]; i++) {
        char folder[PATH_MAX];
        wanted w;
        json_t *result = NULL;
        read_wanted(c->lab[i], &w);
        vt_buf_puts(why, i ? "; " : "");
        if (w.def) {
            TRY(lab_results_folder(o, w.track, folder, sizeof folder, err));
            TRY(lab_result_read(folder, w.def, &result, err));
        }
        if (!result) {
            vt_buf_printf(why, "not run here yet: vitrine lab %s %s", lab_track_name[w.track],
                          w.number);
            *done = false;
            continue;
        }
        vt_buf_printf(why, "%s/results/%s/%s_%s.json", lab_track_name[w.track], machine,
                      w.def->number, w.def->name);
        vt_buf fault = {0};
        if (fault_of(result, &w, &fault)) {
            vt_buf_printf(why, " (%s)", fault.data ? fault.data : "");
            *done = false;
        }
        vt_buf_release(&fault);
        json_decref(result);
    }
    return VT_OK;
}

static void put_text(vt_buf *out, const vt_term *term, const lab_criterion *c, bool done,
                     const char *why)
{
    vt_buf_puts(out, done ? "  [x] " : "  [ ] ");
    vt_text_ink(out, term, VT_INK_BOLD, c->words);
    vt_buf_printf(out, "\n      here: %s\n      %s: ", c->ours, done ? "done" : "open");
    vt_buf clean = {0};
    vt_shown shown = {0};
    vt_text_show(&clean, &shown, why, strlen(why));
    vt_text_show_end(&clean, &shown);
    for (const char *p = clean.data ? clean.data : ""; *p; p++)
        if (p[0] == ';' && p[1] == ' ') {
            vt_buf_puts(out, "\n            ");
            p++;
        } else
            vt_buf_putc(out, *p);
    vt_buf_putc(out, '\n');
    out->failed |= clean.failed;
    vt_buf_release(&clean);
}

vt_status lab_status(const vt_options *o, lab_track only, bool json, const vt_term *term,
                     vt_buf *out, vt_err *err)
{
    vt_json w;
    int n = 0, n_done = 0;
    lab_track last = LAB_TRACKS;
    vt_status status = VT_OK;
    if (json) {
        vt_json_begin(&w, out, -1);
        vt_json_open(&w, NULL, '[');
    }
    for (const lab_criterion *c = lab_criteria; c->words && status == VT_OK; c++) {
        bool done = false;
        vt_buf why = {0};
        if (only != LAB_TRACKS && c->track != only)
            continue;
        status = lab_criterion_state(o, c, &done, &why, err);
        n++;
        n_done += done;
        if (status == VT_OK && json) {
            vt_json_open(&w, NULL, '{');
            vt_json_string(&w, "track", lab_track_name[c->track]);
            vt_json_string(&w, "criterion", c->words);
            vt_json_string(&w, "here", c->ours);
            vt_json_string(&w, "state", done ? "done" : "open");
            vt_json_string(&w, "shown_by", why.data ? why.data : "");
            vt_json_close(&w);
        } else if (status == VT_OK) {
            if (c->track != last) {
                vt_buf_puts(out, out->len ? "\n" : "");
                vt_text_ink(out, term, VT_INK_BOLD, lab_track_name[c->track]);
                vt_buf_putc(out, '\n');
            }
            last = c->track;
            put_text(out, term, c, done, why.data ? why.data : "");
        }
        vt_buf_release(&why);
    }
    if (json) {
        vt_json_close(&w);
        vt_buf_putc(out, '\n');
        return status == VT_OK && !vt_json_end(&w) ? vt_fail(err, VT_ERR_MEMORY, "out of memory")
                                                   : status;
    }
    vt_buf_printf(out, "\n%d of %d criteria are done.\n", n_done, n);
    return status;
}
