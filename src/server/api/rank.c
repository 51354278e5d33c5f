/* /v1/rerank and /v1/score of a model that ranks; 501 for others. */
#include "model/model.h"
#include "server/api/generation.h"

static void end_scores(generation *g)
{
    vt_json w;
    vt_json_line(&w);
    vt_openai_scores_write(&g->reply, &w);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static void write_ranks(generation *g, bool documents)
{
    vt_json w;
    vt_json_line(&w);
    vt_openai_ranks_write(&g->reply, &g->request, documents, &w);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static void end_ranks(generation *g) { write_ranks(g, g->request.return_documents); }

static void end_ranks_v2(generation *g) { write_ranks(g, false); }

static const generation_form score = {
    .name = "score", .api = VT_OPENAI_SCORE, .read = generation_read, .end = end_scores};
static const generation_form rerank = {
    .name = "rerank", .api = VT_OPENAI_RERANK, .read = generation_read, .end = end_ranks};
static const generation_form rerank_v2 = {
    .name = "rerank", .api = VT_OPENAI_RERANK, .read = generation_read, .end = end_ranks_v2};

static void start(vt_server *s, vt_exchange *x, const generation_form *form)
{
    if (vt_engine_ranks(s->engine))
        generation_start(s, x, form);
    else
        server_refuse(x, 501, NULL,
                      "this server does not rank: %s has no classification head, which scores of "
                      "pairs of texts need, and is no Qwen3-Reranker served with --pooling rank; "
                      "/v1/embeddings gives vectors to compare",
                      vt_model_name(s->model));
}

void server_score(vt_server *s, vt_exchange *x) { start(s, x, &score); }
void server_rerank(vt_server *s, vt_exchange *x) { start(s, x, &rerank); }
void server_rerank_v2(vt_server *s, vt_exchange *x) { start(s, x, &rerank_v2); }
