/* The part of lab flashinfer 03 about pages: their layout, appending, and their size. */
#ifndef VT_LAB_FLASHINFER_PAGES_H
#define VT_LAB_FLASHINFER_PAGES_H

#include "lab/flashinfer/flashinfer.h"

/* Tells the items page_layout, append and page_size, and turns the page size. */
vt_status lab_tell_pages(lab *l, const lab_heads *h, vt_err *err);

#endif
