/* How tokens are chosen: from the options, and in a chat from the model's own defaults.
 *
 * Names and signs are those of llama.cpp (--repeat-penalty, --presence-penalty,
 * --frequency-penalty, --logit-bias) and of the OpenAI API. One difference: llama.cpp looks at the
 * last 64 tokens; here, as in vLLM, the repetition penalty looks at the whole prompt and answer,
 * the other two at the answer. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "model/model.h"

enum { MAX_BIASES = 1024 }; /* as many as the engine takes */

/* "ID=X", or as llama.cpp has it "ID+X" and "ID-X", at *p, up to a comma or the end. False where it
 * is something else. */
static bool read_bias(const char **p, vt_logit_bias *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**p))
        return false;
    long id = strtol(*p, &end, 10);
    if (errno || id > INT32_MAX || (*end != '=' && *end != '+' && *end != '-'))
        return false;
    const char *number = end + (*end == '=');
    if (strncmp(number, "-inf", 4) == 0) {
        out->bias = -INFINITY;
        end = (char *)number + 4;
    } else {
        size_t len = strspn(number, "0123456789.eE+-");
        out->bias = strtof(number, &end);
        if (len == 0 || end != number + len || !isfinite(out->bias))
            return false;
    }
    out->id = (int32_t)id;
    *p = end + (*end == ',');
    return *end == '\0' || (*end == ',' && end[1]);
}

static vt_status read_biases(const cli *c, vt_request_params *p, vt_err *err)
{
    int32_t n_lists, n = 0;
    const char *const *list = vt_options_list(c->options, "logit-bias", &n_lists);
    vt_logit_bias *bias = n_lists ? malloc(MAX_BIASES * sizeof *bias) : NULL;
    if (n_lists && !bias)
        return vt_fail(err, VT_ERR_MEMORY, "--logit-bias: out of memory");
    for (int32_t i = 0; i < n_lists; i++)
        for (const char *at = list[i]; at == list[i] || *at; n++)
            if (n == MAX_BIASES || !read_bias(&at, &bias[n])) {
                free(bias);
                return n == MAX_BIASES
                           ? vt_fail(err, VT_ERR_USAGE, "--logit-bias: more than %d token ids",
                                     MAX_BIASES)
                           : vt_fail(err, VT_ERR_USAGE,
                                     "--logit-bias: '%.40s' found, expected ID=X such as 17=-5 or "
                                     "17=-inf,42=2.5",
                                     at);
            }
    p->logit_bias = bias;
    p->n_logit_bias = n;
    return VT_OK;
}

/* The model's own value where it has one and no option overrides it. NAN: the model has none. */
static double choose(const cli *c, const char *key, double own)
{
    return isnan(own) || vt_options_given(c->options, key) ? vt_options_float(c->options, key)
                                                           : own;
}

vt_status cli_sampling(const cli *c, const vt_model *m, vt_request_params *p, vt_err *err)
{
    const vt_options *o = c->options;
    p->max_tokens = (int32_t)vt_options_int(o, "max-tokens");
    p->temperature = (float)choose(c, "temperature", m ? (double)m->gen_temperature : NAN);
    p->top_p = (float)choose(c, "top-p", m ? (double)m->gen_top_p : NAN);
    p->min_p = (float)choose(c, "min-p", m ? (double)m->gen_min_p : NAN);
    p->repetition_penalty = (float)choose(c, "repeat-penalty",
                                          m ? (double)m->gen_repetition_penalty : NAN);
    p->presence_penalty = (float)vt_options_float(o, "presence-penalty");
    p->frequency_penalty = (float)vt_options_float(o, "frequency-penalty");
    p->top_k = m && m->gen_top_k >= 0 && !vt_options_given(o, "top-k")
                   ? m->gen_top_k
                   : (int32_t)vt_options_int(o, "top-k");
    p->seed = (uint64_t)vt_options_int(o, "seed");
    p->has_seed = true;
    p->stop = vt_options_list(o, "stop", &p->n_stop);
    return read_biases(c, p, err);
}

void cli_describe_sampling(const vt_request_params *p, vt_buf *out)
{
    const struct {
        const char *name;
        double value, off;
    } row[] = {{"top-k", p->top_k, 0},
               {"top-p", (double)p->top_p, 1},
               {"min-p", (double)p->min_p, 0},
               {"repeat-penalty", (double)p->repetition_penalty, 1},
               {"presence-penalty", (double)p->presence_penalty, 0},
               {"frequency-penalty", (double)p->frequency_penalty, 0}};
    vt_buf_printf(out, "temperature %.4g", (double)p->temperature);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (row[i].value != row[i].off)
            vt_buf_printf(out, ", %s %.4g", row[i].name, row[i].value);
    if (p->temperature > 0)
        vt_buf_printf(out, ", seed %llu", (unsigned long long)p->seed);
}
