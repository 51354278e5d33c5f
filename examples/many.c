/* Several prompts at once: the engine's loop runs on a thread of its own, callbacks come from
 * there, and the main thread shows how far loading is and, in the end, what the engine counted.
 *
 *     cc -Iinclude examples/many.c -Lbuild/release -lvitrine -Wl,-rpath,build/release -o many
 *     ./many "Once upon a time" "The capital of France is" "2 + 2 ="
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vitrine.h"

typedef struct answer {
    const char *prompt;
    char text[2048]; /* what fits of it */
    size_t len;
    char error[256]; /* why it failed; "": it did not */
} answer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_ended = PTHREAD_COND_INITIALIZER;
static int n_open; /* answers that have not ended */

static void on_event(void *user, const vt_event *e)
{
    answer *a = user;
    size_t room = sizeof a->text - a->len, n = e->text_len < room ? e->text_len : room;
    if (n > 0)
        memcpy(a->text + a->len, e->text, n);
    a->len += n;
    if (e->finish == VT_FINISH_NONE)
        return;
    if (e->finish == VT_FINISH_ERROR)
        snprintf(a->error, sizeof a->error, "%s", e->error);
    pthread_mutex_lock(&lock);
    n_open--;
    pthread_cond_signal(&one_ended);
    pthread_mutex_unlock(&lock);
}

static bool on_progress(void *user, const vt_progress_info *info)
{
    (void)user;
    fprintf(stderr, "\r%s: %3d %%\033[K", info->stage, (int)(100 * info->done / info->total));
    return true; /* false would cancel */
}

static int fail(const vt_err *err)
{
    fprintf(stderr, "\nmany: %s\n", err->message);
    return 1;
}

static vt_status submit(vt_engine *engine, const vt_model *model, answer *a, vt_err *err)
{
    int32_t *ids;
    size_t n_ids;
    vt_status status = vt_tokenize(model, a->prompt, strlen(a->prompt), VT_TOKENIZE_ADD_BOS, &ids,
                                   &n_ids, err);
    if (status != VT_OK)
        return status;
    vt_request_params request;
    vt_request_init(&request);
    request.prompt = ids;
    request.n_prompt = (int32_t)n_ids;
    request.max_tokens = 32;
    request.min_tokens = 8;
    request.callback = on_event;
    request.user = a;
    pthread_mutex_lock(&lock);
    n_open++; /* before the submit: the callback may come before it returns */
    pthread_mutex_unlock(&lock);
    status = vt_engine_submit(engine, &request, NULL, err);
    vt_free(ids); /* it was copied */
    return status;
}

int main(int argc, char **argv)
{
    vt_err err;
    vt_options *options;
    vt_model *model;
    vt_engine *engine;
    vt_stats stats;
    answer *a = calloc((size_t)argc, sizeof *a);
    if (argc < 2) {
        fprintf(stderr, "usage: %s PROMPT...\n", argv[0]);
        return 2;
    }
    if (!a)
        return 1;
    if (vt_options_new(&options, &err) != VT_OK ||
        vt_options_set_progress(options, on_progress, NULL, &err) != VT_OK ||
        vt_model_open(options, &model, &err) != VT_OK ||
        vt_engine_new(model, options, &engine, &err) != VT_OK ||
        vt_engine_start(engine, &err) != VT_OK)
        return fail(&err);
    fputs("\r\033[K", stderr);

    for (int i = 1; i < argc; i++) {
        a[i].prompt = argv[i];
        if (submit(engine, model, &a[i], &err) != VT_OK)
            return fail(&err);
    }
    pthread_mutex_lock(&lock);
    while (n_open > 0)
        pthread_cond_wait(&one_ended, &lock);
    pthread_mutex_unlock(&lock);
    vt_engine_stop(engine);

    for (int i = 1; i < argc; i++)
        printf("%s%.*s%s\n", a[i].prompt, (int)a[i].len, a[i].text, a[i].error);
    if (vt_engine_get_stats(engine, &stats, &err) != VT_OK)
        return fail(&err);
    fprintf(stderr, "%llu tokens in %llu steps; %d of %d KV pages are cached\n",
            (unsigned long long)stats.output_tokens, (unsigned long long)stats.steps,
            stats.pages_cached, stats.pages);
    vt_engine_free(engine);
    vt_model_free(model);
    vt_options_free(options);
    free(a);
    return 0;
}
