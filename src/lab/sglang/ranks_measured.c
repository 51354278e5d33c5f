/* Lab sglang 06, measured: the same request on engines of several ranks, on parts of the lab's
 * threads or on GPUs, beside one rank. A story of ranks tells waiting and moving apart. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/choose.h"
#include "engine/engine.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

/* The calls that join ranks, summed over the first workers of all ranks. calls is 0 where the story
 * does not tell. Where the waits inside these calls were not timed, as in the kernels of GPUs, they
 * are derived: all ranks make the same calls, so the rank that spends least time in them waited
 * least, and what the others spend beyond it is waiting for it. */
typedef struct joined {
    double calls, wait_s, transfer_s, bytes;
    bool derived;
} joined;

typedef struct run {
    double step_s;
    bool disturbed;
    joined joined;
} run;

static joined joined_of(const json_t *story)
{
    const json_t *items = story_get(story_get(story, "ranks"), "items"), *rank;
    joined j = {0};
    double least_s = INFINITY, ranks = 0;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)items, i, rank)
    {
        const json_t *c = story_get(rank, "communication");
        if (!json_is_object(c))
            continue;
        j.calls += story_num(c, "calls");
        j.wait_s += story_num(c, "wait_ms") * 1e-3;
        j.transfer_s += story_num(c, "transfer_ms") * 1e-3;
        j.bytes += story_num(c, "bytes");
        least_s = fmin(least_s, story_num(c, "transfer_ms") * 1e-3);
        ranks++;
    }
    if (j.calls > 0 && !(j.wait_s > 0)) {
        j.derived = true;
        j.wait_s = j.transfer_s - ranks * least_s;
        j.transfer_s = ranks * least_s;
    }
    return j;
}

vt_status sglang_ranks_device(const lab *l, int32_t n, char *out, size_t size, vt_err *err)
{
    const char *devices = lab_text(l, "devices"), *end = devices;
    if (!devices) {
        vt_device_name(l->ordinal, out, size);
        return VT_OK;
    }
    for (int32_t i = 0; i < n; i++) {
        end += *end == ',';
        if (*end == '\0')
            return vt_fail(err, VT_ERR_UNSUPPORTED, "--devices %.40s names fewer than %d GPUs",
                           devices, n);
        end += strcspn(end, ",");
    }
    snprintf(out, size, "cuda:%.*s", (int)(end - devices), devices);
    return VT_OK;
}

/* Runs the request on n ranks. Fails with the reason why they cannot be. */
static vt_status run_on(lab *l, const sglang_scaling_ask *a, int32_t n, const char *link, run *out,
                        vt_err *err)
{
    char ranks[12], device[64];
    vt_engine *e = NULL;
    json_t *story = NULL;
    bool gpu = l->ordinal >= 0;
    lab_request r = {.prompt = a->prompt, .n_prompt = a->n_prompt, .n_gen = a->n_gen};
    snprintf(ranks, sizeof ranks, "%d", n);
    if (!gpu && l->threads < n)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%d ranks need a thread each (--threads %d)", n,
                       l->threads);
    if (gpu)
        TRY(sglang_ranks_device(l, n, device, sizeof device, err));
    const char *const on_cpu[] = {"tp", ranks, NULL};
    /* with a story asked for, kernels stamp their times, those of communication too, from the first
     * steps on; a server's folder for stories would let only later ones */
    const char *const on_gpus[] = {"tp", ranks,   "device",     device, "tp-link",
                                   link, "story", "ranks.json", NULL};
    TRY(sglang_open(l, gpu ? on_gpus : on_cpu, 64, &e, err));
    vt_status status = lab_engine_warm(l, e, err);
    if (status == VT_OK)
        status = lab_requests_run(l, e, &r, 1, err);
    if (status == VT_OK)
        status = lab_story(l, e, r.id, &story, err);
    if (status == VT_OK)
        *out = (run){.step_s = sglang_step_s(story),
                     .disturbed = sglang_disturbed(story, "decode"),
                     .joined = joined_of(story)};
    json_decref(story);
    lab_request_release(&r);
    vt_engine_free(e);
    return status;
}

