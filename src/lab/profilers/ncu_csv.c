/* Reading the CSV of ncu and of nsys (lab/profilers/ncu_csv.h).
 *
 * Fields are kept as text, because ncu writes numbers in several ways: "1,234.5" with commas in
 * some locales, "n/a" or "(!) nan" where a counter was not collected. A field becomes a number when
 * it is asked for. */
#include "lab/profilers/ncu_csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* ---- fields ---- */

/* A position in the text, and where the next field's bytes go. */
typedef struct reader {
    const char *at, *end;
    char *out; /* the report's text; fields only get shorter, so it has room */
    size_t used;
} reader;

/* A kind of table: how its line of names begins, and whether a line of units follows. */
typedef struct form {
    const char *first, *quoted, *what;
    bool units;
} form;

static const form of_ncu = {"ID,", "\"ID\",", "that begins with ID; ncu's CSV of page raw", true};
static const form of_nsys = {"Time (%),", "\"Time (%)\",",
                             "that begins with Time (%); the CSV of nsys stats", false};

/* Reads one field and stops at the comma or line end after it. A field in quotes may hold commas,
 * line ends and doubled quotes. */
static uint32_t read_field(reader *r)
{
    uint32_t begin = (uint32_t)r->used;
    bool quoted = r->at < r->end && *r->at == '"';
    r->at += quoted;
    while (r->at < r->end) {
        char c = *r->at;
        if (quoted && c == '"') {
            if (r->at + 1 == r->end || r->at[1] != '"')
                break;
            r->at++;
        } else if (!quoted && (c == ',' || c == '\n' || c == '\r')) {
            break;
        }
        r->out[r->used++] = c ? c : ' ';
        r->at++;
    }
    if (quoted && r->at < r->end)
        r->at++; /* the closing quote */
    while (r->at < r->end && *r->at != ',' && *r->at != '\n')
        r->at++;
    r->out[r->used++] = '\0';
    return begin;
}

/* Reads the fields of a line into field[0 .. most); returns how many the line has. */
static int32_t read_line(reader *r, uint32_t *field, int32_t most)
{
    int32_t n = 0;
    for (;;) {
        size_t used = r->used;
        uint32_t at = read_field(r);
        if (n < most)
            field[n] = at;
        else
            r->used = used; /* a field too many: counted, not kept */
        n++;
        if (r->at == r->end || *r->at == '\n')
            break;
        r->at++; /* the comma */
    }
    if (r->at < r->end)
        r->at++; /* the line end */
    return n;
}

static bool begins(const reader *r, const char *with)
{
    size_t n = strlen(with);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, with, n) == 0;
}

/* Moves to the line of column names. */
static bool find_names(reader *r, const form *f)
{
    while (r->at < r->end) {
        size_t left = (size_t)(r->end - r->at);
        if (begins(r, f->first) || begins(r, f->quoted))
            return true;
        const char *line = memchr(r->at, '\n', left);
        r->at = line ? line + 1 : r->end;
    }
    return false;
}

/* ---- lines ---- */

/* Returns true if a line of the program that ncu ran, or of ncu's own, stands between the rows. */
static bool is_message(const reader *r) { return r->at < r->end && *r->at == '='; }

static vt_status read_rows(const char *name, reader *r, const form *f, ncu_report *out, vt_err *err)
{
    int32_t room = 16, rows = 1; /* the names were read */
    if (!f->units) {             /* a line of empty ones: there is an empty field at `used` */
        for (int32_t c = 0; c < out->n_columns; c++)
            out->field[out->n_columns + c] = (uint32_t)r->used;
        r->out[r->used++] = '\0';
        rows++;
    }
    while (r->at < r->end) {
        if (*r->at == '\n' || *r->at == '\r' || is_message(r)) {
            const char *line = memchr(r->at, '\n', (size_t)(r->end - r->at));
            r->at = line ? line + 1 : r->end;
            continue;
        }
        if (rows == NCU_MAX_LAUNCHES + 2)
            return vt_fail(err, VT_ERR_MEMORY, "%s: more than %d kernel launches", name,
                           NCU_MAX_LAUNCHES);
        if (rows + 1 > room) {
            room *= 2;
            uint32_t *more = realloc(out->field,
                                     (size_t)room * (size_t)out->n_columns * sizeof *more);
            if (!more)
                return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %d lines", name, room);
            out->field = more;
        }
        int32_t n = read_line(r, out->field + (size_t)rows * (size_t)out->n_columns,
                              out->n_columns);
        if (n != out->n_columns)
            return vt_fail(err, VT_ERR_FORMAT,
                           "%s: line %d of the table has %d fields, expected %d as in the line of "
                           "names",
                           name, rows + 1, n, out->n_columns);
        rows++;
    }
    if (rows < 2)
        return vt_fail(err, VT_ERR_FORMAT, "%s: the line of units is missing", name);
    out->n_launches = rows - 2;
    return VT_OK;
}

