/* The parts of a page of HTML: its head, and of a story sections (html_rows.c) and drawings
 * (html_draw.c). */
#ifndef VT_STORY_HTML_H
#define VT_STORY_HTML_H

#include "story/page/page.h"

/* Text with &, <, >, " and ' as entities: it may stand in an element or in a quoted attribute. */
void html_text(vt_buf *b, const char *text);
/* From the doctype to the beginning of the body: the style of all pages and `style` after it ("":
 * nothing), and a policy by which nothing is loaded. One script may run, the story's, if the page
 * is `scripted`; else none. */
void html_head(vt_buf *b, const char *title, const char *style, bool scripted);
/* A bar of a share of the whole, from `from` on; nothing where one of them is NAN. */
void html_bar(vt_buf *b, double from, double share);
/* A section with all of its rows. */
void html_section(vt_buf *b, const page *p, const page_section *s);
/* The gaps between the tokens of the request; nothing where the story has fewer than two. */
void html_ribbon(vt_buf *b, const json_t *story);
/* The ops of all phases under the measured roofs; nothing where there are no roofs or no ops. */
void html_roofline(vt_buf *b, const json_t *story);
/* A line through numbers, of which those that are NAN are left out. */
void html_spark(vt_buf *b, const double *value, int32_t n);

#endif
