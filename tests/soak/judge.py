"""Whether a server that was soaked has grown, and by what. What it may hold more of as time goes on is told by its own metrics,
and is taken off first:

    resident  -  the recorder's rings  -  host memory of CUDA graphs  =  the rest, which must not grow

Both are bounded: rings are touched for the first time as they fill, and at most 192 graphs are kept. The server counts a graph's
bytes by its nodes and by what a node took at start-up, so memory that a later capture loses is not taken off."""
import statistics

SLACK_KIB, SLACK_SHARE, SLACK_OF_KIB = 4096, 0.03, 256 << 10  # 4 MiB and 3 % of up to 256 MiB


def rest(sample):
    """KiB of (seconds, resident, rings, graphs) that nothing accounts for."""
    _, resident, rings, graphs = sample
    return resident - rings - graphs


def grown(samples, minutes):
    """(whether the rest has grown from the second quarter of the time to the last, a sentence with the figures). Medians
    count: a story of everything that is recorded takes a hundred MiB for a moment. Before two minutes have gone, caches are still being filled for the first time, and nothing is said to have grown."""
    n = len(samples)
    if n < 8:
        return False, f"{n} samples are too few to tell"
    early = statistics.median(map(rest, samples[n // 4:n // 2]))
    late = statistics.median(map(rest, samples[3 * n // 4:]))
    half = samples[n // 2:]
    slope = statistics.linear_regression([s[0] / 60 for s in half], [rest(s) for s in half]).slope
    slack = SLACK_KIB + SLACK_SHARE * min(early, SLACK_OF_KIB)
    _, resident, rings, graphs = samples[-1]
    return minutes >= 2 and late > early + slack, (
        f"{resident / 1024:.1f} MiB at the end, of which rings {rings / 1024:.1f} and CUDA graphs {graphs / 1024:.1f}; the rest: "
        f"{early / 1024:.1f} MiB in the second quarter, {late / 1024:.1f} in the last, at most {(early + slack) / 1024:.1f} expected; "
        f"{slope:+.0f} KiB a minute in the second half")
