/* The rules by which a server writes stories of slow requests into files (watch/dumps.h), with a
 * real engine, a loop and its helper thread, and requests that are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "server/watch/log.h"
#include "server/watch/stories.h"

typedef struct place {
    vt_server s;
    vt_options *options;
    vt_model *model;
    char folder[64];
    server_note note;
    server_part part;
    generation g;
} place;

static void ok(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

static void set(place *p, const char *key, const char *value)
{
    vt_err err;
    ok(vt_options_assign(p->options, vt_option_find(key, VT_FOR_SERVE), value, "the test", &err),
       &err);
}

static place *open_place(const char *slo)
{
    place *p = calloc(1, sizeof *p);
    vt_server *s = &p->s;
    vt_web_options w;
    vt_err err;
    snprintf(p->folder, sizeof p->folder, "/tmp/vitrine-dumps-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    ok(vt_options_new(&p->options, &err), &err);
    vt_options_open_to(p->options, VT_FOR_SERVE);
    set(p, "model", "dummy:smollm2-135m");
    set(p, "device", "cpu");
    set(p, "threads", "1");
    set(p, "max-context", "64");
    set(p, "kv-memory", "8M");
    set(p, "story-dir", p->folder);
    if (slo)
        set(p, "slo", slo);
    s->options = p->options;
    ok(vt_model_open(p->options, &p->model, &err), &err);
    ok(vt_engine_new(p->model, p->options, &s->engine, &err), &err);
    vt_web_options_init(&w);
    w.handler = server_route_request; /* never asked */
    ok(vt_web_new(&w, &s->web, &err), &err);
    ok(server_work_new(s->web, &(server_work_limits){1, 4, 1 << 20}, &s->work, &err), &err);
    ok(server_log_new(open("/dev/null", O_WRONLY | O_CLOEXEC), &s->log, &err), &err);
    s->stories = calloc(1, sizeof *s->stories);
    ok(server_dumps_new(s, &s->dumps, &err), &err);
    snprintf(p->note.id, sizeof p->note.id, "some-request");
    p->g = (generation){.server = s, .note = &p->note, .part = &p->part, .n_submitted = 1};
    return p;
}

