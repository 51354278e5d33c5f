/* Numbers as a person reads them: with a unit, three significant digits and "n/a" for what is not
 * known; alone, and inside of texts. */
#ifndef VT_BASE_FIGURE_H
#define VT_BASE_FIGURE_H

#include <stdarg.h>
#include <stddef.h>

#include "base/buf.h"

typedef enum vt_unit {
    VT_SECONDS,
    VT_BYTES,
    VT_BYTES_PER_S,
    VT_FLOP_PER_S,
    VT_TOKENS_PER_S,
    VT_SHARE, /* 0.5 prints as 50 % */
    VT_RATIO, /* 1.25 prints as 1.25x */
    VT_COUNT
} vt_unit;

/* "s", "B", "B/s", "FLOP/s", "tokens/s", "share", "ratio", "" */
const char *vt_unit_name(vt_unit u);
bool vt_unit_find(const char *name, vt_unit *out);

/* Appends the value; "n/a" where it is not finite. */
void vt_text_figure(vt_buf *b, double v, vt_unit unit);

/* The value alone, for a printf of another kind. */
typedef struct vt_figure {
    char text[48];
} vt_figure;
vt_figure vt_figure_of(double v, vt_unit unit);

/* vt_buf_printf for people: "%f UNIT", by its name above, is such a number, so that "%f s" of
 * 0.0012 is "1.2 ms". */
void vt_text_printf(vt_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vt_text_vprintf(vt_buf *b, const char *fmt, va_list args);

/* A form that is printed piece by piece: what vt_text_vprintf is made of. A list of arguments
 * cannot be left and taken up again. So each piece prints all of the form up to its own end, and is
 * what has been added. */
typedef struct vt_pieces {
    vt_buf upto;
    char *text;
    size_t told;
} vt_pieces;

/* The next piece, form[0..n), until the next call; NULL: out of memory. A number should be printed
 * by "%a", which loses nothing. */
const char *vt_pieces_next(vt_pieces *p, const char *form, size_t n, va_list args)
    __attribute__((format(printf, 2, 0)));
void vt_pieces_release(vt_pieces *p);
/* Returns the length of a number's form, "%f", a blank and its unit, that begins here; 0: none
 * does. */
size_t vt_figure_at(const char *form, vt_unit *unit);

#endif
