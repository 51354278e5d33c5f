"""Whether a server that was soaked has grown. It is looked at twice, at rest: nobody asks, the prefix cache is empty, and malloc has given
back what it kept for later (POST /flush_cache). Between the two it answers half as many requests as before the first. Two things must be
the same then:

    handed out  =  what malloc has handed out  -  host memory of CUDA graphs
    the rest    =  resident  -  the recorder's rings  -  host memory of CUDA graphs

Rings and graphs are bounded: rings are touched for the first time as they fill, and at most 192 graphs are kept. The server counts a
graph's bytes by its nodes and by what a node took at start-up, so memory that a later capture loses is not taken off.

While clients are at work the figures say little: a story of everything that is recorded takes 60 MiB for a moment, heaps of malloc's
come to be used by further threads, and in a build with ASan freed blocks stay in its quarantine and in its lists for each size."""

HANDED_OUT_SLACK_KIB = 1024  # ASan's quarantine keeps 64 KiB for each thread even when it is emptied
SLACK_KIB, SLACK_SHARE, SLACK_OF_KIB = 4096, 0.03, 256 << 10  # 4 MiB and 3 % of up to 256 MiB
GRAPHS_SHARE = 0.05  # of what graphs have grown by: how well a graph's bytes are known


def grown(looks, minutes):
    """(whether the server has grown, a sentence with the figures). looks: (KiB handed out, resident, of rings, of graphs) at the first
    rest and at the last, None for one that did not come. Before two minutes have gone, caches are still being filled for the first
    time, and nothing is said to have grown."""
    if minutes < 2:
        return False, "too short to tell"
    if len(looks) < 2 or None in looks:
        return True, "the server did not come to rest"
    handed_out = [out - graphs for out, _, _, graphs in looks]
    rest = [resident - rings - graphs for _, resident, rings, graphs in looks]
    known = GRAPHS_SHARE * max(0, looks[1][3] - looks[0][3])
    most_out = handed_out[0] + HANDED_OUT_SLACK_KIB + known
    most_rest = rest[0] + SLACK_KIB + SLACK_SHARE * min(rest[0], SLACK_OF_KIB)
    _, resident, rings, graphs = looks[1]
    return handed_out[1] > most_out or rest[1] > most_rest, (
        f"malloc has handed out {handed_out[0]:.0f} KiB at the first rest, {handed_out[1]:.0f} at the last, at most {most_out:.0f} expected; "
        f"{resident / 1024:.1f} MiB at the end, of which rings {rings / 1024:.1f} and CUDA graphs {graphs / 1024:.1f}; the rest: "
        f"{rest[0] / 1024:.1f} MiB, then {rest[1] / 1024:.1f}, at most {most_rest / 1024:.1f} expected")
