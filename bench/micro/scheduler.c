/* make build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE -Iinclude -Isrc
 * bench/micro/scheduler.c \
 *     build/release/libvitrine_internal.a -ljansson -lm -lpthread -o build/bench_scheduler &&
 *     build/bench_scheduler
 *
 * What a step costs the scheduler: plan and commit, with n sequences decoding at a context, one
 * step in flight as in the overlapped loop. No device and no text. Median and best of the steps;
 * the pages of a step are copied into its batch, so the context counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/scheduler.h"

enum { STEPS = 400, VOCAB = 50000 };

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add(vt_sched *s, const vt_req_limits *lim, int32_t id, int32_t context, bool penalties)
{
    int32_t *prompt = calloc((size_t)context, sizeof *prompt);
    for (int32_t i = 0; i < context; i++)
        prompt[i] = (id * 7919 + i * 31) % VOCAB;
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = context;
    p.max_tokens = 2 * STEPS;
    p.ignore_eos = true;
    p.presence_penalty = penalties;
    vt_req *r;
    vt_err err;
    if (vt_req_new(&p, (vt_request_id)id + 1, 0, lim, &r, &err) != VT_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    vt_sched_add(s, r);
    free(prompt);
}

static void run(int32_t n, int32_t context, int32_t page_size)
{
    int32_t most = context + 3 * STEPS, pages = n * (most / page_size + 1);
    vt_limits lim = {.max_tokens = 1 << 15,
                     .max_seqs = n,
                     .max_rows = n,
                     .max_context = most,
                     .page_size = page_size};
    vt_sched_config c = {.limits = lim, .n_pages = pages, .max_queued = n, .prefix_cache = true};
    vt_req_limits req = {.vocab = VOCAB,
                         .max_context = most,
                         .page_size = page_size,
                         .n_pages = pages,
                         .max_queued = n};
    vt_sched s;
    vt_err err;
    if (vt_sched_init(&s, &c, &err) != VT_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (int32_t i = 0; i < n; i++)
        add(&s, &req, i, context, false);
    int32_t *token = calloc((size_t)n, sizeof *token);
    int64_t took[STEPS];
    vt_plan *flying = NULL;
    for (int32_t measured = 0; measured < STEPS;) {
        int64_t begin = vt_now_ns();
        vt_plan *p = vt_sched_plan(&s, begin);
        int64_t planned = vt_now_ns();
        if (flying) { /* the device answers */
            for (int32_t r = 0; r < flying->step.batch.n_rows; r++)
                token[r] = (int32_t)((flying->step.id * 31 + (uint64_t)r * 17) % VOCAB);
            vt_step_result result = {.id = flying->step.id, .token = token};
            int64_t at = vt_now_ns();
            vt_sched_commit(&s, flying, &result);
            planned += vt_now_ns() - at;
        }
        s.n_out = 0;
        if (p && p->step.batch.n_decode == n)
            took[measured++] = planned - begin;
        flying = p;
    }
    qsort(took, STEPS, sizeof *took, by_value);
    printf("%4d running, context %5d, pages of %2d: median %6.2f us, best %6.2f us a step\n", n,
           context, page_size, (double)took[STEPS / 2] * 1e-3, (double)took[0] * 1e-3);
    free(token);
    vt_sched_release(&s); /* the requests go with the process */
}

int main(void)
{
    static const int32_t contexts[] = {100, 1000, 4000};
    for (int i = 0; i < 3; i++)
        run(256, contexts[i], 16);
    run(256, 4000, 64);
    run(64, 1000, 16);
    return 0;
}