static vt_status read_table(const char *name, const char *text, size_t len, const form *f,
                            ncu_report *out, vt_err *err)
{
    ncu_report report = {0};
    uint32_t names[NCU_MAX_COLUMNS];
    if (len > NCU_MAX_BYTES)
        return vt_fail(err, VT_ERR_MEMORY, "%s: %zu bytes, expected at most %d", name, len,
                       NCU_MAX_BYTES);
    reader r = {.at = text, .end = text + len};
    if (!find_names(&r, f))
        return vt_fail(err, VT_ERR_FORMAT, "%s: there is no line of column names %s was expected",
                       name, f->what);
    /* every field ends with a NUL where a comma, a line end or the text's end was; one more is the
     * empty unit */
    r.out = report.text = malloc((size_t)(r.end - r.at) + 3);
    if (!report.text)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %zu bytes", name, len);
    vt_status status = VT_OK;
    report.n_columns = read_line(&r, names, NCU_MAX_COLUMNS);
    if (report.n_columns > NCU_MAX_COLUMNS)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: %d columns, expected at most %d", name,
                         report.n_columns, NCU_MAX_COLUMNS);
    if (status == VT_OK) {
        report.field = malloc(16 * (size_t)report.n_columns * sizeof *report.field);
        if (!report.field)
            status = vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for its columns", name);
    }
    if (status == VT_OK) {
        memcpy(report.field, names, (size_t)report.n_columns * sizeof *names);
        status = read_rows(name, &r, f, &report, err);
    }
    if (status == VT_OK)
        *out = report;
    else
        ncu_report_release(&report);
    return status;
}

vt_status ncu_report_read(const char *name, const char *text, size_t len, ncu_report *out,
                          vt_err *err)
{
    return read_table(name, text, len, &of_ncu, out, err);
}

vt_status nsys_stats_read(const char *name, const char *text, size_t len, ncu_report *out,
                          vt_err *err)
{
    return read_table(name, text, len, &of_nsys, out, err);
}

void ncu_report_release(ncu_report *r)
{
    free(r->text);
    free(r->field);
    *r = (ncu_report){0};
}

/* ---- values ---- */

static int32_t find_column(const ncu_report *r, const char *column)
{
    for (int32_t c = 0; c < r->n_columns; c++)
        if (strcmp(r->text + r->field[c], column) == 0)
            return c;
    return -1;
}

static const char *cell(const ncu_report *r, int32_t line, int32_t column)
{
    return r->text + r->field[(size_t)line * (size_t)r->n_columns + (size_t)column];
}

const char *ncu_report_text(const ncu_report *r, int32_t launch, const char *column)
{
    int32_t c = find_column(r, column);
    return c >= 0 && launch >= 0 && launch < r->n_launches ? cell(r, launch + 2, c) : NULL;
}

/* Returns the factor for values in this unit. */
static double scale_of(const char *unit)
{
    static const struct {
        const char *name;
        double scale;
    } known[] = {{"ns", 1e-9},         {"nsecond", 1e-9},      {"us", 1e-6},
                 {"usecond", 1e-6},    {"ms", 1e-3},           {"msecond", 1e-3},
                 {"Kbyte", 1e3},       {"Mbyte", 1e6},         {"Gbyte", 1e9},
                 {"%", 1e-2},          {"Khz", 1e3},           {"Mhz", 1e6},
                 {"Ghz", 1e9},         {"cycle/nsecond", 1e9}, {"cycle/usecond", 1e6},
                 {"byte/nsecond", 1e9}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(unit, known[i].name) == 0)
            return known[i].scale;
    return 1;
}

/* "1,234.5" and "1234.5" alike; NAN: the text is no number. */
static double number(const char *text)
{
    char plain[64], *end;
    size_t n = 0;
    for (; *text && n + 1 < sizeof plain; text++)
        if (*text != ',')
            plain[n++] = *text;
    plain[n] = '\0';
    if (*text || n == 0)
        return NAN;
    double v = strtod(plain, &end);
    return *end == '\0' && isfinite(v) ? v : NAN;
}

double ncu_report_number(const ncu_report *r, int32_t launch, const char *column)
{
    int32_t c = find_column(r, column);
    if (c < 0 || launch < 0 || launch >= r->n_launches)
        return NAN;
    double v = number(cell(r, launch + 2, c)) * scale_of(cell(r, 1, c));
    return isfinite(v) ? v : NAN;
}

int32_t ncu_report_find(const ncu_report *r, const char *part)
{
    int32_t name = find_column(r, "Kernel Name");
    for (int32_t i = r->n_launches - 1; name >= 0 && i >= 0; i--)
        if (strstr(cell(r, i + 2, name), part))
            return i;
    return -1;
}
