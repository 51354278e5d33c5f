#include "server/watch/dumps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "server/api/generation.h"
#include "server/watch/log.h"
#include "server/watch/stories.h"
#include "story/dump.h"
#include "story/story.h"

const char *const server_slo_names[SERVER_SLOS] = {"ttft", "itl", "tpot", "e2e"};

vt_status server_dumps_new(vt_server *s, server_dumps **out, vt_err *err)
{
    const char *slo = vt_options_get(s->options, "slo"),
               *folder = vt_options_get(s->options, "story-dir");
    server_dumps *d = *out = vt_calloc(1, sizeof *d);
    if (!d)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the limits of requests");
    d->server = s;
    /* An executor that knows no roofs serves requests all the same, but it can tell no stories. */
    vt_status status = story_prepare(s->engine, err);
    if (status != VT_OK && (slo || status != VT_ERR_UNSUPPORTED))
        return status;
    if (!slo)
        return VT_OK;
    d->has_slo = true;
    TRY(vt_load_slo_parse(slo, &d->slo, err));
    return vt_story_dump_folder(folder, d->folder, sizeof d->folder, err);
}

/* ---- one file ---- */

typedef struct dump {
    server_dumps *of;
    vt_request_id story; /* 0: the whole recording */
    char why[96];        /* begins the line that says that it failed */
    char path[SERVER_DUMP_PATH], oldest[SERVER_DUMP_PATH];
    vt_status status;
    vt_err err;
} dump;

/* On a helper thread. A missed request has its path already; for a signal the folder may have to be
 * made. */
static void write_dump(void *arg)
{
    dump *p = arg;
    const vt_server *s = p->of->server;
    p->status = VT_OK;
    if (!p->path[0])
        p->status = vt_story_dump_name(vt_options_get(s->options, "story-dir"), p->path,
                                       sizeof p->path, &p->err);
    if (p->status == VT_OK)
        p->status = vt_story_dump(s->engine, p->story, p->path, &p->err);
    /* It may be gone already. Where it cannot be removed, no further file can be written either. */
    if (p->status == VT_OK && p->oldest[0])
        (void)unlink(p->oldest);
}

/* Where the story of a missed request is stands in the request's own line. */
static void say_dump(const dump *p)
{
    vt_buf line = {0};
    if (p->status != VT_OK)
        vt_buf_printf(&line, "vitrine: %sno story was written: %s", p->why, p->err.message);
    else if (!p->story)
        vt_buf_printf(&line, "vitrine: the last steps are in %s", p->path);
    if (line.len > 0 && !line.failed)
        server_log_line(p->of->server->log, line.data, line.len);
    vt_buf_release(&line);
}

static void dump_done(void *arg)
{
    dump *p = arg;
    server_dumps *d = p->of;
    *(p->status == VT_OK ? &d->written : &d->failed) += 1;
    say_dump(p);
    free(p);
    d->server->stories->building = false;
    server_dumps_story_ended(d);
}

/* Takes `p` over. A post that runs after the helpers have ended finds none. */
static bool begin(dump *p)
{
    vt_server *s = p->of->server;
    p->status = vt_fail(&p->err, VT_ERR_CANCELLED, "the server is stopping");
    if (s->work && server_work_add(s->work, &(server_long_job){0}, write_dump, dump_done, p)) {
        s->stories->building = true;
        return true;
    }
    free(p);
    return false;
}

/* ---- a signal ---- */

static void begin_asked(server_dumps *d)
{
    if (!d->asked || d->server->stories->building)
        return;
    d->asked = false;
    dump *p = vt_calloc(1, sizeof *p);
    if (p)
        p->of = d;
    if (!p || !begin(p))
        d->skipped++;
}

void server_dumps_ask(server_dumps *d)
{
    d->asked = true;
    begin_asked(d);
}

void server_dumps_story_ended(server_dumps *d)
{
    d->ended_ns = vt_now_ns();
    begin_asked(d);
}

