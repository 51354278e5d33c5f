/* make build/release/libserver.a build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE \
 *   -Iinclude -Isrc bench/micro/http.c build/release/libserver.a \
 *   build/release/libvitrine_internal.a -ljansson -levent_openssl -levent_core -lssl -lcrypto -lm \
 *   -lpthread -o build/bench_http && build/bench_http
 *
 * The HTTP reader alone, and the web server over loopback: requests and pieces of streams for each
 * second of CPU time that the loop's thread used, so that the client (another thread) and other
 * programs on the machine do not count. Best of several rounds. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/http/web.h"

enum { ROUNDS = 5, CLIENTS = 32, REQUESTS = 20000, PIECES = 200000, MANY = 1000 };

static const char kGet[] =
    "POST /v1/chat/completions HTTP/1.1\r\n"
    "Host: 127.0.0.1:8000\r\n"
    "Accept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\n"
    "Accept: application/json\r\n"
    "Content-Type: application/json\r\n"
    "User-Agent: OpenAI/Python 1.99.0\r\n"
    "X-Stainless-Lang: python\r\n"
    "X-Stainless-OS: Linux\r\n"
    "X-Stainless-Arch: x64\r\n"
    "X-Stainless-Runtime: CPython\r\n"
    "X-Stainless-Runtime-Version: 3.11.2\r\n"
    "Authorization: Bearer sk-none-such-key\r\n"
    "Content-Length: 64\r\n\r\n"
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi there!\"}]}";

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double thread_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the reader ---- */

static void bench_reader(const char *what, const char *bytes, size_t len, int times)
{
    vt_web_options o;
    vt_http_reader *r = NULL;
    double best = 1e9;
    vt_web_options_init(&o);
    must(vt_http_reader_new(&o.limits, &r, NULL) == VT_OK, "reader");
    for (int round = 0; round < ROUNDS; round++) {
        double begin = thread_cpu_s();
        for (int i = 0; i < times; i++) {
            size_t used;
            must(vt_http_reader_feed(r, bytes, len, &used) == VT_HTTP_DONE, "request");
            vt_http_reader_next(r);
        }
        double took = thread_cpu_s() - begin;
        best = took < best ? took : best;
    }
    printf("reader, %-28s %8.0f ns a request, %7.0f MB/s\n", what, 1e9 * best / times,
           1e-6 * (double)len * times / best);
    vt_http_reader_free(r);
}

/* ---- the server ---- */

typedef struct site {
    vt_web *web;
    int port;
    sem_t done;
    double cpu_s;
    vt_exchange *stream;
} site;

static void handle(void *user, vt_exchange *x)
{
    site *s = user;
    const vt_http_request *q = vt_web_request(x);
    if (q->method[0] == 'G') {
        s->stream = x;
        vt_web_stream(x, 200, "text/event-stream");
    } else {
        vt_web_reply(x, 200, "application/json", q->body, q->body_len);
    }
}

static void note_cpu(void *arg)
{
    site *s = arg;
    s->cpu_s = thread_cpu_s();
    sem_post(&s->done);
}

static double loop_cpu_s(site *s)
{
    must(vt_web_post(s->web, note_cpu, s), "post");
    while (sem_wait(&s->done) != 0)
        ;
    return s->cpu_s;
}

static void *run(void *arg)
{
    must(vt_web_run(((site *)arg)->web, NULL) == VT_OK, "loop");
    return NULL;
}

