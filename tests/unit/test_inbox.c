/* The inbox: what it joins is what callbacks told one by one; it may be freed before its requests
 * have ended; refused requests leave nothing behind. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/tiny_model.h"
#include "vitrine.h"

static vt_model *model;
static vt_engine *engine;

static int set_up(void **state)
{
    (void)state;
    vt_options *o;
    vt_err err;
    model = tiny_model("llama");
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "device", "cpu", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "threads", "1", NULL), VT_OK);
    if (vt_engine_new(model, o, &engine, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_options_free(o);
    assert_int_equal(vt_engine_start(engine, NULL), VT_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vt_engine_free(engine);
    vt_model_free(model);
    return 0;
}

enum { MOST = 64 };
static const int32_t prompt[] = {5, 9, 17, 3, 28, 40};

static vt_request_params request_for_tests(int32_t tokens)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = 6;
    p.max_tokens = tokens;
    p.ignore_eos = true;
    p.temperature = 1;
    p.has_seed = true;
    p.seed = 7;
    return p;
}

/* A completion as it was told, by callbacks or by an inbox. */
typedef struct told {
    int32_t token[MOST], n;
    float logprob[MOST], top[MOST][2];
    char text[4096];
    size_t text_len;
    vt_finish finish;
    int32_t completion_tokens, n_events, n_scores;
    float score[MOST];
} told;

static void tell(told *t, const vt_event *e)
{
    t->n_events++;
    bool scores = e->n_tokens > 0 && e->completion_tokens == 0;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        if (scores) {
            t->score[t->n_scores++] = e->logprobs[i].logprob;
            continue;
        }
        t->token[t->n] = e->tokens[i];
        if (e->logprobs) {
            assert_int_equal(e->logprobs[i].id, e->tokens[i]);
            t->logprob[t->n] = e->logprobs[i].logprob;
            assert_int_equal(e->n_top, 2);
            for (int k = 0; k < 2; k++)
                t->top[t->n][k] = e->top_logprobs[i * 2 + k].logprob;
        }
        t->n++;
    }
    if (e->text_len)
        memcpy(t->text + t->text_len, e->text, e->text_len);
    t->text_len += e->text_len;
    t->finish = e->finish;
    t->completion_tokens = e->completion_tokens;
}

typedef struct listener {
    told told[4];
    int32_t n, n_ended;
    pthread_mutex_t lock;
    pthread_cond_t over;
} listener;

static void on_event(void *user, const vt_event *e)
{
    listener *l = user;
    tell(&l->told[e->sample], e);
    pthread_mutex_lock(&l->lock);
    if (e->finish != VT_FINISH_NONE && ++l->n_ended == l->n)
        pthread_cond_signal(&l->over);
    pthread_mutex_unlock(&l->lock);
}

/* The same request by callbacks. */
static void listen_to(vt_request_params p, listener *l)
{
    memset(l->told, 0, sizeof l->told);
    l->n = p.n;
    l->n_ended = 0;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->over, NULL);
    p.callback = on_event;
    p.user = l;
    vt_err err;
    if (vt_engine_submit(engine, &p, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    pthread_mutex_lock(&l->lock);
    while (l->n_ended < l->n)
        pthread_cond_wait(&l->over, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void same(const told *a, const told *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof *a->token);
    assert_int_equal(a->text_len, b->text_len);
    assert_memory_equal(a->text, b->text, a->text_len);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->completion_tokens, b->completion_tokens);
    assert_memory_equal(a->logprob, b->logprob, (size_t)a->n * sizeof *a->logprob);
    assert_memory_equal(a->top, b->top, (size_t)a->n * sizeof *a->top);
    assert_int_equal(a->n_scores, b->n_scores);
    assert_memory_equal(a->score, b->score, (size_t)a->n_scores * sizeof *a->score);
}

static void test_take_when_pieces_or_whole_then_as_callbacks_told(void **state)
{
    (void)state;
    vt_request_params p = request_for_tests(20);
    p.n = 3;
    p.logprobs = 2;
    p.prompt_logprobs = true;
    static listener expected;
    listen_to(p, &expected);
    for (int whole = 0; whole < 2; whole++) {
        static told got[4];
        memset(got, 0, sizeof got);
        vt_inbox *in;
        vt_request_id id;
        const vt_event *e;
        assert_int_equal(vt_inbox_new(whole, &in, NULL), VT_OK);
        assert_int_equal(vt_inbox_submit(in, engine, &p, &id, NULL), VT_OK);
        while (vt_inbox_take(in, -1, &e, NULL) == VT_OK && e) {
            assert_true(e->request == id && e->sample >= 0 && e->sample < 3);
            tell(&got[e->sample], e);
        }
        for (int i = 0; i < 3; i++) {
            same(&expected.told[i], &got[i]);
            if (whole) /* scores and completion */
                assert_int_equal(got[i].n_events, got[i].n_scores > 0 ? 2 : 1);
        }
        assert_int_equal(vt_inbox_take(in, -1, &e, NULL), VT_OK);
        assert_null(e); /* all was told: there is nothing to wait for */
        vt_inbox_free(in);
    }
    assert_int_equal(expected.told[0].n, 20);
    assert_int_equal(expected.told[0].n_scores, 5);
}

static void test_take_when_many_requests_share_it_then_each_is_told(void **state)
{
    (void)state;
    vt_inbox *in;
    vt_request_id id[8];
    const vt_event *e;
    int32_t tokens[8] = {0};
    assert_int_equal(vt_inbox_new(false, &in, NULL), VT_OK);
    for (int i = 0; i < 8; i++) {
        vt_request_params p = request_for_tests(3 + i);
        p.seed = (uint64_t)i;
        assert_int_equal(vt_inbox_submit(in, engine, &p, &id[i], NULL), VT_OK);
    }
    while (vt_inbox_take(in, -1, &e, NULL) == VT_OK && e)
        for (int i = 0; i < 8; i++)
            if (id[i] == e->request)
                tokens[i] += e->n_tokens;
    for (int i = 0; i < 8; i++)
        assert_int_equal(tokens[i], 3 + i);
    vt_inbox_free(in);
}

static void test_fd_when_asked_late_then_readable_while_there_is_news(void **state)
{
    (void)state;
    vt_inbox *in;
    vt_request_params p = request_for_tests(2);
    const vt_event *e;
    int fd;
    assert_int_equal(vt_inbox_new(true, &in, NULL), VT_OK);
    assert_int_equal(vt_inbox_submit(in, engine, &p, NULL, NULL), VT_OK);
    assert_int_equal(vt_inbox_fd(in, &fd, NULL), VT_OK);
    struct pollfd look = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&look, 1, -1), 1);
    assert_int_equal(vt_inbox_take(in, 0, &e, NULL), VT_OK);
    assert_non_null(e);
    assert_int_equal(e->n_tokens, 2);
    assert_int_equal(poll(&look, 1, 0), 0);
    vt_inbox_free(in);
}

