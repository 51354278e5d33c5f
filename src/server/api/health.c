/* /health and /health_generate: is the engine alive?
 *
 * An idle engine makes no steps, so that steps alone prove nothing. It is stuck when a request has
 * been in the engine for a while and no step has ended since then:
 *
 *   submitted ──────────────> now        more than health-timeout, and
 *       last step ──────────> now        more than health-timeout as well
 *
 * /health only looks at these times. /health_generate has one token made, or one vector of an
 * engine that embeds, which proves the whole
 * way from the queue to the device and back; a timer on this thread answers where the engine does
 * not. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/generation.h"
#include "server/api/health.h"

#define HEALTH_GENERATE_S 20.0

bool server_is_stuck(int64_t oldest_ns, int64_t last_step_ns, int64_t now_ns, double limit_s)
{
    int64_t since = last_step_ns > oldest_ns ? last_step_ns : oldest_ns;
    return oldest_ns != 0 && (double)(now_ns - since) * 1e-9 > limit_s;
}

/* When the oldest request that is in the engine was submitted; 0: there is none. */
static int64_t oldest_submission(const vt_server *s)
{
    int64_t oldest = 0;
    for (const generation *g = s->first; g; g = g->next)
        if (g->n_submitted > 0 && (!oldest || g->at.submitted < oldest))
            oldest = g->at.submitted;
    return oldest;
}

static void answer_state(vt_exchange *x, int status, const char *state)
{
    vt_json w;
    if (status == 503)
        vt_web_header(x, "Retry-After", "1");
    vt_json_object(&w);
    vt_json_string(&w, "status", state);
    server_reply_json(x, status, &w);
}

static const char *trouble(const vt_server *s)
{
    vt_engine_stats st;
    if (s->draining)
        return "draining";
    vt_engine_copy_stats(s->engine, &st);
    if (st.lost)
        return "lost";
    bool stuck = server_is_stuck(oldest_submission(s), st.last_step_ns, vt_now_ns(),
                                 vt_options_float(s->options, "health-timeout"));
    return stuck ? "stuck" : NULL;
}

void server_health(vt_server *s, vt_exchange *x)
{
    const char *what = trouble(s);
    answer_state(x, what ? 503 : 200, what ? what : "ok");
}

/* ---- /health_generate ---- */

typedef struct probe {
    generation *g;
    vt_web_timer *timer;
} probe;

/* One token behind one token. */
static void probe_read(generation *g)
{
    vt_openai_request *r = &g->request;
    const vt_model *m = g->server->model;
    int32_t first = vt_model_bos(m) >= 0 ? vt_model_bos(m) : 0;
    vt_arena_init(&r->arena, 0);
    int32_t *ids = vt_arena_alloc(&r->arena, 1, sizeof *ids);
    r->prompt = vt_arena_alloc(&r->arena, 1, sizeof *r->prompt);
    if (!ids || !r->prompt) {
        vt_openai_refuse(&g->error, 500, NULL, "out of memory for a request");
        return;
    }
    ids[0] = first;
    r->prompt[0] = (vt_openai_prompt){.ids = ids, .n = 1};
    r->n_prompts = 1;
    r->n_top = r->n_prompt_top = -1; /* no log-probabilities */
    vt_request_init(&r->p);
    r->p.embed = vt_engine_embeds(g->server->engine);
    r->p.rank = vt_engine_ranks(g->server->engine);
    r->p.max_tokens = 1;
    r->p.ignore_eos = true;
    r->p.priority = INT32_MAX;
    r->p.cache_salt = "health"; /* leaves the prefixes of clients alone */
    r->p.timeout_s = HEALTH_GENERATE_S;
}

static void probe_event(generation *g, int32_t prompt, const vt_event *e)
{
    (void)g;
    (void)prompt;
    (void)e;
}

static void probe_end(generation *g)
{
    bool made = g->request.p.embed ? g->reply.choice[0].vector.len > 0
                                   : g->reply.completion_tokens == 1;
    if (g->error.http || !made)
        answer_state(g->x, 503, "failed");
    else
        answer_state(g->x, 200, "ok");
}

static void probe_forget(generation *g)
{
    probe *p = g->own;
    if (p)
        vt_web_timer_free(p->timer);
    free(p);
}

static const generation_form probe_form = {.name = "health",
                                           .probe = true,
                                           .read = probe_read,
                                           .event = probe_event,
                                           .end = probe_end,
                                           .forget = probe_forget};

static void too_late(void *arg)
{
    probe *p = arg;
    generation *g = p->g;
    vt_exchange *x = g->x;
    if (!x)
        return;
    generation_give_up(g);
    answer_state(x, 503, "stuck");
}

void server_health_generate(vt_server *s, vt_exchange *x)
{
    const char *what = trouble(s);
    if (what) {
        answer_state(x, 503, what);
        return;
    }
    generation *g = generation_start(s, x, &probe_form);
    probe *p = g ? vt_calloc(1, sizeof *p) : NULL;
    if (!p)
        return; /* refused, or without a timer of its own: the request's timeout holds */
    p->g = g;
    p->timer = vt_web_timer_new(s->web, HEALTH_GENERATE_S, true, too_late, p);
    g->own = p;
}
