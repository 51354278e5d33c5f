#include "read_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/load.h"

vt_model *read_config_with(const char *config, hf_extra *extra)
{
    json_t *root;
    vt_model *m;
    vt_err err = {0};
    assert_int_equal(model_new("test", &m, &err), VT_OK);
    if (vt_read_json_text("config", config, strlen(config), &root, &err) != VT_OK ||
        hf_config_read("config", root, m, extra, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_decref(root);
    return m;
}

vt_model *read_config(const char *config)
{
    hf_extra extra;
    return read_config_with(config, &extra);
}

void expect_refused(const char *config, const char *words)
{
    json_t *root;
    vt_model *m;
    hf_extra extra;
    vt_err err = {0};
    assert_int_equal(model_new("test", &m, &err), VT_OK);
    assert_int_equal(vt_read_json_text("config", config, strlen(config), &root, &err), VT_OK);
    assert_int_not_equal(hf_config_read("config", root, m, &extra, &err), VT_OK);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    json_decref(root);
    vt_model_free(m);
}
