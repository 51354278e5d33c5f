/* vitrine list: the models in the cache. */
#include "cli/cli.h"
#include "model/catalogue.h"

static void put_table(vt_buf *b, const vt_term *term, const vt_catalogue *c)
{
    vt_table t;
    vt_buf size;
    vt_table_init(&t, "name|>size|type|path");
    vt_buf_init(&size, 64);
    for (int32_t i = 0; i < c->n; i++) {
        const vt_cached_model *m = &c->model[i];
        vt_buf_clear(&size);
        vt_text_bytes(&size, (double)m->bytes);
        vt_table_cell(&t, "%s", m->name);
        vt_table_cell(&t, "%s", size.data ? size.data : "");
        vt_table_cell(&t, "%s", *m->quant ? m->quant : "unreadable");
        vt_table_cell(&t, "%s", m->path);
    }
    vt_table_finish(&t, b, term, 0);
    vt_buf_release(&size);
}

static int print_object(const vt_catalogue *c)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "folder", c->folder);
    vt_json_open(&w, "models", '[');
    for (int32_t i = 0; i < c->n; i++) {
        const vt_cached_model *m = &c->model[i];
        vt_json_open(&w, NULL, '{');
        vt_json_string(&w, "name", m->name);
        vt_json_int(&w, "bytes", m->bytes);
        vt_json_string(&w, "type", *m->quant ? m->quant : NULL);
        vt_json_string(&w, "path", m->path);
        vt_json_close(&w);
    }
    vt_json_close(&w);
    return cli_object_print(&w);
}

int cli_list(cli *c)
{
    vt_err err = {0};
    vt_catalogue models;
    vt_buf b;
    if (vt_catalogue_read(&models, &err) != VT_OK)
        return cli_fail(&err);
    if (c->json) {
        int code = print_object(&models);
        vt_catalogue_release(&models);
        return code;
    }
    vt_buf_init(&b, 0);
    if (models.n > 0)
        put_table(&b, &c->out, &models);
    else
        cli_note(c, "no models in %s; 'vitrine pull' lists what can be fetched", models.folder);
    vt_catalogue_release(&models);
    return cli_text_print(&b);
}
