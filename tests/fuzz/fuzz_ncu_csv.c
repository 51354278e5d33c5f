/* The CSV of ncu and of nsys (ncu_csv.h): whatever the bytes, a report whose every field is text of
 * its own, or one sentence. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab/profilers/ncu_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

typedef vt_status read_fn(const char *name, const char *text, size_t len, ncu_report *out,
                          vt_err *err);

static void try_reader(read_fn *read, const uint8_t *data, size_t size)
{
    ncu_report r = {0};
    vt_err err = {0};
    if (read("fuzz", (const char *)data, size, &r, &err) != VT_OK) {
        must(err.message[0] != '\0' && !r.text && !r.field);
        return;
    }
    must(r.n_columns >= 1 && r.n_columns <= NCU_MAX_COLUMNS);
    must(r.n_launches >= 0 && r.n_launches <= NCU_MAX_LAUNCHES);
    size_t longest = 0;
    for (int32_t i = 0; i < r.n_launches; i++)
        for (int32_t c = 0; c < r.n_columns; c++) {
            const char *name = r.text + r.field[c], *text = ncu_report_text(&r, i, name);
            must(text != NULL);
            longest += strlen(text);
            double v = ncu_report_number(&r, i, name);
            must(isnan(v) || isfinite(v));
        }
    must(longest <= size * (size_t)(r.n_columns + 1)); /* equal names share a column */
    int32_t at = ncu_report_find(&r, "attention");
    must(at >= -1 && at < r.n_launches);
    ncu_report_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_reader(ncu_report_read, data, size);
    try_reader(nsys_stats_read, data, size);
    return 0;
}
