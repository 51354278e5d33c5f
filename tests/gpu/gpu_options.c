#include "gpu_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    *out = n;
    return end != text && !*end && !errno && text[0] != '-' && n <= most;
}

/* The number of arguments that the option argv[0] takes with its value; 0 if it is wrong. */
static int read_option(gpu_options *o, char **argv)
{
    const struct {
        const char *name;
        bool *on;
        const char **text;
    } option[] = {{"--time", &o->timing, NULL},    {"--small", &o->small, NULL},
                  {"--list", &o->list, NULL},      {"--pdl", &o->pdl, NULL},
                  {"--op", NULL, &o->only_op},     {"--deterministic", &o->deterministic, NULL},
                  {"--case", NULL, &o->only_case}, {"--padded", &o->padded, NULL},
                  {"--rows", NULL, &o->rows}};
    uint64_t n;
    char rest;
    for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
        if (strcmp(argv[0], option[i].name) != 0)
            continue;
        if (option[i].on) {
            *option[i].on = true;
            return 1;
        }
        *option[i].text = argv[1];
        return argv[1] ? 2 : 0;
    }
    if (!argv[1])
        return 0;
    if (strcmp(argv[0], "--seed") == 0)
        return read_number(argv[1], UINT64_MAX, &o->seed) ? 2 : 0;
    if (strcmp(argv[0], "--random") == 0 && read_number(argv[1], INT32_MAX, &n) && n > 0) {
        o->n_random = (int32_t)n;
        return 2;
    }
    bool shard = strcmp(argv[0], "--shard") == 0 &&
                 sscanf(argv[1], "%d/%d%c", &o->shard, &o->shards, &rest) == 2;
    return shard && o->shard >= 0 && o->shard < o->shards ? 2 : 0;
}

bool gpu_options_read(gpu_options *o, char **argv)
{
    *o = (gpu_options){.shards = 1};
    for (int n; *argv; argv += n)
        if ((n = read_option(o, argv)) == 0) {
            fprintf(stderr,
                    "gpu_parity: '%s%s%s' found, expected one of its options with its value\n",
                    argv[0], argv[1] ? " " : "", argv[1] ? argv[1] : "");
            return false;
        }
    return true;
}
