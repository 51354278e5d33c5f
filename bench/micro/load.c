/* make build/release/libserver.a build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE \
 *   -Iinclude -Isrc bench/micro/load.c build/release/libserver.a \
 *   build/release/libvitrine_internal.a -ljansson -levent_openssl -levent_core -lssl -lcrypto -lm \
 *   -lpthread -o build/bench_load && build/bench_load
 *
 * The load generator against a server that computes nothing and answers at once, on another thread:
 * CPU time of the client's thread for each request, and so how many requests a second one core can
 * send. CPU time, because the server and other programs share the machine. Best of several rounds.
 *
 * With a port as argument it is only that server, for `vitrine bench serve`. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/run.h"
#include "server/http/web.h"

enum { ROUNDS = 5, REQUESTS = 20000, PIECES = 16 };

static const char whole[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"null\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello there!\"},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
    "\"total_tokens\":12}}";
#define PIECE(delta, reason)                                                                     \
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":" \
    "\"null\",\"choices\":[{\"index\":0,\"delta\":{" delta "},\"finish_reason\":" reason "}]}\n\n"
static const char piece[] = PIECE("\"content\":\" word\"", "null");
static const char last[] = PIECE("", "\"stop\"");
static const char usage[] = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
                            "\"created\":1,\"model\":\"null\",\"choices\":[],\"usage\":"
                            "{\"prompt_tokens\":9,\"completion_tokens\":16,\"total_tokens\":25}}"
                            "\n\ndata: [DONE]\n\n";

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

static void handle(void *user, vt_exchange *x)
{
    (void)user;
    const vt_http_request *q = vt_web_request(x);
    static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"null\"}]}";
    if (q->method[0] == 'G') {
        vt_web_reply(x, 200, "application/json", models, sizeof models - 1);
    } else if (!q->body || !strstr(q->body, "\"stream\":true")) {
        vt_web_reply(x, 200, "application/json", whole, sizeof whole - 1);
    } else {
        vt_web_stream(x, 200, "text/event-stream");
        for (int i = 0; i < PIECES; i++)
            vt_web_write(x, piece, sizeof piece - 1);
        vt_web_write(x, last, sizeof last - 1);
        vt_web_write(x, usage, sizeof usage - 1);
        vt_web_end(x);
    }
}

static void *serve(void *web)
{
    must(vt_web_run(web, NULL) == VT_OK, "the server's loop");
    return NULL;
}

static void measure(const vt_load_target *target, const char *what, bool stream, int concurrency,
                    int words)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        vt_load_plan plan = {.seed = 1};
        vt_load_outcome out;
        vt_err err;
        for (int i = 0; i < REQUESTS; i++)
            must(vt_load_plan_add(&plan, words, 16, 1, &err) == VT_OK, "plan");
        vt_load_options o = {.plan = &plan,
                             .target = target,
                             .model = "null",
                             .chat = true,
                             .stream = stream,
                             .temperature = NAN,
                             .concurrency = concurrency,
                             .timeout_s = 60};
        must(vt_load_run(&o, &out, &err) == VT_OK, err.message);
        for (int i = 0; i < REQUESTS; i++)
            must(out.result[i].end == VT_LOAD_OK, out.result[i].why);
        best = out.cpu_s / REQUESTS < best ? out.cpu_s / REQUESTS : best;
        vt_load_outcome_release(&out);
        vt_load_plan_release(&plan);
    }
    printf("%-44s %6.2f us of CPU a request, %7.0f requests/s a core\n", what, 1e6 * best,
           1 / best);
}

int main(int argc, char **argv)
{
    vt_web *web;
    vt_web_options o;
    vt_load_target target;
    vt_err err;
    pthread_t thread;
    char url[64];
    int port = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    vt_web_options_init(&o);
    o.handler = handle;
    o.max_connections = 20000;
    must(vt_web_new(&o, &web, &err) == VT_OK &&
             vt_web_listen(web, "127.0.0.1", port, &port, &err) == VT_OK,
         err.message);
    if (argc > 1) {
        serve(web);
        return 0;
    }
    pthread_create(&thread, NULL, serve, web);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    must(vt_load_target_parse(url, &target, &err) == VT_OK, err.message);
    measure(&target, "whole answers, 64 at once, 16 words", false, 64, 16);
    measure(&target, "streams of 16 pieces, 64 at once, 16 words", true, 64, 16);
    measure(&target, "streams of 16 pieces, 512 at once, 512 words", true, 512, 512);
    vt_web_stop(web);
    pthread_join(thread, NULL);
    vt_web_free(web);
    return 0;
}
