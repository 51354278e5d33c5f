#!/usr/bin/env python3
"""The live page in headless Chromium: `make test-page`. Skipped without Python's playwright or without a Chromium.

VITRINE_SHOTS=FOLDER keeps screenshots: desktop light and dark, phone."""
import atexit, json, os, re, shutil, sys, threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
from tap import *

try:
    from playwright.sync_api import sync_playwright, expect
except ImportError:
    sync_playwright = None

SHOTS = os.environ.get("VITRINE_SHOTS")
OPEN = {}


def serve(name, env=None):
    if name not in OPEN:
        p = start("serve", *FAST, *model(), "--port", "0", env=env)
        atexit.register(p.kill)
        text = b""
        while not (m := re.search(rb"(http://\S+:\d+) serves", text)):
            piece = os.read(p.stderr.fileno(), 4096)
            assert piece, "the server ended: " + text.decode("utf-8", "replace")
            text += piece
        threading.Thread(target=lambda: p.stderr.read(), daemon=True).start()
        OPEN[name] = m.group(1).decode()
    return OPEN[name]


def browser():
    if not sync_playwright:
        skip("there is no playwright for Python")
    if "browser" not in OPEN:
        where = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        play = sync_playwright().start()
        atexit.register(play.stop)
        try:
            OPEN["browser"] = play.chromium.launch(executable_path=where, args=["--no-sandbox"])
        except Exception as e:
            skip(f"no Chromium could be started: {str(e)[:80]!r}")
    return OPEN["browser"]


class page:
    """A page in a context of its own; at its end nothing may have been said on the console but what is allowed."""

    def __init__(self, width=1440, height=900, scheme="light", server="open", env=None, allowed=()):
        self.url, self.allowed, self.said = serve(server, env), allowed, []
        self.context = browser().new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120000)
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))

    def __enter__(self):
        self.page.goto(self.url + "/")
        return self.page

    def __exit__(self, kind, *rest):
        self.context.close()
        if kind is None:
            same([s for s in self.said if not any(a in s for a in self.allowed)], [], "console")


def shoot(p, name):
    if SHOTS:
        p.screenshot(path=os.path.join(SHOTS, name + ".png"))


def ask(p, text, longest=24):
    p.evaluate("n => document.querySelector('#longest').value = n", longest)
    p.fill("#text", text)
    p.press("#text", "Enter")


def ended(p):
    p.wait_for_selector(".answer:not(.open) .facts")


def wait_for(p, condition):
    """Polls from here: the page's policy does not let Playwright poll in the page."""
    wait_until(lambda: p.evaluate(condition), condition)


def wide(p):
    return p.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def drawn(p, canvas):
    """How many colours a canvas shows."""
    return p.evaluate("""id => { const c = document.getElementById(id), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2]); return seen.size; }""", canvas)


def test_a_chat_shows_in_the_engine():
    """An answer streams in; its request is in the batch, its pages on the map, its prompt in the tree, its times told."""
    for scheme in ("light", "dark"):
        with page(scheme=scheme) as p:
            expect(p.locator("#state")).to_contain_text("live")
            ask(p, "Why is the sky blue?")
            ended(p)
            assert p.inner_text(".answer .body").strip()
            assert "tokens" in p.inner_text(".facts")
            wait_for(p, "document.querySelector('#f-done').textContent[0] !== '0'")
            p.wait_for_timeout(600)
            for canvas in ("c-steps", "c-line", "c-map", "c-tree", "c-times"):
                assert drawn(p, canvas) > 1, canvas
            same(wide(p), 0, "overflow")
            shoot(p, "desktop_" + scheme)


def test_keys_of_the_keyboard():
    """Shift-Enter breaks the line, Enter sends, Esc stops; arrows choose a step; focus goes from the text to the button."""
    with page() as p:
        expect(p.locator("#state")).to_contain_text("live")
        p.fill("#text", "one")
        p.press("#text", "Shift+Enter")
        p.type("#text", "two")
        same(p.input_value("#text"), "one\ntwo")
        p.press("#text", "Tab")
        same(p.evaluate("document.activeElement.id"), "send")
        p.fill("#text", "")
        ask(p, "Count to a thousand.", 400)
        wait_for(p, "document.querySelector('.answer .body').textContent.length > 5")
        p.keyboard.press("Escape")
        expect(p.locator("#send")).to_have_text("Send")
        expect(p.locator(".facts")).to_contain_text("stopped")
        expect(p.locator("#f-running")).to_have_text("0")
        p.focus("#c-steps")
        before = p.inner_text("#t-steps")
        p.keyboard.press("ArrowLeft")
        p.keyboard.press("ArrowLeft")
        assert p.inner_text("#t-steps") != before