/* ---- a request that missed a limit ---- */

void server_slo_list(unsigned missed, char out[32])
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < SERVER_SLOS; i++)
        if (missed >> i & 1)
            vt_append(out, 32, &n, "%s%s", n ? "," : "", server_slo_names[i]);
}

/* The mean time of a token after the first, of the completion where it was longest; 0: none had a
 * second token. */
static double longest_tpot(const generation *g)
{
    double longest = 0;
    for (int32_t i = 0; g->made && i < g->reply.n; i++) {
        const generation_made *c = &g->made[i];
        if (c->n_later > 0)
            longest = fmax(longest, (double)(c->last_ns - c->first_ns) * 1e-9 / c->n_later);
    }
    return longest;
}

/* A request that ended before its first token has waited for it until then. */
static unsigned find_missed(const vt_load_slo *slo, const server_record *r)
{
    const generation *g = r->generation;
    double total = (double)(r->end_ns - r->began_ns) * 1e-9;
    const double is[SERVER_SLOS] = {[SERVER_SLO_TTFT] = r->ttft_ns >= 0 ? (double)r->ttft_ns * 1e-9
                                                                        : total,
                                    [SERVER_SLO_ITL] = (double)g->longest_gap_ns * 1e-9,
                                    [SERVER_SLO_TPOT] = longest_tpot(g),
                                    [SERVER_SLO_E2E] = total},
                 limit[SERVER_SLOS] = {[SERVER_SLO_TTFT] = slo->ttft,
                                       [SERVER_SLO_ITL] = slo->itl,
                                       [SERVER_SLO_TPOT] = slo->tpot,
                                       [SERVER_SLO_E2E] = slo->e2e};
    unsigned missed = 0;
    for (int i = 0; i < SERVER_SLOS; i++)
        missed |= limit[i] > 0 && is[i] > limit[i] ? 1u << i : 0;
    return missed;
}

static bool may_dump(const server_dumps *d, const server_record *r)
{
    int64_t gap_ns = SERVER_DUMP_GAP_S * INT64_C(1000000000);
    return !d->server->stories->building && r->began_ns > d->ended_ns &&
           (d->n == 0 || vt_now_ns() - d->begun_ns > gap_ns);
}

/* folder/missed-PID-NUMBER.json */
static bool name_missed(const server_dumps *d, uint64_t number, char out[SERVER_DUMP_PATH])
{
    int n = snprintf(out, SERVER_DUMP_PATH, "%s/missed-%ld-%llu.json", d->folder, (long)getpid(),
                     (unsigned long long)number);
    return n > 0 && n < SERVER_DUMP_PATH;
}

static bool begin_missed(server_dumps *d, server_record *r)
{
    char list[32];
    dump *p = may_dump(d, r) ? vt_calloc(1, sizeof *p) : NULL;
    if (!p)
        return false;
    server_slo_list(r->missed, list);
    p->of = d;
    p->story = r->generation->part[0].id;
    snprintf(p->why, sizeof p->why, "request %.40s missed %s, ", r->note->id, list);
    if (!name_missed(d, d->n + 1, p->path) ||
        (d->n >= SERVER_DUMPS && !name_missed(d, d->n + 1 - SERVER_DUMPS, p->oldest))) {
        free(p);
        return false;
    }
    memcpy(r->dump, p->path, sizeof r->dump);
    if (!begin(p)) {
        r->dump[0] = '\0';
        return false;
    }
    d->n++;
    d->begun_ns = vt_now_ns();
    return true;
}

void server_dumps_judge(server_dumps *d, server_record *r)
{
    if (!d->has_slo || r->generation->n_submitted == 0)
        return;
    r->missed = find_missed(&d->slo, r);
    for (int i = 0; i < SERVER_SLOS; i++)
        d->missed[i] += r->missed >> i & 1;
    if (r->missed && !begin_missed(d, r))
        d->skipped++;
}
