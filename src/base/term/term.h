/* Text for terminals: durations and sizes in suitable units, tables, bars, sparklines, wrapped
 * paragraphs, progress lines, and making untrusted text harmless. Everything is appended to a
 * buffer; nothing here prints.
 *
 * Widths are counted in terminal cells, not bytes; text uses at most 100 cells, tables up to 140.
 * Colour never carries information: every text is complete without it. */
#ifndef VT_BASE_TERM_TERM_H
#define VT_BASE_TERM_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { VT_TERM_WIDTH = 100, VT_TERM_WIDE = 140, VT_TABLE_COLUMNS = 12 };

typedef struct vt_term {
    bool tty, colour;
    int32_t width; /* cells, at most VT_TERM_WIDTH */
    int32_t wide;  /* for tables: at most VT_TERM_WIDE; 0: as `width` */
} vt_term;

/* Finds out whether a file descriptor is a terminal. Colour is used if it is one, TERM is not
 * "dumb" and NO_COLOR is not set. Where it is none, COLUMNS says how wide to be (40 or more). */
vt_term vt_term_of(int fd);
/* Cells for a table. */
static inline int32_t vt_term_wide(const vt_term *t)
{
    return t->wide > t->width ? t->wide : t->width;
}

typedef enum vt_ink {
    VT_INK_PLAIN,
    VT_INK_BOLD,
    VT_INK_DIM,
    VT_INK_RED,
    VT_INK_GREEN,
    VT_INK_YELLOW,
    VT_INK_CYAN
} vt_ink;

void vt_text_ink(vt_buf *b, const vt_term *t, vt_ink ink, const char *text);
/* Returns how many cells text[0..len) takes; escape sequences take none. */
int32_t vt_text_width(const char *text, size_t len);
/* The ending of a counted noun: "" for 1, else "s". */
static inline const char *vt_text_s(int64_t n) { return n == 1 ? "" : "s"; }
/* Appends spaces until the line that begins at byte `line_start` of b is `column` cells wide. */
void vt_text_pad(vt_buf *b, size_t line_start, int32_t column);
/* Appends a paragraph broken at spaces; lines after the first begin with `indent` spaces. */
void vt_text_wrap(vt_buf *b, const char *text, int32_t indent, int32_t width);

/* ---- untrusted text: tokens, file names, messages ---- */

/* True for a character that controls a terminal, or that makes text look like other text: the C0
 * controls except newline and tab, DEL, the C1 controls (U+0080..U+009F: U+009B begins a control
 * sequence as ESC [ does), and the marks that change the direction of writing (U+061C, U+200E,
 * U+200F, U+202A..U+202E, U+2066..U+2069). */
bool vt_text_is_control(uint32_t c);

/* The state between pieces of one text that is written to a terminal; a piece may end in the middle
 * of a character. Begin with zeros. */
typedef struct vt_shown {
    char held[4]; /* the beginning of a character, or a CR whose LF may follow */
    int32_t n_held;
} vt_shown;

/* Appends text[0..len) to b in a form that is safe on a terminal: each control character (as above)
 * and each ill-formed part become U+FFFD, CR LF becomes LF. Nothing else changes. */
void vt_text_show(vt_buf *b, vt_shown *s, const char *text, size_t len);
/* Appends what was still held, when the text has ended. */
void vt_text_show_end(vt_buf *b, vt_shown *s);
/* Makes a one-line message safe in place: controls, newline and tab become spaces, ill-formed parts
 * become '?', and a last character that was cut off is dropped. The text never grows. */
void vt_text_clean_line(char *text);

/* Append three significant digits and a unit: "12.3 us", "1.05 GB/s" (powers of 1000), "2.0
 * GiB". */
void vt_text_time(vt_buf *b, double seconds);
void vt_text_bytes(vt_buf *b, double bytes);
void vt_text_rate(vt_buf *b, double per_second, const char *unit);

/* A bar of up to `cells` cells for a share in [0, 1]; at least one cell when share > 0. */
void vt_text_bar(vt_buf *b, double share, int32_t cells);
/* One glyph per value; if there are fewer cells than values, each shows the mean of several. NAN
 * becomes a space. */
void vt_text_spark(vt_buf *b, const double *value, int32_t n, int32_t cells);

/* A table, filled cell by cell, row after row. A column is as wide as its widest cell. */
typedef struct vt_table {
    int32_t n_columns;
    bool right[VT_TABLE_COLUMNS]; /* right-aligned: numbers */
    vt_buf text;                  /* the cells, each NUL-terminated */
    int32_t n_cells;
} vt_table;

/* titles: "op|>time|share"; a '>' marks a right-aligned column. */
void vt_table_init(vt_table *t, const char *titles);
/* Adds a cell of at most 255 bytes, made safe by vt_text_clean_line. */
void vt_table_cell(vt_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends the table, each line indented by `indent` spaces, and releases it. Where rows are wider
 * than the terminal, the widest column of text goes on below its row; lines that are still wider
 * are cut. */
void vt_table_finish(vt_table *t, vt_buf *b, const vt_term *term, int32_t indent);

/* Appends "loading  [#####.....]  50 %  12.3 MB/s  4 s left", without a newline. total 0:
 * unknown. */
void vt_text_progress(vt_buf *b, const char *label, double done, double total, double elapsed_s,
                      const char *unit);

#endif
