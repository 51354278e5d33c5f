/* make build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE -Iinclude -Isrc
 * bench/micro/grammar.c
 *   build/release/libvitrine_internal.a -ljansson -lm -lpthread -o build/bench_grammar
 * build/bench_grammar tokenizer.json|FILE.tiktoken <CASES
 *
 * What masks of JSON schemas cost on a vocabulary. Each line of CASES is a JSON object with a
 * "schema" and an "instance", both as text; the instance's tokens are taken one after the other,
 * with a mask before each. Prints a line for the vocabulary and one for each case:
 *
 *   {"ids": the tokens, "compile_ns", "first_ns": a mask each, "third_ns": the same when the
 *    schema has been used twice before, "steps" and "states": of the mask and of the token that
 *    took most of them (machine.h), "refused": whether the schema was, "fault": why, or what was not
 *    accepted}
 *
 * Times are CPU time of the thread. bench/peers/grammars.py runs this beside other engines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "grammar/internal.h"

enum { PASSES = 3 };

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        die(path, "cannot be read");
    long size = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)size + 1);
    if (!bytes || fread(bytes, 1, (size_t)size, f) != (size_t)size)
        die(path, "cannot be read");
    fclose(f);
    bytes[size] = 0;
    *n = (size_t)size;
    return bytes;
}

static vt_tokenizer *load(const char *path)
{
    size_t n, k = strlen(path);
    char *text = read_file(path, &n);
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    bool ranks = k > 9 && strcmp(path + k - 9, ".tiktoken") == 0;
    vt_status status = ranks ? vt_tokenizer_from_tiktoken(path, text, n, NULL, 0, &t, &err)
                             : vt_tokenizer_from_json(path, text, n, NULL, 0, &t, &err);
    if (status != VT_OK)
        die(path, err.message);
    free(text);
    return t;
}

typedef struct most {
    int64_t steps, states; /* of one call */
} most;

static void note_call(most *m, const vt_grammar *g)
{
    int64_t steps = MACHINE_CALL_STEPS - g->m.g.rx.fuel,
            states = MACHINE_CALL_STATES - g->m.call_states;
    m->steps = steps > m->steps ? steps : m->steps;
    m->states = states > m->states ? states : m->states;
}

/* One pass over the tokens. Returns the masks' times; *fault: what was not accepted. */
static json_t *pass(vt_grammar *g, const vt_ids *ids, uint32_t *words, int32_t n_words, most *calls,
                    const char **fault)
{
    json_t *ns = json_array();
    vt_matcher *m = vt_matcher_new(g, 0);
    for (size_t i = 0; i < ids->n && !*fault; i++) {
        int32_t id = ids->id[i];
        int64_t begin = cpu_ns();
        memset(words, 0, (size_t)n_words * sizeof *words);
        bool any = vt_matcher_mask(m, words, n_words);
        json_array_append_new(ns, json_integer(cpu_ns() - begin));
        note_call(calls, g);
        if (!any && vt_matcher_is_too_large(m))
            *fault = g->m.failed;
        else if (!any || !(words[id / 32] >> id % 32 & 1) || !vt_matcher_take(m, id))
            *fault = "a token of the instance is not allowed";
        note_call(calls, g);
    }
    if (!*fault && !vt_matcher_accepts(m))
        *fault = "the instance may not end";
    vt_matcher_free(m);
    return ns;
}

static json_t *measure(vt_grammar_vocab *v, const vt_tokenizer *t, const json_t *one)
{
    const char *schema = json_string_value(json_object_get(one, "schema")), *fault = NULL;
    const json_t *instance = json_object_get(one, "instance");
    json_t *out = json_object(), *list = json_array();
    int32_t n_words = (vt_tokenizer_vocab(t) + 31) / 32;
    uint32_t *words = calloc((size_t)n_words, sizeof *words);
    vt_ids ids = {0};
    vt_grammar *g = NULL;
    vt_err err = {0};
    if (!words || !schema || !json_is_string(instance) ||
        vt_tokenizer_encode(t, json_string_value(instance), json_string_length(instance), 0, &ids,
                            &err) != VT_OK)
        die("CASES", "expected a schema and an instance, as text");
    for (size_t i = 0; i < ids.n; i++)
        json_array_append_new(list, json_integer(ids.id[i]));
    json_object_set_new(out, "ids", list);
    most calls = {0};
    int64_t begin = cpu_ns();
    if (vt_grammar_compile(v, VT_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &g, &err) != VT_OK)
        fault = err.message;
    json_object_set_new(out, "refused", json_boolean(!g));
    json_object_set_new(out, "compile_ns", json_integer(cpu_ns() - begin));
    for (int i = 0; i < PASSES && !fault; i++) {
        json_t *ns = pass(g, &ids, words, n_words, &calls, &fault);
        if (i == 0 || i == PASSES - 1)
            json_object_set(out, i == 0 ? "first_ns" : "third_ns", ns);
        json_decref(ns);
    }
    if (g)
        json_object_set_new(out, "bytes", json_integer((json_int_t)vt_grammar_bytes(g)));
    json_object_set_new(out, "steps", json_integer(calls.steps));
    json_object_set_new(out, "states", json_integer(calls.states));
    if (fault)
        json_object_set_new(out, "fault", json_string(fault));
    vt_grammar_unref(g);
    vt_ids_release(&ids);
    free(words);
    return out;
}

static void print(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage", "bench_grammar tokenizer.json|FILE.tiktoken <CASES");
    vt_tokenizer *t = load(argv[1]);
    vt_grammar_vocab *v = NULL;
    vt_err err = {0};
    char *line = NULL;
    size_t cap = 0;
    int64_t begin = cpu_ns();
    if (vt_grammar_vocab_new(t, INT32_MAX, &v, &err) != VT_OK)
        die("vocabulary", err.message);
    print(json_pack("{s:i,s:I}", "tokens", vt_tokenizer_vocab(t), "start_ns", cpu_ns() - begin));
    while (getline(&line, &cap, stdin) > 0) {
        json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
        print(measure(v, t, one));
        json_decref(one);
    }
    free(line);
    vt_grammar_vocab_free(v);
    vt_tokenizer_free(t);
    return 0;
}
