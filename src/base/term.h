/* Text for terminals: durations and sizes in their natural unit, tables, bars, sparklines, wrapped
 * paragraphs, progress lines, and text from elsewhere made harmless. Everything is appended to a
 * buffer; nothing here prints.
 *
 * Widths are counted in terminal cells, not bytes. 100 cells are the most that is ever used. Colour
 * is an addition: every text reads as well without it. */
#ifndef VT_BASE_TERM_H
#define VT_BASE_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { VT_TERM_WIDTH = 100, VT_TABLE_COLUMNS = 12 };

typedef struct vt_term {
    bool tty, colour;
    int32_t width; /* cells, at most VT_TERM_WIDTH */
} vt_term;

/* What stands behind a file descriptor. Colour wants a terminal, not "dumb", and no NO_COLOR. */
vt_term vt_term_of(int fd);

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
/* Cells that text[0..len) takes; escape sequences take none. */
int32_t vt_text_width(const char *text, size_t len);
/* Spaces until the line that began at byte `line_start` of b is `column` cells wide. */
void vt_text_pad(vt_buf *b, size_t line_start, int32_t column);
/* A paragraph broken at spaces; lines after the first begin with `indent` spaces. */
void vt_text_wrap(vt_buf *b, const char *text, int32_t indent, int32_t width);

/* ---- text from elsewhere: tokens, file names, messages ---- */

/* True for a character that makes a terminal act, or that makes text look like other text: the C0
 * controls except newline and tab, DEL, the C1 controls (U+0080..U+009F: U+009B begins a control
 * sequence as ESC [ does), and the marks that change the direction of writing (U+061C, U+200E,
 * U+200F, U+202A..U+202E, U+2066..U+2069). */
bool vt_text_is_control(uint32_t c);

/* Text on its way to a terminal in pieces that may end in the middle of a character. Begin with
 * zeros. */
typedef struct vt_shown {
    char held[4]; /* the beginning of a character, or a CR whose LF may follow */
    int32_t n_held;
} vt_shown;

/* Appends text[0..len) to b as a terminal may see it: a control character (as above) and each
 * ill-formed part become U+FFFD, CR LF becomes LF. Nothing else changes. */
void vt_text_show(vt_buf *b, vt_shown *s, const char *text, size_t len);
/* The text has ended: appends what was still held. */
void vt_text_show_end(vt_buf *b, vt_shown *s);
/* The same for a message of one line, in place: controls, newline and tab become spaces, ill-formed
 * parts '?'; a last character that was cut off is dropped. The text never grows. */
void vt_text_clean_line(char *text);

/* Three significant digits and a unit: "12.3 us", "1.05 GB/s" (powers of 1000), "2.0 GiB". */
void vt_text_time(vt_buf *b, double seconds);
void vt_text_bytes(vt_buf *b, double bytes);
void vt_text_rate(vt_buf *b, double per_second, const char *unit);

/* A bar of up to `cells` cells for a share in [0, 1]; at least one cell when share > 0. */
void vt_text_bar(vt_buf *b, double share, int32_t cells);
/* One glyph a value, or the mean of several where cells are fewer. NAN: a space. */
void vt_text_spark(vt_buf *b, const double *value, int32_t n, int32_t cells);

/* Cells of a table, row by row, with columns as wide as their widest cell. */
typedef struct vt_table {
    int32_t n_columns;
    bool right[VT_TABLE_COLUMNS]; /* right-aligned: numbers */
    vt_buf text;                  /* the cells, each NUL-terminated */
    int32_t n_cells;
} vt_table;

/* titles: "op|>time|share"; a '>' marks a right-aligned column. */
void vt_table_init(vt_table *t, const char *titles);
void vt_table_cell(vt_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends the table, each line behind `indent` spaces, and releases it. Lines wider than the
 * terminal are cut. */
void vt_table_finish(vt_table *t, vt_buf *b, const vt_term *term, int32_t indent);

/* "loading  [#####.....]  50 %  12.3 MB/s  4 s left": one line, no newline. total 0: unknown. */
void vt_text_progress(vt_buf *b, const char *label, double done, double total, double elapsed_s,
                      const char *unit);

#endif
