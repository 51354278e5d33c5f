/* A server on the fake device, whose steps wait until the test lets them go: clients that leave at
 * every stage of a request. After each the pages are back within one step. */
#include "engine_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/options.h"
#include "model/model.h"
#include "server/serve.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum { VOCAB = 512, CONTEXT = 512, BUDGET = 64 };

/* A template that takes a while: the client leaves meanwhile. */
static const char slow[] =
    "{% for i in range(1000) %}{% for j in range(800) %}{% endfor %}{% endfor %}"
    "{% for m in messages %}{{ m.content }}{% endfor %}";

typedef struct place {
    fixture f;
    vt_model model;
    vt_options *options;
    pthread_t thread;
    int port;
    sem_t ready, entered, allowed;
    int32_t n_entered;      /* steps that have begun; of the engine's thread, atomic */
    int32_t most_sequences; /* in one step */
    vt_status ended;
} place;

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        assert_int_equal(errno, EINTR);
}

/* Every step waits here until the test lets it go. */
static int64_t gate(void *user, const vt_step *step)
{
    place *p = user;
    if (step->batch.n_seqs > p->most_sequences)
        p->most_sequences = step->batch.n_seqs;
    __atomic_add_fetch(&p->n_entered, 1, __ATOMIC_SEQ_CST);
    sem_post(&p->entered);
    wait_for(&p->allowed);
    return 1000;
}

static void say_ready(void *user, const char *line)
{
    place *p = user;
    const char *at = strstr(line, "http://127.0.0.1:");
    if (at && p->port == 0) { /* the lines after the first one name the address again */
        p->port = (int)strtol(at + 17, NULL, 10);
        sem_post(&p->ready);
    }
}

static void *serve(void *arg)
{
    place *p = arg;
    vt_err err;
    vt_serve_words words = {.say = say_ready, .user = p, .load_s = 0};
    p->ended = vt_serve(&p->model, p->f.engine, p->options, &(server_key_sets){0}, &words, &err);
    if (p->ended != VT_OK) { /* whoever waits for it would wait for ever */
        fprintf(stderr, "Error: the server ended: %s\n", err.message);
        abort();
    }
    return NULL;
}

static place *open_place(const char *template, int32_t max_seqs)
{
    place *p = calloc(1, sizeof *p);
    vt_err err;
    fixture_defaults(&p->f);
    p->f.config.sched.limits.max_seqs = max_seqs;
    p->f.config.sched.limits.max_tokens = BUDGET;
    p->f.config.request.vocab = VOCAB;
    p->f.device.cost_ns = gate;
    p->f.device.user = p;
    p->model = (vt_model){.name = (char *)(uintptr_t) "tiny", .bos = -1};
    p->model.arch.vocab = VOCAB;
    p->model.arch.max_context = CONTEXT;
    assert_int_equal(vt_tokenizer_synthetic(VOCAB, &p->model.tokenizer, NULL), VT_OK);
    if (vt_template_parse("t", template, strlen(template), &p->model.chat_template, &err) != VT_OK)
        fail_msg("%s", err.message);
    p->f.config.request.tokenizer = p->model.tokenizer;
    fixture_open(&p->f);
    assert_int_equal(vt_options_new(&p->options, &err), VT_OK);
    vt_options_open_to(p->options, VT_FOR_SERVE);
    assert_int_equal(
        vt_options_assign(p->options, vt_option_find("port", VT_FOR_SERVE), "0", "the test", &err),
        VT_OK);
    sem_init(&p->ready, 0, 0);
    sem_init(&p->entered, 0, 0);
    sem_init(&p->allowed, 0, 0);
    pthread_create(&p->thread, NULL, serve, p);
    wait_for(&p->ready);
    return p;
}

static void open_gate(place *p)
{
    for (int i = 0; i < 100000; i++)
        sem_post(&p->allowed);
}

static vt_stats stats_of(place *p)
{
    vt_stats st;
    assert_int_equal(vt_engine_get_stats(p->f.engine, &st, NULL), VT_OK);
    return st;
}

/* When nothing runs any more. */
static vt_stats stats_at_rest(place *p)
{
    vt_stats st = stats_of(p);
    for (int i = 0; i < 100000 && (st.running || st.queued || st.pages_used); i++) {
        usleep(1000);
        st = stats_of(p);
    }
    assert_int_equal(st.running + st.queued + st.pages_used, 0);
    return st;
}

/* Ends the server; every page is back where it belongs. */
static void close_place(place *p)
{
    open_gate(p);
    kill(getpid(), SIGTERM);
    pthread_join(p->thread, NULL);
    vt_stats st = stats_of(p);
    assert_int_equal(p->ended, VT_OK);
    assert_int_equal(st.running, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.pages_used, 0);
    assert_int_equal(st.pages_free + st.pages_cached, st.pages);
    assert_string_equal(vt_fake_violation(p->f.executor), "");
    fixture_close(&p->f);
    vt_options_free(p->options);
    vt_template_free(p->model.chat_template);
    vt_tokenizer_free(p->model.tokenizer);
    free(p);
}

/* ---- clients ---- */

static int dial(const place *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)p->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static int post(const place *p, const char *path, const char *body)
{
    char head[256];
    int fd = dial(p);
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", path,
                     strlen(body));
    assert_int_equal(send(fd, head, (size_t)n, MSG_NOSIGNAL), n);
    assert_int_equal(send(fd, body, strlen(body), MSG_NOSIGNAL), (ssize_t)strlen(body));
    return fd;
}

/* Reads until `what` has come, or `other` if that is not NULL. Returns true if it was `what`. */
static bool hear_either(int fd, const char *what, const char *other)
{
    char text[65536];
    size_t n = 0;
    while (n + 1 < sizeof text) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, what))
            return true;
        if (other && strstr(text, other))
            return false;
    }
    fail_msg("'%s' did not come", what);
    return false;
}