def test_four_answers_at_once():
    """One request with four samples: four bodies fill."""
    with page() as p:
        expect(p.locator("#state")).to_contain_text("live")
        p.evaluate("document.querySelector('#longest').value = 12")
        p.click("#ideas button:nth-child(3)")
        ended(p)
        same(p.evaluate("[...document.querySelectorAll('.answers .body')].filter(b => b.textContent.trim()).length"), 4)


def test_a_phone():
    """390 pixels: nothing is wider, the two views are tabs, both usable."""
    for scheme in ("light", "dark"):
        with page(390, 844, scheme) as p:
            expect(p.locator("#state")).to_contain_text("live")
            ask(p, "Name three colours.")
            ended(p)
            same((wide(p), p.is_visible("#engine")), (0, False))
            shoot(p, f"phone_chat_{scheme}")
            p.click("#tab-engine")
            same((wide(p), p.is_visible("#engine"), p.is_visible("#chat")), (0, True, False))
            p.wait_for_timeout(600)
            assert drawn(p, "c-steps") > 1
            cut = p.evaluate("[...document.querySelectorAll('.figures dd')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)")
            same(cut, [], "figures that are cut")
            shoot(p, f"phone_engine_{scheme}")
            p.keyboard.press("ArrowLeft")
            same(p.get_attribute("#tab-chat", "aria-selected"), "true")


def test_keys_are_asked_for_and_forgotten():
    """With keys: a user's opens the chat, an administrator's the engine; both stay in this tab's session alone."""
    env = {"VITRINE_API_KEY": "user", "VITRINE_ADMIN_KEY": "admin"}
    with page(server="locked", env=env, allowed=("401",)) as p:
        expect(p.locator("#notice")).to_be_visible()
        ask(p, "Hello")
        expect(p.locator("#ask-key")).to_be_visible()
        p.fill("#key-text", "user")
        p.press("#key-text", "Enter")
        ended(p)
        expect(p.locator("#notice")).to_be_visible()
        p.click("#notice button")
        p.fill("#key-text", "admin")
        p.press("#key-text", "Enter")
        expect(p.locator("#state")).to_contain_text("live")
        expect(p.locator("#notice")).to_be_hidden()
        same(p.evaluate("[localStorage.length, document.cookie, sessionStorage.length]"), [0, "", 2])


def test_a_bar_opens_the_story_behind_it():
    """The histogram's bar of the first token, by mouse and by keyboard; and the story as a page of its own."""
    with page() as p:
        expect(p.locator("#state")).to_contain_text("live")
        ask(p, "Why?")
        ended(p)
        p.wait_for_timeout(800)
        p.locator("#c-times").scroll_into_view_if_needed()
        title = lambda: p.get_attribute("#c-times", "title") or ""
        box, found = p.locator("#c-times").bounding_box(), None
        for x in range(2, int(box["width"]), 4):
            p.mouse.move(box["x"] + x, box["y"] + box["height"] / 4)
            if title():
                found = title()
                break
        assert found and found.startswith("opens the story of request "), found
        request = found.split()[-1]
        p.mouse.click(box["x"] + x, box["y"] + box["height"] / 4)
        expect(p.locator("#story-title")).to_have_text(f"Story of request {request}")
        wait_for(p, "document.querySelector('#story pre').textContent.startsWith('REQUEST')")
        shoot(p, "bar")
        with p.context.expect_page() as opened:
            p.click("#story-page")
        opened.value.wait_for_load_state()
        assert opened.value.url.endswith(f"/story/{request}?format=html"), opened.value.url
        assert opened.value.locator("h1, h2").count() > 2
        opened.value.close()
        p.keyboard.press("Escape")
        p.focus("#c-times")
        p.keyboard.press("ArrowRight")
        first = title()
        p.keyboard.press("ArrowRight")
        assert title().startswith("opens the story of request ") and first, (first, title())
        p.keyboard.press("Enter")
        expect(p.locator("#story-title")).to_contain_text("Story of request")


