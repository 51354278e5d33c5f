#!/usr/bin/env python3
"""How the soak judges a server's memory: made-up looks at a server at rest, before and after more requests."""
from tap import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "soak"))
sys.dont_write_bytecode = True
import judge

MIB, MINUTES = 1024, 4


def grown(out=(30 * MIB, 30 * MIB), resident=(100 * MIB, 100 * MIB), rings=(0, 0), graphs=(0, 0)):
    return judge.grown(list(zip(out, resident, rings, graphs)), MINUTES)


def test_growth_by_graphs_and_rings_passes():
    is_grown, why = grown((800 * MIB, 1000 * MIB), (900 * MIB, 1120 * MIB), (0, 20 * MIB), (100 * MIB, 300 * MIB))
    assert not is_grown, why
    assert "the rest: 800.0 MiB, then 800.0" in why, why


def test_the_same_growth_without_graphs_fails():
    assert grown(resident=(900 * MIB, 1120 * MIB), rings=(0, 20 * MIB))[0]


def test_the_same_growth_without_rings_fails():
    assert grown((800 * MIB, 1000 * MIB), (900 * MIB, 1120 * MIB), graphs=(100 * MIB, 300 * MIB))[0]


def test_a_leak_beside_graphs_fails():
    """8 MiB, of mappings and of malloc, in a process whose graphs grow by 40."""
    assert not grown((200 * MIB, 240 * MIB), (300 * MIB, 340 * MIB), graphs=(60 * MIB, 100 * MIB))[0]
    assert grown((200 * MIB, 240 * MIB), (300 * MIB, 353 * MIB), graphs=(60 * MIB, 100 * MIB))[0]
    assert grown((200 * MIB, 248 * MIB), (300 * MIB, 348 * MIB), graphs=(60 * MIB, 100 * MIB))[0]


def test_graphs_that_do_not_give_their_memory_back_fail():
    """As many graphs are kept as before; each capture takes the place of another, whose memory stays."""
    assert grown((200 * MIB, 220 * MIB), (300 * MIB, 320 * MIB), graphs=(60 * MIB, 60 * MIB))[0]


def test_little_that_malloc_has_handed_out_is_seen_where_the_process_is_no_larger():
    """A leak of 2 MiB fits into what malloc kept for later."""
    assert not grown((30 * MIB, 30 * MIB + 300))[0]
    is_grown, why = grown((30 * MIB, 32 * MIB))
    assert is_grown and "30720 KiB at the first rest, 32768 at the last, at most 31744 expected" in why, why


def test_a_server_that_does_not_rest_fails():
    look = (30 * MIB, 100 * MIB, 0, 0)
    assert judge.grown([look, None], 4)[0] and judge.grown([None, look], 4)[0] and judge.grown([look], 4)[0] and judge.grown([], 4)[0]


def test_short_soaks_are_not_judged():
    assert not judge.grown([], 1)[0] and not judge.grown([(0, 0, 0, 0), (9 * MIB, 9 * MIB, 0, 0)], 1)[0]


main(globals())
