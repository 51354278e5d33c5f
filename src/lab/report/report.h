/* Reports: pages in markdown, one of them as HTML too, generated from the results of one machine's folder.
 *
 *   ROOT/TRACK/results/MACHINE/NN_name.json  -->  ROOT/TRACK/reports/MACHINE/INDEX.md, plan.md, ...
 *
 * Every measured number of a page comes from the results; the same results give the same bytes: no page has
 * the time of its making or a path of the machine that made it. A lab without a result gets "not
 * run here yet" and its command; an item without a value gets its reason. */
#ifndef VT_LAB_REPORT_REPORT_H
#define VT_LAB_REPORT_REPORT_H

#include "lab/kit/lab.h"

/* Writes all pages of the track, or with LAB_TRACKS those of every track. A result file that is
 * damaged is VT_ERR_FORMAT, and no page is written. Appends to *said a line a page that was
 * written. */
vt_status lab_report(const vt_options *o, lab_track only, vt_buf *said, vt_err *err);

#endif
