/* make build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE -Iinclude bench/micro/ttft.c \
 *     build/release/libvitrine_internal.a -ljansson -lm -lpthread -o build/bench_ttft &&
 *     build/bench_ttft [MODEL]
 *
 * What a prefix hit saves: time to the first token of a prompt of a prefix and 16 tokens of its
 * own, with the prefix not cached (cold) and cached (warm). Best of three, each with a new random
 * prefix. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vitrine.h"

enum { TAIL = 16, ROUNDS = 3 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void on_event(void *user, const vt_event *e)
{
    double *first = user;
    if (e->n_tokens > 0 && *first == 0)
        *first = now_ms();
}

static void die(const vt_err *err)
{
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static double ttft_ms(vt_engine *e, int32_t *prompt, int32_t n)
{
    vt_err err;
    vt_request_params p;
    vt_request_id id;
    double first = 0, begin = now_ms();
    bool idle = false;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = 1;
    p.callback = on_event;
    p.user = &first;
    if (vt_engine_submit(e, &p, &id, &err) != VT_OK)
        die(&err);
    while (!idle)
        if (vt_engine_step(e, &idle, &err) != VT_OK)
            die(&err);
    return first - begin;
}

int main(int argc, char **argv)
{
    static const int32_t lengths[] = {512, 2048, 8000};
    vt_err err;
    vt_options *o;
    vt_model *m;
    vt_engine *e;
    if (vt_options_new(&o, &err) != VT_OK || vt_options_set(o, "device", "cpu", &err) != VT_OK ||
        (argc > 1 && vt_options_set(o, "model", argv[1], &err) != VT_OK) ||
        vt_model_open(o, &m, &err) != VT_OK || vt_engine_new(m, o, &e, &err) != VT_OK)
        die(&err);
    int32_t *prompt = calloc(8000 + TAIL, sizeof *prompt), vocab = vt_model_vocab_size(m);
    srandom(1);
    ttft_ms(e, prompt, TAIL);
    for (int i = 0; i < 3; i++) {
        double cold = 1e30, warm = 1e30;
        for (int round = 0; round < ROUNDS; round++) {
            for (int32_t k = 0; k < lengths[i] + TAIL; k++)
                prompt[k] = (int32_t)(random() % vocab);
            double c = ttft_ms(e, prompt, lengths[i] + TAIL);
            for (int32_t k = lengths[i]; k < lengths[i] + TAIL; k++)
                prompt[k] = (int32_t)(random() % vocab);
            double w = ttft_ms(e, prompt, lengths[i] + TAIL);
            cold = c < cold ? c : cold;
            warm = w < warm ? w : warm;
        }
        printf("prefix of %4d tokens: first token after %8.1f ms cold, %6.1f ms warm, %5.1f times "
               "sooner\n",
               lengths[i], cold, warm, cold / warm);
    }
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
    return 0;
}
