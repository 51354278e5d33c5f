#!/usr/bin/env python3
"""How the soak judges a server's memory: made-up samples of four minutes, one every two seconds."""
from tap import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "soak"))
sys.dont_write_bytecode = True
import judge

MIB, MINUTES = 1024, 4
TIMES = range(0, 60 * MINUTES, 2)


def samples(resident, rings=lambda t: 0, graphs=lambda t: 0):
    return [(t, resident(t), rings(t), graphs(t)) for t in TIMES]


def captured(t):
    """KiB of graphs: 32 at the start, and one more of 2 MiB every 5 s."""
    return (32 + t // 5) * 2 * MIB


def filled(t):
    """KiB of rings, full after 200 s."""
    return min(t, 200) * 100


def grown(*args, **kwargs):
    return judge.grown(samples(*args, **kwargs), MINUTES)


def test_growth_by_graphs_and_rings_passes():
    is_grown, why = grown(lambda t: 500 * MIB + captured(t) + filled(t), filled, captured)
    assert not is_grown, why
    assert "the rest: 500.0 MiB in the second quarter, 500.0 in the last" in why, why


def test_the_same_growth_without_graphs_fails():
    is_grown, why = grown(lambda t: 500 * MIB + captured(t) + filled(t), filled, lambda t: 32 * 2 * MIB)
    assert is_grown, why


def test_the_same_growth_without_rings_fails():
    assert grown(lambda t: 100 * MIB + captured(t) + filled(t), graphs=captured)[0]


def test_a_leak_beside_graphs_fails():
    """8 MiB a minute, behind graphs and rings, in a large process."""
    is_grown, why = grown(lambda t: 800 * MIB + captured(t) + filled(t) + t * 8 * MIB / 60, filled, captured)
    assert is_grown and "+8192 KiB a minute" in why, why


def test_graphs_that_do_not_give_their_memory_back_fail():
    """The cache is full after a minute: each capture takes the place of another, whose memory stays."""
    kept = lambda t: captured(min(t, 60))
    assert grown(lambda t: 500 * MIB + captured(t), graphs=kept)[0]


def test_memory_that_goes_up_and_down_passes():
    assert not grown(lambda t: 100 * MIB + t % 20 * 512)[0]


def test_short_soaks_are_not_judged():
    leak = samples(lambda t: 100 * MIB + t * MIB)
    assert judge.grown(leak, 4)[0] and not judge.grown(leak[:30], 1)[0] and not judge.grown(leak[:4], 4)[0]


main(globals())
