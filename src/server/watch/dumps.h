/* Stories that the server writes into files by itself: of a request that missed a limit of --slo,
 * and of the last steps when the process gets SIGUSR2.
 *
 *   loop                                            helper thread
 *   a request ends ─> server_dumps_judge ─────────> story, file
 *   SIGUSR2 ───────> server_dumps_ask ────────────> story, file
 *                    counts, a line in the log <──
 *
 * The engine stands still while a story is made, some 10 ms, so requests that run meanwhile may
 * miss a limit too. Three rules keep a busy server from writing for ever because it writes:
 *   - at most one file in SERVER_DUMP_GAP_S seconds,
 *   - none of a request that began before the last story was made,
 *   - the newest SERVER_DUMPS files of a process stay, older ones are removed.
 * What is not written is counted (vitrine:story_files_total). */
#ifndef VT_SERVER_WATCH_DUMPS_H
#define VT_SERVER_WATCH_DUMPS_H

#include "load/measure.h"
#include "server/watch/observe.h"

enum { SERVER_DUMP_GAP_S = 10, SERVER_DUMPS = 32 };

/* The limits, in the order of their names. */
enum { SERVER_SLO_TTFT, SERVER_SLO_ITL, SERVER_SLO_TPOT, SERVER_SLO_E2E, SERVER_SLOS };
extern const char *const server_slo_names[SERVER_SLOS];

typedef struct server_dumps {
    vt_server *server;
    bool has_slo;
    vt_load_slo slo;
    char folder[1024]; /* of missed requests' stories; made at the start */
    bool asked;        /* by a signal; waits until another story has been made */
    int64_t ended_ns;  /* when the last story was made, whoever asked for it */
    int64_t begun_ns;  /* when the last file of a missed request was begun; */
    uint64_t n;        /* how many were */
    uint64_t missed[SERVER_SLOS], written, failed, skipped;
} server_dumps;

/* Reads options slo and story-dir. With --slo: makes the folder, and measures the machine's roofs
 * where they are not known yet, because the first story would do it while requests wait. */
vt_status server_dumps_new(vt_server *s, server_dumps **out, vt_err *err);

/* A request has ended: fills r->missed, and begins to write its story into r->dump where it missed
 * a limit and the rules above allow it. */
void server_dumps_judge(server_dumps *d, server_record *r);

/* "ttft,e2e" */
void server_slo_list(unsigned missed, char out[32]);

/* The last steps are to be written. */
void server_dumps_ask(server_dumps *d);

/* A story has been made, for whomever: the next may begin. */
void server_dumps_story_ended(server_dumps *d);

#endif
