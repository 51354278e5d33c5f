/* The rope table against transformers (tests/golden/rope_tables.txt,
 * tools/fixtures/rope_tables.py): every scheme, the attention factor, and angles far out, where
 * fp32 angles would be wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/rope_table.h"
#include "ops/rope/rope.h"

typedef struct golden {
    vt_rope_params params;
    double attention_factor, frequency[128];
} golden;

static vt_rope_scaling scaling_of(const char *name)
{
    if (strcmp(name, "linear") == 0)
        return VT_ROPE_LINEAR;
    return strcmp(name, "llama3") == 0 ? VT_ROPE_LLAMA3 : VT_ROPE_YARN;
}

/* False at the end of the file. */
static bool read_golden(FILE *f, golden *g)
{
    char scheme[16];
    int truncate;
    vt_rope_params *p = &g->params;
    *g = (golden){0};
    if (fscanf(f, "%15s %lf %d %lf %lf %lf %d %lf %lf %lf %d | %lf", scheme, &p->base, &p->dims,
               &p->factor, &p->low_freq_factor, &p->high_freq_factor, &p->original_context,
               &p->attn_factor, &p->beta_fast, &p->beta_slow, &truncate,
               &g->attention_factor) != 12)
        return false;
    p->scaling = scaling_of(scheme);
    p->yarn_truncate = truncate != 0;
    assert_in_range(p->dims, 2, 256);
    for (int32_t i = 0; i < p->dims / 2; i++)
        assert_int_equal(fscanf(f, "%lf", &g->frequency[i]), 1);
    return true;
}

static void test_table_matches_transformers_in_every_scheme(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/rope_tables.txt", "r");
    assert_non_null(f);
    while (fgetc(f) != '\n')
        continue; /* the comment */
    golden g;
    int schemes = 0;
    for (; read_golden(f, &g); schemes++) {
        int32_t half = g.params.dims / 2;
        float table[2 * 256];
        vt_rope_table(&g.params, 0, 2, table);
        const float *row = table + g.params.dims; /* position 1: the angles are the frequencies */
        for (int32_t i = 0; i < half; i++) {      /* transformers computes them in fp32 */
            double sine = row[half + i], cosine = row[i];
            assert_float_equal(atan2(sine, cosine) / g.frequency[i], 1, 1e-6);
            assert_float_equal(sqrt(sine * sine + cosine * cosine), g.attention_factor, 2e-7);
            assert_float_equal(table[i], g.attention_factor, 2e-7);
            assert_float_equal(table[half + i], 0, 0);
        }
    }
    fclose(f);
    assert_int_equal(schemes, 9);
}

/* At position 100,003 the exact angle, reduced in long double, not in fp32. */
static void test_table_is_exact_far_out(void **state)
{
    (void)state;
    enum { POSITIONS = 100004, DIMS = 16 };
    vt_rope_params p = {.base = 10000, .dims = DIMS};
    float *table = malloc(POSITIONS * (size_t)DIMS * sizeof *table);
    assert_non_null(table);
    vt_rope_table(&p, 0, POSITIONS, table);
    for (int32_t i = 0; i < DIMS / 2; i++) {
        long double angle = 100003.0L * powl(10000.0L, -2.0L * i / DIMS);
        assert_float_equal(table[100003 * DIMS + i], cosl(angle), 1e-7);
        assert_float_equal(table[100003 * DIMS + DIMS / 2 + i], sinl(angle), 1e-7);
    }
    float rows[4 * DIMS]; /* the same rows, made as a part of the table that begins later */
    vt_rope_table(&p, POSITIONS - 4, 4, rows);
    assert_memory_equal(rows, table + (size_t)(POSITIONS - 4) * DIMS, sizeof rows);
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_matches_transformers_in_every_scheme),
        cmocka_unit_test(test_table_is_exact_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