static int dial(const site *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    must(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void bench_requests(site *s)
{
    int fd[CLIENTS];
    char answer[4096];
    double best = 1e9;
    for (int i = 0; i < CLIENTS; i++)
        fd[i] = dial(s);
    for (int round = 0; round < ROUNDS; round++) {
        double begin = loop_cpu_s(s);
        for (int k = 0; k < REQUESTS / CLIENTS; k++) {
            for (int i = 0; i < CLIENTS; i++)
                must(send(fd[i], kGet, sizeof kGet - 1, 0) > 0, "send");
            for (int i = 0; i < CLIENTS; i++)
                must(recv(fd[i], answer, sizeof answer, 0) > 0, "recv");
        }
        double took = (loop_cpu_s(s) - begin) / REQUESTS;
        best = took < best ? took : best;
    }
    printf("server, echo, kept connections: %8.2f us of CPU a request, %7.0f requests/s a core\n",
           1e6 * best, 1 / best);
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
}

static void write_pieces(void *arg)
{
    site *s = arg;
    static const char piece[] =
        "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"choices\":"
        "[{\"index\":0,\"text\":\" the\",\"finish_reason\":null}]}\n\n";
    for (int i = 0; i < 64; i++)
        vt_web_write(s->stream, piece, sizeof piece - 1);
    sem_post(&s->done);
}

static void *swallow(void *arg)
{
    static char bytes[1 << 20];
    while (recv(*(int *)arg, bytes, sizeof bytes, 0) > 0)
        ;
    return NULL;
}

static void bench_stream(site *s)
{
    int fd = dial(s);
    pthread_t reader;
    double best = 1e9;
    must(send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, 0) == 27, "send");
    pthread_create(&reader, NULL, swallow, &fd);
    do
        loop_cpu_s(s);
    while (!s->stream);
    for (int round = 0; round < ROUNDS; round++) {
        double begin = loop_cpu_s(s);
        for (int i = 0; i < PIECES / 64; i++) {
            must(vt_web_post(s->web, write_pieces, s), "post");
            while (sem_wait(&s->done) != 0)
                ;
        }
        double took = (loop_cpu_s(s) - begin) / (PIECES / 64 * 64);
        best = took < best ? took : best;
    }
    printf("server, pieces of an event stream: %5.2f us of CPU a piece, %8.0f pieces/s a core\n",
           1e6 * best, 1 / best);
    shutdown(fd, SHUT_RDWR);
    pthread_join(reader, NULL);
    close(fd);
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Memory and CPU of connections that are kept and do nothing. */
static void bench_idle(site *s)
{
    static int fd[MANY];
    char answer[4096];
    long before = resident_kb();
    for (int i = 0; i < MANY; i++) {
        fd[i] = dial(s);
        must(send(fd[i], kGet, sizeof kGet - 1, 0) > 0, "send");
        must(recv(fd[i], answer, sizeof answer, 0) > 0, "recv");
    }
    long after = resident_kb();
    double begin = loop_cpu_s(s);
    usleep(2000000);
    printf("server, %d idle connections: %.1f KiB each, %.4f %% of a core\n", MANY,
           (double)(after - before) / MANY, 50 * (loop_cpu_s(s) - begin));
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
}

int main(void)
{
    enum { LARGE = 1 << 20 };
    static char large[LARGE + 200];
    int n = snprintf(large, sizeof large,
                     "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", LARGE);
    memset(large + n, 'x', LARGE);
    bench_reader("head of 13 lines", kGet, sizeof kGet - 1, 200000);
    bench_reader("body of 1 MiB", large, (size_t)n + LARGE, 200);

    site s = {0};
    pthread_t loop;
    vt_web_options o;
    vt_err err;
    vt_web_options_init(&o);
    o.handler = handle;
    o.user = &s;
    o.max_connections = 2 * MANY;
    o.max_unsent = (size_t)1 << 30;
    sem_init(&s.done, 0, 0);
    must(vt_web_new(&o, &s.web, &err) == VT_OK &&
             vt_web_listen(s.web, "127.0.0.1", 0, &s.port, &err) == VT_OK,
         "server");
    pthread_create(&loop, NULL, run, &s);
    bench_requests(&s);
    bench_stream(&s);
    bench_idle(&s);
    vt_web_stop(s.web);
    pthread_join(loop, NULL);
    vt_web_free(s.web);
    return 0;
}
