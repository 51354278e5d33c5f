/* The table of all knobs: knobs.md, made from the results of every named machine.
 *
 *   ROOT/TRACK/results/MACHINE/NN_name.json, of all tracks and machines   -->   ROOT/knobs.md
 *
 * One row a knob, one column a machine. The same results give the same bytes. */
#ifndef VT_LAB_REPORT_KNOB_TABLE_H
#define VT_LAB_REPORT_KNOB_TABLE_H

#include "lab/kit/lab.h"

/* A knob that the labs must let people turn. */
typedef struct lab_wanted_knob {
    const char *name;
    const char *where; /* where it lives */
    /* A knob of a result is this one if its name or its place has one of these; NULL: no more. */
    const char *mark[3];
    const char *lab; /* which lab turns it, or would: "mini-sglang 02" */
} lab_wanted_knob;

extern const lab_wanted_knob lab_wanted_knobs[]; /* ends with name NULL */

/* The page, of the machines that have a folder of results under ROOT (result.h). The folder `local`
 * has a column only where it is the only one, or where --machine asks for it. A damaged result is
 * VT_ERR_FORMAT. */
vt_status lab_knob_table(const vt_options *o, vt_buf *out, vt_err *err);
/* The page of these two machines, of which each has this result of the lab (NULL: none); for
 * tests. It fails where a result has too many knobs. */
vt_status lab_knob_table_of(const lab_def *d, json_t *first, json_t *second, vt_buf *out,
                            vt_err *err);

#endif
