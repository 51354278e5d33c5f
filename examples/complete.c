/* The smallest use of the C API: one prompt, tokens as they come.
 *
 *   cc -Iinclude examples/complete.c -Lbuild/release -lvitrine -Wl,-rpath,build/release -o complete
 *   ./complete "The capital of France is"
 */
#include <stdio.h>
#include <string.h>

#include "vitrine.h"

static void print_text(void *user, const vt_event *e)
{
    fwrite(e->text, 1, e->text_len, stdout);
    fflush(stdout);
    if (e->finish == VT_FINISH_ERROR)
        fprintf(stderr, "complete: %s\n", e->error);
    if (e->finish != VT_FINISH_NONE)
        *(vt_finish *)user = e->finish;
}

static int fail(const vt_err *err)
{
    fprintf(stderr, "complete: %s\n", err->message);
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
        return fail(&err);

    int32_t *ids;
    size_t n_ids;
    if (vt_tokenize(model, prompt, strlen(prompt), VT_TOKENIZE_ADD_BOS, &ids, &n_ids, &err) !=
        VT_OK)
        return fail(&err);
    vt_finish finish = VT_FINISH_NONE;
    bool idle;
    vt_request_params request;
    vt_request_init(&request);
    request.prompt = ids;
    request.n_prompt = (int32_t)n_ids;
    request.max_tokens = 32;
    request.callback = print_text;
    request.user = &finish;
    vt_request_id id;
    if (vt_engine_submit(engine, &request, &id, &err) != VT_OK)
        return fail(&err);
    while (finish == VT_FINISH_NONE)
        if (vt_engine_step(engine, &idle, &err) != VT_OK)
            return fail(&err);
    putchar('\n');

    vt_free(ids);
    vt_engine_free(engine);
    vt_model_free(model);
    vt_options_free(options);
    return finish == VT_FINISH_ERROR;
}
