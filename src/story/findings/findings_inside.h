/* How the rules of findings.c and findings_more.c write what they find. */
#ifndef VT_STORY_FINDINGS_INSIDE_H
#define VT_STORY_FINDINGS_INSIDE_H

#include "story/findings/findings.h"

enum { FINDINGS_MAX = 64, FINDING_TEXT = 400 };

typedef struct finding {
    char severity; /* W: worth doing something about; N: good to know */
    const char *rule, *threshold;
    char cause[48]; /* findings of the same cause are told as one; "": of its own */
    char text[FINDING_TEXT];
    double gain_s; /* what could go at most, over the whole request; NAN: not known */
    uint64_t step; /* a step and a call to look at; 0, NULL: none */
    const char *call;
    vt_buf evidence;
    int order;
} finding;

typedef struct findings {
    vt_json *w; /* takes the members of the evidence, between finding_begin and finding_end */
    vt_json evidence;
    finding entry[FINDINGS_MAX];
    int n;
    double tokens; /* that the gains are divided by */
} findings;

/* Begins a finding; its gain, its cause and the members of its evidence follow, then
 * finding_end. */
void finding_begin(findings *f, char severity, const char *rule, const char *threshold,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Notes what could go at most: seconds of the whole request. */
void finding_gain(findings *f, double s);
void finding_cause(findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Where to look: a step (0: none) and a call of it (NULL: none). */
void finding_links(findings *f, uint64_t step, const char *call);
void finding_end(findings *f);
/* Writes "findings": what could bring most comes first. Releases the findings. */
void findings_write(findings *f, vt_json *w);

/* The rules of findings_cut.c. */
void findings_judge_cuts(findings *f, const phase *p);

/* The rules of findings_workers.c. */
void findings_judge_workers(findings *f, const story_input *in, const story_record *r,
                            const phase phases[STORY_PHASES], const story_facts *t);

/* The rules of findings_counters.c. `l2_bytes`: of the GPU's cache. */
void findings_judge_counters(findings *f, const counted_phase phases[STORY_PHASES],
                             double l2_bytes);

/* The rules of findings_more.c. */
void findings_judge_more(findings *f, const story_input *in, const phase phases[STORY_PHASES],
                         const story_more *more);

#endif