static void test_free_when_requests_are_open_then_they_end_unheard(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        vt_inbox *in;
        vt_request_params p = request_for_tests(MOST);
        p.n = 2;
        vt_request_id id;
        const vt_event *e;
        assert_int_equal(vt_inbox_new(i % 2, &in, NULL), VT_OK);
        assert_int_equal(vt_inbox_submit(in, engine, &p, &id, NULL), VT_OK);
        if (i % 3 == 0)
            assert_int_equal(vt_inbox_take(in, i % 2 ? 1 : -1, &e, NULL), VT_OK);
        if (i % 5 > 0)
            vt_engine_abort(engine, id);
        vt_inbox_free(in);
    }
    static listener after;
    listen_to(request_for_tests(4), &after); /* the engine goes on */
    assert_int_equal(after.told[0].n, 4);
}

static void test_submit_when_refused_then_the_inbox_waits_for_nothing(void **state)
{
    (void)state;
    vt_inbox *in;
    vt_err err;
    const vt_event *e;
    assert_int_equal(vt_inbox_new(false, &in, NULL), VT_OK);
    vt_request_params p = request_for_tests(2);
    p.n = 129;
    assert_int_equal(vt_inbox_submit(in, engine, &p, NULL, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "n is 129"));
    p = request_for_tests(2);
    p.temperature = -1;
    assert_int_equal(vt_inbox_submit(in, engine, &p, NULL, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "temperature"));
    p = request_for_tests(2);
    p.callback = on_event;
    assert_int_equal(vt_inbox_submit(in, engine, &p, NULL, &err), VT_ERR_USAGE);
    assert_string_equal(err.message, "a request to an inbox has no callback of its own");
    p = request_for_tests(2);
    assert_int_equal(vt_inbox_submit(in, NULL, &p, NULL, &err), VT_ERR_USAGE);
    assert_int_equal(vt_inbox_submit(NULL, engine, &p, NULL, &err), VT_ERR_USAGE);
    assert_int_equal(vt_inbox_take(in, -1, &e, NULL), VT_OK);
    assert_null(e);
    assert_int_equal(vt_inbox_take(NULL, -1, &e, NULL), VT_ERR_USAGE);
    vt_inbox_free(in);
    vt_inbox_free(NULL);
}

static void test_struct_size_when_asked_by_name_then_the_headers(void **state)
{
    (void)state;
    assert_int_equal(vt_struct_size("vt_event"), sizeof(vt_event));
    assert_int_equal(vt_struct_size("vt_request_params"), sizeof(vt_request_params));
    assert_int_equal(vt_struct_size("vt_stats"), sizeof(vt_stats));
    assert_int_equal(vt_struct_size("vt_engine"), 0);
    assert_int_equal(vt_struct_size(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_when_pieces_or_whole_then_as_callbacks_told),
        cmocka_unit_test(test_take_when_many_requests_share_it_then_each_is_told),
        cmocka_unit_test(test_fd_when_asked_late_then_readable_while_there_is_news),
        cmocka_unit_test(test_free_when_requests_are_open_then_they_end_unheard),
        cmocka_unit_test(test_submit_when_refused_then_the_inbox_waits_for_nothing),
        cmocka_unit_test(test_struct_size_when_asked_by_name_then_the_headers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