static int32_t count_files(const place *p, const char *prefix)
{
    int32_t n = 0;
    DIR *d = opendir(p->folder);
    for (struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(d);
    return n;
}

static void close_place(place *p)
{
    vt_server *s = &p->s;
    char command[128];
    server_work_free(s->work);
    vt_web_free(s->web);
    server_log_free(s->log);
    vt_engine_free(s->engine);
    vt_model_free(p->model);
    vt_options_free(p->options);
    free(s->stories);
    free(s->dumps);
    snprintf(command, sizeof command, "rm -r %s", p->folder);
    assert_int_equal(system(command), 0);
    free(p);
}

/* A request of `total_ms` that begins now; all its time comes after. */
static server_record judge(place *p, int64_t total_ms)
{
    int64_t now = vt_now_ns();
    server_record r = {.note = &p->note,
                       .generation = &p->g,
                       .began_ns = now,
                       .end_ns = now + total_ms * 1000000,
                       .queue_ns = -1,
                       .ttft_ns = -1};
    server_dumps_judge(p->s.dumps, &r);
    return r;
}

/* The helper has written what was begun, and the loop knows it. A loop runs once in its life, so
 * the helper's post is taken by ending it. */
static void stop_when_written(void *arg)
{
    const place *p = arg;
    if (!p->s.stories->building)
        vt_web_stop(p->s.web);
}

static void test_gap_of_one_completion_is_not_that_of_another(void **state)
{
    (void)state;
    place *p = open_place("tpot=10");
    generation_made made[2] = {{.first_ns = 1, .last_ns = 30000001, .n_later = 3},
                               {.first_ns = 1, .last_ns = 22000001, .n_later = 2}};
    p->g.made = made;
    p->g.reply.n = 2;
    assert_int_equal(judge(p, 1).missed, 1u << SERVER_SLO_TPOT); /* 11 ms */
    made[1].n_later = 3;
    assert_int_equal(judge(p, 1).missed, 0);
    close_place(p);
}

static void test_request_without_a_token_has_waited_for_it_to_its_end(void **state)
{
    (void)state;
    place *p = open_place("ttft=10");
    assert_int_equal(judge(p, 9).missed, 0);
    assert_int_equal(judge(p, 11).missed, 1u << SERVER_SLO_TTFT);
    p->g.n_submitted = 0; /* it never got into the engine */
    assert_int_equal(judge(p, 11).missed, 0);
    close_place(p);
}

static void test_server_without_limits_writes_nothing(void **state)
{
    (void)state;
    place *p = open_place(NULL);
    server_record r = judge(p, 1 << 20);
    assert_true(r.missed == 0 && r.dump[0] == '\0');
    assert_int_equal(p->s.dumps->skipped, 0);
    close_place(p);
}

/* What a loop does every time that it finds a dump written: begins the next, as if enough time had
 * gone by. */
typedef struct series {
    place *p;
    int32_t left;
    server_record last;
} series;

static void write_next(void *arg)
{
    series *all = arg;
    server_dumps *d = all->p->s.dumps;
    if (all->p->s.stories->building)
        return;
    if (all->left-- == 0) {
        vt_web_stop(all->p->s.web);
        return;
    }
    d->begun_ns = INT64_MIN / 2;
    all->last = judge(all->p, 11);
    assert_string_not_equal(all->last.dump, "");
}

static void test_newest_files_are_kept(void **state)
{
    (void)state;
    vt_err err;
    place *p = open_place("e2e=10");
    series all = {.p = p, .left = SERVER_DUMPS + 3};
    vt_web_timer *t = vt_web_timer_new(p->s.web, 0.001, false, write_next, &all);
    ok(vt_web_run(p->s.web, &err), &err);
    vt_web_timer_free(t);
    assert_int_equal(p->s.dumps->written, SERVER_DUMPS + 3);
    assert_int_equal(count_files(p, "missed-"), SERVER_DUMPS);
    assert_int_equal(access(all.last.dump, R_OK), 0);
    close_place(p);
}

static void test_too_soon_or_begun_before_the_last_story_is_skipped(void **state)
{
    (void)state;
    vt_err err;
    place *p = open_place("e2e=10");
    server_dumps *d = p->s.dumps;
    assert_string_not_equal(judge(p, 11).dump, "");
    assert_string_equal(judge(p, 11).dump, ""); /* the first is being written */
    server_dumps_ask(d);                        /* waits for it, and is not lost */
    assert_true(d->asked);
    vt_web_timer *t = vt_web_timer_new(p->s.web, 0.001, false, stop_when_written, p);
    ok(vt_web_run(p->s.web, &err), &err);
    vt_web_timer_free(t);
    assert_int_equal(d->written, 2);
    assert_int_equal(count_files(p, "story-"), 1);
    assert_string_equal(judge(p, 11).dump, ""); /* within the gap */
    d->begun_ns = INT64_MIN / 2;
    int64_t ended_ns = d->ended_ns;
    d->ended_ns = INT64_MAX; /* the request began before that */
    assert_string_equal(judge(p, 11).dump, "");
    assert_int_equal(d->skipped, 3);
    assert_int_equal(d->missed[SERVER_SLO_E2E], 4);
    d->ended_ns = ended_ns;
    close_place(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gap_of_one_completion_is_not_that_of_another),
        cmocka_unit_test(test_request_without_a_token_has_waited_for_it_to_its_end),
        cmocka_unit_test(test_server_without_limits_writes_nothing),
        cmocka_unit_test(test_newest_files_are_kept),
        cmocka_unit_test(test_too_soon_or_begun_before_the_last_story_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
