/* Lengths of prompts and answers (cli/bench/lengths.h). */
#include "cli/bench/lengths.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"

vt_status cli_read_range(const cli *c, const char *id, const char *name, int32_t *lo, int32_t *hi,
                         vt_err *err)
{
    const char *text = vt_options_get(c->options, id);
    char rest;
    if (sscanf(text, "%d:%d%c", lo, hi, &rest) == 2 && *lo >= 1 && *hi >= *lo)
        return VT_OK;
    if (sscanf(text, "%d%c", lo, &rest) == 1 && *lo >= 1) {
        *hi = *lo;
        return VT_OK;
    }
    return vt_fail(err, VT_ERR_USAGE, "--%s: '%.40s' found, expected a range such as 100:1024",
                   name, text);
}

static vt_status make_room(cli_lengths *l, int32_t n, vt_err *err)
{
    l->input = vt_calloc((size_t)n, sizeof *l->input);
    l->output = vt_calloc((size_t)n, sizeof *l->output);
    return l->input && l->output ? VT_OK
                                 : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d lengths", n);
}

static void add_pair(cli_lengths *l, int32_t input, int32_t output)
{
    l->input[l->n] = input;
    l->output[l->n++] = output;
    l->total_input += input;
    l->total_output += output;
}

static vt_status draw_lengths(const cli *c, uint64_t *rng, cli_lengths *l, vt_err *err)
{
    int32_t n = (int32_t)vt_options_int(c->options, "num"), in[2], out[2];
    TRY(cli_read_range(c, "input", "input", &in[0], &in[1], err));
    TRY(cli_read_range(c, "output-range", "output", &out[0], &out[1], err));
    TRY(make_room(l, n, err));
    while (l->n < n)
        add_pair(l, in[0] + (int32_t)(vt_random_next(rng) % (uint64_t)(in[1] - in[0] + 1)),
                 out[0] + (int32_t)(vt_random_next(rng) % (uint64_t)(out[1] - out[0] + 1)));
    return VT_OK;
}

/* "input output" a line; lines that begin with # are remarks. */
static vt_status read_lengths(const char *path, cli_lengths *l, vt_err *err)
{
    enum { MAX_PAIRS = 1 << 20 };
    vt_buf text = {0};
    TRY(cli_read_file(path, &text, err));
    int32_t n_lines = 1, number = 0;
    const char *name = cli_file_name(path);
    for (size_t i = 0; i < text.len; i++)
        n_lines += text.data[i] == '\n';
    vt_status status = n_lines > MAX_PAIRS
                           ? vt_fail(err, VT_ERR_USAGE, "%s: more than %d lines", name, MAX_PAIRS)
                           : make_room(l, n_lines, err);
    for (char *rest = text.data, *line; status == VT_OK && (line = strsep(&rest, "\n"));) {
        int32_t in, out;
        int used = 0;
        number++;
        if (line[0] == '#' || !line[strspn(line, " \t\r")])
            continue;
        if (sscanf(line, "%d %d %n", &in, &out, &used) == 2 && !line[used] && in >= 1 && out >= 1)
            add_pair(l, in, out);
        else
            status = vt_fail(err, VT_ERR_FORMAT, "%s: line %d is '%.40s', expected two lengths",
                             name, number, line);
    }
    if (status == VT_OK && l->n == 0)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: no lengths found", name);
    vt_buf_release(&text);
    return status;
}

vt_status cli_get_lengths(const cli *c, uint64_t *rng, cli_lengths *l, vt_err *err)
{
    const char *path = vt_options_get(c->options, "lengths");
    return path ? read_lengths(path, l, err) : draw_lengths(c, rng, l, err);
}

void cli_lengths_release(cli_lengths *l)
{
    free(l->input);
    free(l->output);
    *l = (cli_lengths){0};
}
