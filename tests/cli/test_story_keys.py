#!/usr/bin/env python3
"""A story's page is used by keys alone: Tab comes to every control, in order and to be seen, and the keys of the timeline
do what its line says."""
import json, os, tempfile

from browser import Browser
from tap import *

STORY = os.path.join("tests", "golden", "stories", "cpu.json")
HOME = tempfile.TemporaryDirectory()
# a table that is wider than its place is one too, unless a link in it brings it into view
CONTROLS = """[...document.querySelectorAll('a[href], button, summary, [tabindex="0"], .scroll')].filter((e) => e.getClientRects().length &&
    (!e.matches('.scroll') || e.scrollWidth > e.clientWidth && !e.querySelector('a[href]')))"""
NAME = """((e) => e.id || e.dataset.do || e.getAttribute("href") || e.textContent.slice(0, 40))"""


def page_of():
    path = os.path.join(HOME.name, "story.html")
    if not os.path.exists(path):
        run_path = os.path.join(HOME.name, "run.json")
        ok("run", f"--story={run_path}", "--quiet", *FAST, *model(), "-n", "12", "--seed", "3", "Count to ten.")
        ok("story", "export", run_path, "--to", "html", "-o", path)
    return "file://" + os.path.abspath(path)


def told(b):
    return b.value("document.getElementById('told').textContent")


def view(b):
    """The stretch of time that is drawn, in us; the address has it some time after the key."""
    wait_until(lambda: b.value("location.hash.startsWith('#t=')"), "the address to have the place")
    b.value("new Promise((done) => setTimeout(done, 250))")
    return [float(v) for v in b.value("location.hash.slice(3)").split("-")]


def near(a, b):
    assert len(a) == len(b) and all(abs(x - y) < 0.2 for x, y in zip(a, b)), (a, b)


def spans(track):
    """The page's own spans of a track, by their begins."""
    text = open(page_of()[7:]).read()
    data = json.loads(text.split('id="trace">', 1)[1].split("</script>", 1)[0])
    return sorted((s for s in data["spans"] if s[0] == track), key=lambda s: s[2])


def focused(url, **how):
    b = Browser(url, **how)
    b.value("document.querySelector('[data-do=all]').focus()")
    b.press("Tab")
    same(b.value("document.activeElement.id"), "spans")
    return b


def test_tab_comes_to_every_control_in_order_and_shows_it():
    for how in ({"size": (1280, 900)}, {"size": (390, 800), "dark": True}):
        with Browser(page_of(), **how) as b:
            want = b.value(f"{CONTROLS}.map({NAME})")
            assert {"in", "out", "all", "spans", "#timeline"} <= set(want), want
            for i, name in enumerate(want):
                b.press("Tab")
                got = b.value(f"""(() => {{ const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
                    return [{NAME}(e), s.outlineStyle, parseFloat(s.outlineWidth), r.bottom > 0 && r.top < innerHeight]; }})()""")
                same(got[0], name, f"control {i} of {len(want)}")
                assert got[1] != "none" and got[2] >= 1, f"{name} does not show that it has the focus: {got}"
                assert got[3], f"{name} has the focus and is out of sight"
            same(b.said, [])


def test_tab_goes_on_behind_the_timeline():
    with focused(page_of()) as b:
        b.press("Tab")
        assert b.value("document.activeElement.id") != "spans", "the timeline keeps the focus"
        b.press("Tab", "Shift")
        same(b.value("document.activeElement.id"), "spans")


def test_keys_zoom_and_move_the_timeline():
    with focused(page_of()) as b:
        b.press("0")
        a, z = whole = view(b)
        span, middle = z - a, (a + z) / 2
        b.press("+")
        near(view(b), [middle - 0.35 * span, middle + 0.35 * span])
        a, z = view(b)
        by = (z - a) / 8
        b.press("ArrowRight")
        near(view(b), [a + by, z + by])
        b.press("ArrowLeft")
        near(view(b), [a, z])
        b.press("ArrowLeft")
        near(view(b), [a - by, z - by])
        b.press("-")
        b.press("-")
        near(view(b), whole)
        b.press("=")
        b.press("0")
        near(view(b), whole)
        same(b.said, [])


def test_keys_go_from_span_to_span_and_from_track_to_track():
    steps, calls = spans(1), spans(2)
    assert len(steps) > 3 and len(calls) > 3
    with focused(page_of()) as b:
        rest = told(b)
        assert " spans from " in rest, rest
        for key, step in (("n", 0), ("n", 1), ("n", 2), ("p", 1)):
            b.press(key)
            assert told(b).startswith(steps[step][1]) and f"step {steps[step][4]} " in told(b) + " ", (key, told(b))
        b.press("p")
        b.press("p")  # there is none before the first
        assert f"step {steps[0][4]} " in told(b) + " ", told(b)
        b.press("ArrowDown")
        call = next(s for s in calls if s[2] + (s[3] or 0) > steps[0][2])
        assert told(b).startswith(call[1] + ": ") and f"in step {call[4]}" in told(b), told(b)
        b.press("n")
        assert told(b).startswith(calls[calls.index(call) + 1][1] + ": "), told(b)
        b.press("ArrowUp")
        assert told(b).startswith(steps[0][1]), told(b)
        b.press("Escape")
        same(told(b), rest)


def test_a_chosen_span_is_in_view():
    steps = spans(1)
    with focused(page_of() + f"#step={steps[1][4]}") as b:
        for _ in range(6):
            b.press("+")
        b.press("n")
        a, z = view(b)
        assert a <= steps[2][2] and steps[2][2] <= z, (a, z, steps[2])


def test_the_browsers_own_keys_stay_the_browsers():
    with focused(page_of()) as b:
        for key, held in (("+", "ctrlKey"), ("0", "metaKey"), ("ArrowLeft", "altKey"), ("x", "shiftKey"), ("ArrowDown", "shiftKey")):
            left = b.value(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', {held}: true, cancelable: true}}))")
            assert left, f"{held} and {key} is taken from the browser"
        assert not b.value("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '+', cancelable: true}))")


def test_buttons_zoom_by_keys():
    with Browser(page_of()) as b:
        b.value("document.querySelector('[data-do=all]').focus()")
        b.press(" ")
        a, z = view(b)
        b.press("Tab", "Shift")
        b.press("Tab", "Shift")
        same(b.value("document.activeElement.dataset.do"), "in")
        b.press(" ")
        near(view(b), [(a + z) / 2 - (z - a) / 4, (a + z) / 2 + (z - a) / 4])


main(globals())