def lane_of(p):
    """How many pixels of the first request's lane in the timeline are drawn, along its middle."""
    return p.evaluate("""() => { const c = document.getElementById('c-line'), s = devicePixelRatio;
        const d = c.getContext('2d').getImageData(0, Math.round((2 * 17 + 8) * s), c.width, 1).data; let n = 0;
        for (let i = 4 * Math.round(70 * s); i < d.length; i += 4) if (d[i + 3] > 200) n++; return n; }""")


def test_the_timeline_zooms_moves_and_opens_a_story_by_keyboard():
    """Each request has a lane; keys zoom, move and choose; a phone has buttons, and nothing is cut."""
    for width in (1440, 390):
        with page(width, 900, allowed=("getImageData",)) as p:
            expect(p.locator("#state")).to_contain_text("live")
            ask(p, "Why is the sky blue?", 60)
            ended(p)
            if width == 390:
                p.click("#tab-engine")
            p.wait_for_timeout(600)
            p.focus("#c-line")
            told = lambda: p.inner_text("#t-line")
            before = told()
            assert before.startswith("Step ") and " before now" in before, before
            p.keyboard.press("ArrowLeft")  # the newest, then the one before it
            p.keyboard.press("ArrowLeft")
            chosen = told()
            assert chosen.split(",")[0] != before.split(",")[0], (before, chosen)
            p.keyboard.press("ArrowRight")
            same(told().split(",")[0], before.split(",")[0])
            for _ in range(5):
                p.keyboard.press("+")
            for _ in range(9):
                p.keyboard.press("ArrowLeft")
            p.wait_for_timeout(600)  # a look later it still shows what was chosen
            assert drawn(p, "c-line") > 3
            assert lane_of(p) > 20, "the lane of the request"
            p.locator("#c-line").scroll_into_view_if_needed()
            shoot(p, f"timeline_{width}")
            p.keyboard.press("ArrowDown")
            assert "opens the story of request " in told(), told()
            request = told().split("request ")[-1].rstrip(".")
            p.keyboard.press("Enter")
            expect(p.locator("#story-title")).to_have_text(f"Story of request {request}")
            p.keyboard.press("Escape")
            p.keyboard.press("PageUp")
            p.keyboard.press("End")
            p.click("#line-out")
            p.click("#line-in")
            p.click("#line-now")
            same(wide(p), 0, "overflow")
            assert drawn(p, "c-line") > 3, "an idle engine's last steps"
            shoot(p, f"timeline_now_{width}")


def test_a_story_opens_or_says_why_not():
    """The dialog has the story's text, or a sentence; Esc closes it."""
    with page(allowed=("404", "501")) as p:
        expect(p.locator("#state")).to_contain_text("live")
        ask(p, "Hello")
        ended(p)
        p.click(".facts button")
        wait_for(p, "document.querySelector('#story pre').textContent.length > 20")
        shoot(p, "story")
        p.keyboard.press("Escape")
        expect(p.locator("#story")).to_be_hidden()


def test_names_and_roles():
    """Every control has a name, every drawing a description, the answer a live region; text has contrast enough."""
    for scheme in ("light", "dark"):
        with page(scheme=scheme) as p:
            expect(p.locator("#state")).to_contain_text("live")
            nameless = p.evaluate("""[...document.querySelectorAll('button, input, textarea, canvas, [role=log], section')].filter(e =>
                !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.getAttribute('aria-hidden'))).map(e => e.outerHTML)""")
            same(nameless, [])
            same(p.get_attribute("#log", "aria-live"), "polite")
            same(p.get_attribute("html", "lang"), "en")
            ratios = p.evaluate("""(() => { const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
                return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
                const probe = document.createElement('i'); document.body.append(probe); const of = name => { probe.style.color = `var(${name})`; return light(getComputedStyle(probe).color); };
                return [['--ink', '--card'], ['--soft', '--card'], ['--soft', '--ground'], ['--on-accent', '--accent'], ['--bad', '--ground']].map(([a, b]) => {
                    const [x, y] = [of(a), of(b)].sort((p, q) => q - p); return [a + ' on ' + b, (x + .05) / (y + .05)]; }); })()""")
            low = [(n, r) for n, r in ratios if r < 4.5]
            same(low, [], "contrasts below 4.5")


main(globals())
