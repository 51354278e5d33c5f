/* The smallest use of the C API: one prompt, its text as it is made.
 *
 *   cc -Iinclude examples/complete.c -Lbuild/release -lvitrine -Wl,-rpath,build/release -o complete
 *   ./complete "The capital of France is"
 */
#include <stdio.h>
#include <string.h>

#include "vitrine.h"

typedef struct answer {
    bool done;
    char error[256]; /* why it failed; "": it did not */
} answer;

static void on_event(void *user, const vt_event *e)
{
    answer *a = user;
    fwrite(e->text, 1, e->text_len, stdout);
    fflush(stdout);
    if (e->finish == VT_FINISH_ERROR)
        snprintf(a->error, sizeof a->error, "%s", e->error);
    a->done = e->finish != VT_FINISH_NONE;
}

static int fail(const char *message)
{
    fprintf(stderr, "complete: %s\n", message);
    return 1;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "The capital of France is";
    vt_err err;
    vt_options *options;
    vt_model *model;
    vt_engine *engine;
    if (vt_options_new(&options, &err) != VT_OK || vt_model_open(options, &model, &err) != VT_OK ||
        vt_engine_new(model, options, &engine, &err) != VT_OK)
        return fail(err.message);

    int32_t *ids;
    size_t n_ids;
    if (vt_tokenize(model, prompt, strlen(prompt), VT_TOKENIZE_ADD_BOS, &ids, &n_ids, &err) !=
        VT_OK)
        return fail(err.message);
    answer a = {0};
    vt_request_params request;
    vt_request_init(&request);
    request.prompt = ids;
    request.n_prompt = (int32_t)n_ids;
    request.max_tokens = 32;
    request.callback = on_event;
    request.user = &a;
    if (vt_engine_submit(engine, &request, NULL, &err) != VT_OK)
        return fail(err.message);
    while (!a.done)
        if (vt_engine_step(engine, NULL, &err) != VT_OK)
            return fail(err.message);
    putchar('\n');

    vt_free(ids);
    vt_engine_free(engine);
    vt_model_free(model);
    vt_options_free(options);
    return a.error[0] ? fail(a.error) : 0;
}