static void put(lab *l, int32_t n, const char *link, const run *of, double one_s)
{
    const joined *j = &of->joined;
    bool told = j->calls > 0;
    lab_cells(l, "%d|%s|%f s|%f ratio|%f s|%f s|%s", n, link, of->step_s, one_s / of->step_s,
              told ? j->wait_s / j->calls : NAN, told ? j->transfer_s / j->calls : NAN,
              of->disturbed ? "disturbed" : "");
}

static void tell_apart(lab *l, int32_t n, const joined *j)
{
    if (j->calls <= 0) {
        lab_missing(l, "skew", "the story of ranks on GPUs does not tell waits apart");
        lab_missing(l, "transfer", "the story of ranks on GPUs does not tell transfers apart");
        return;
    }
    lab_item(
        l, "skew",
        "with %d ranks a call that joins them waits %f s for a peer, mean of %.0f calls in timed "
        "steps%s",
        n, j->wait_s / j->calls, j->calls,
        j->derived ? " (derived: the time beyond that of the rank that spends least in the same "
                     "calls)"
                   : "");
    lab_item(
        l, "transfer",
        "with %d ranks such a call moves its bytes in %f s behind the wait: %f B, %f B/s of what "
        "the op must read and write",
        n, j->transfer_s / j->calls, j->bytes / j->calls, j->bytes / j->transfer_s);
}

/* The same number of ranks over a fast link and through the host; step_s: by link, NAN where it did
 * not run. */
static void tell_fast_link(lab *l, int32_t n, const double step_s[2], const char *why)
{
    if (l->ordinal < 0)
        lab_missing(l, "fast_link",
                    "ranks of a CPU have one way to each other, its memory; a "
                    "fast link (NVLink, peer to peer) needs two GPUs");
    else if (step_s[0] > 0 && step_s[1] > 0)
        lab_item(l, "fast_link",
                 "with %d ranks a decode step takes %f s where each GPU reads its peers' memory, "
                 "and %f s where every sum goes through the host's: the fast link is worth %f "
                 "ratio of the step",
                 n, step_s[0], step_s[1], step_s[1] / step_s[0]);
    else
        lab_missing(l, "fast_link", "%s",
                    step_s[0] > 0 || step_s[1] > 0
                        ? "the request ran over one link alone (--link p2p,host compares two)"
                        : why);
}

void sglang_scaling(lab *l, const sglang_scaling_ask *a)
{
    int32_t n_run = 0, first = 0;
    joined apart = {0};
    double step_s[2] = {NAN, NAN}; /* of the first number of ranks: p2p, host */
    char why[600] = "no number of ranks above 1 was asked for (--ranks)";
    for (int32_t i = 0; i < a->n_ranks; i++)
        for (int32_t k = 0; k < (l->ordinal >= 0 ? a->n_links : 1) && a->rank[i] > 1; k++) {
            vt_err err = {0};
            run of = {0};
            const char *link = l->ordinal >= 0 ? a->link[k] : "memory";
            if (run_on(l, a, a->rank[i], link, &of, &err) != VT_OK) {
                snprintf(why, sizeof why, "%s", err.message);
                continue;
            }
            if (n_run++ == 0) {
                lab_table(l, "scaling",
                          "the same request, measured; waiting and moving: of a call "
                          "that joins ranks",
                          ">ranks|link|>decode step|>gain|>waiting|>moving|state");
                lab_cells(l, "%d|%s|%f s|%f ratio|%s|%s|%s", 1, "", a->one_s, 1.0, "", "", "");
                first = a->rank[i];
                apart = of.joined;
            }
            put(l, a->rank[i], link, &of, a->one_s);
            if (a->rank[i] == first)
                step_s[strcmp(link, "host") == 0] = of.step_s;
        }
    tell_fast_link(l, first, step_s, why);
    if (n_run > 0) {
        tell_apart(l, first, &apart);
        return;
    }
    static const char *const key[] = {"scaling", "skew", "transfer"};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        lab_missing(l, key[i], "%s", why);
}