static void hear_until(int fd, const char *what) { hear_either(fd, what, NULL); }

/* Returns when the loop has dealt with everything that came before. */
static void ask_something(const place *p)
{
    static const char get[] =
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (int i = 0; i < 2; i++) {
        int fd = dial(p);
        assert_int_equal(send(fd, get, sizeof get - 1, MSG_NOSIGNAL), (ssize_t)sizeof get - 1);
        hear_until(fd, "max_model_len");
        close(fd);
    }
}

/* The connection ends with a reset, and the loop has noticed. */
static void leave(const place *p, int fd)
{
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    ask_something(p);
}

/* Lets steps go. `begun` steps had begun when the client left: at most one more follows, which was
 * planned while the last one ran. */
static void check_within_one_step(place *p, int32_t begun)
{
    open_gate(p);
    vt_stats st = stats_at_rest(p);
    assert_int_equal(st.finished_abort, 1);
    assert_true(__atomic_load_n(&p->n_entered, __ATOMIC_SEQ_CST) <= begun + 1);
}

/* A prompt of n tokens: "[7,7,7]". */
static char *ids(int n)
{
    char *text = malloc(2 * (size_t)n + 2), *at = text;
    for (int i = 0; i < n; i++) {
        *at++ = i ? ',' : '[';
        *at++ = '7';
    }
    *at++ = ']';
    *at = '\0';
    return text;
}

static int ask_for(const place *p, int n_prompt, int max_tokens, bool stream)
{
    char *prompt = ids(n_prompt), body[4096];
    snprintf(body, sizeof body,
             "{\"prompt\": %s, \"max_tokens\": %d, \"ignore_eos\": true, \"stream\": %s}", prompt,
             max_tokens, stream ? "true" : "false");
    free(prompt);
    return post(p, "/v1/completions", body);
}

/* ---- the stages ---- */

static void test_serve_client_that_leaves_while_its_prompt_is_computed(void **state)
{
    (void)state;
    place *p = open_place("x", 4);
    int fd = ask_for(p, 6 * BUDGET, 50, false);
    wait_for(&p->entered); /* the first of six chunks */
    leave(p, fd);
    check_within_one_step(p, __atomic_load_n(&p->n_entered, __ATOMIC_SEQ_CST));
    close_place(p);
}

static void test_serve_client_that_leaves_while_tokens_are_made(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        place *p = open_place("x", 4);
        int fd = ask_for(p, 5, 400, stream);
        for (int i = 0; i < 8; i++) {
            wait_for(&p->entered);
            if (i < 7)
                sem_post(&p->allowed);
        }
        if (stream)
            hear_until(fd, "data: ");
        leave(p, fd);
        check_within_one_step(p, __atomic_load_n(&p->n_entered, __ATOMIC_SEQ_CST));
        close_place(p);
    }
}

static void test_serve_client_that_leaves_while_it_is_queued(void **state)
{
    (void)state;
    place *p = open_place("x", 1);
    int first = ask_for(p, 5, 20, false);
    wait_for(&p->entered);
    int second = ask_for(p, 5, 20, false);
    while (stats_of(p).requests < 2)
        usleep(1000);
    leave(p, second);
    open_gate(p);
    hear_until(first, "\"completion_tokens\":20");
    vt_stats st = stats_at_rest(p);
    assert_int_equal(st.finished_abort, 1);
    assert_int_equal(st.finished_length, 1);
    assert_int_equal(st.output_tokens, 20); /* nothing was computed for the second one */
    assert_int_equal(p->most_sequences, 1);
    close(first);
    close_place(p);
}

static void test_serve_client_that_leaves_while_its_template_is_rendered(void **state)
{
    (void)state;
    place *p = open_place(slow, 4);
    int fd = post(p, "/v1/chat/completions",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}");
    int other = post(p, "/tokenize", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}");
    usleep(2000); /* it may have begun, or not: nothing must come of it in either case */
    leave(p, fd);
    leave(p, other);
    close_place(p);
}

static void test_serve_template_that_takes_a_while_is_answered(void **state)
{
    (void)state;
    place *p = open_place(slow, 4);
    open_gate(p);
    int fd = post(p, "/v1/chat/completions",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 2, "
                  "\"ignore_eos\": true}");
    hear_until(fd, "\"completion_tokens\":2");
    close(fd);
    close_place(p);
}

/* A burst of clients that leave at whatever stage they have reached. */
static void test_serve_many_clients_that_leave(void **state)
{
    (void)state;
    place *p = open_place("x", 4);
    open_gate(p);
    for (int i = 0; i < 400; i++) {
        int fd = ask_for(p, 1 + i % 100, 1 + i % 300, i % 2);
        struct linger now = {1, 0};
        if (i % 3)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        if (i % 5 == 0)
            usleep(1000);
        open_gate(p);
        close(fd);
    }
    for (bool answered = false; !answered;) {
        int fd = ask_for(p, 9, 3, false);
        /* the queue may still be full of those whose end the server has not seen */
        answered = hear_either(fd, "\"completion_tokens\":3", "option max-queued");
        close(fd);
    }
    close_place(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serve_client_that_leaves_while_its_prompt_is_computed),
        cmocka_unit_test(test_serve_client_that_leaves_while_tokens_are_made),
        cmocka_unit_test(test_serve_client_that_leaves_while_it_is_queued),
        cmocka_unit_test(test_serve_client_that_leaves_while_its_template_is_rendered),
        cmocka_unit_test(test_serve_template_that_takes_a_while_is_answered),
        cmocka_unit_test(test_serve_many_clients_that_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
