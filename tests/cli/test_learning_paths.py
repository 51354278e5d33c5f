#!/usr/bin/env python3
"""The learning paths of labs/PLAN.md: every command that stands there runs, in its order; what the page says of a lab's
output is what a lab prints; a reader at a terminal is told what comes before a question; and the words of stories, README
and docs are in the glossary."""
import glob, json, os, pty, re, select, shlex, shutil, subprocess, tempfile, time

from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache"),
       "VITRINE_EMULATOR": "cc=90,memory=512"}
PATHS = ("Beginner", "Intermediate", "Advanced")
# Commands of the paths that another test runs in the same form: its file, and a line that is there because it does.
ELSEWHERE = {
    "vitrine lab sglang 02 --quick": ("test_labs_sglang.py", 'check_lab("02"'),
    "vitrine lab sglang 05 --quick --ncu": ("test_labs_sglang.py", 'lab("05", d, "--ncu"'),
    "vitrine lab mini-sglang 06 --quick --nsys": ("test_labs_mini_sglang.py", 'script("./scripts/06_full_pipeline.sh --quick --nsys"'),
    "vitrine lab sglang 04 --quick": ("test_labs_sglang.py", 'check_lab("04"'),
    "vitrine lab flashinfer 02 --quick": ("test_labs_flashinfer.py", '"02_profile_prefill": ('),
    "vitrine lab flashinfer 03 --quick": ("test_labs_flashinfer.py", '"03_profile_decode": ('),
}

work = tempfile.TemporaryDirectory(prefix="learning-paths-")


def read(path):
    return open(path, encoding="utf-8").read()


def plan():
    return read("labs/PLAN.md")


def section(text, heading):
    """The text below a heading, down to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}.*\n((?s:.*))", text, re.M)
    assert found, f"no heading '{heading}' in: {text[:200]}"
    level, rest = found.groups()
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]


def commands(path):
    """The lines of code below the heading of a path: those that are indented deeper than an item of a list."""
    found = re.findall(r"^ {7}(\S.*)$", section(plan(), path), re.M)
    assert found, path
    return found


def do(command):
    """Runs a command of a path as it stands, but that results and objects go to a folder of this test."""
    argv = shlex.split(command.replace("/tmp/", work.name + "/"))
    extra = {} if have_model() else {"VITRINE_MODEL": DUMMY}
    if argv[0] != "vitrine":
        subprocess.run(argv, check=True)
        return Result(0, b"", b"")
    if argv[1] == "lab" and argv[2] != "kernel":
        argv += ["--results", work.name]
    if "cuda" in argv:
        if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
            return None
        extra = GPU
    if argv[1] == "run":
        if not have_model():
            return None
        argv += FAST
    r = run(*argv[1:], env=extra)
    assert r.code == 0, f"{command}: exit {r.code}: {r.log}"
    assert r.text, f"{command} printed nothing"
    return r


def walk(path):
    if SANITIZED:
        skip("the release build does it")
    out, left_out = {}, []
    for command in commands(path):
        if command in ELSEWHERE:
            name, line = ELSEWHERE[command]
            assert line in read("tests/cli/" + name), f"{name} does not run '{command}'"
            continue
        out[command] = do(command)
        if not out[command]:
            left_out.append(command)
    assert len(left_out) < len(out), left_out
    for command in left_out:
        print(f"# left out, as the model or the emulated GPU is not here: {command}")
    return out


def test_the_beginners_path():
    out = walk("Beginner")
    listed = out["vitrine lab mini-sglang report"].text.split()
    for page in ("environment.md", "kernel-dev-guide.md"):  # which the step says to read
        at = next(p for p in listed if os.path.basename(p) == page)
        assert os.path.getsize(at) > 1000, at
    assert "\n## Overview\n" in read(next(p for p in listed if p.endswith("kernel-dev-guide.md")))
    assert re.search(r"^\d+ of 14 criteria are done", out["vitrine lab status"].text, re.M)


def test_the_intermediate_path():
    out = walk("Intermediate")
    listed = out["vitrine lab mini-sglang report"].text.split()
    assert any(p.endswith("analysis.md") for p in listed), listed


def test_the_advanced_path():
    walk("Advanced")
    made = run("lab", "mini-sglang", "report", "--results", work.name)
    guide = next(p for p in made.text.split() if p.endswith("kernel-dev-guide.md"))
    assert "\n## How to add a kernel" in read(guide), "the section that the path says to read"


def test_every_path_has_steps_and_the_reports_have_the_same():
    everything = sum(map(commands, PATHS), [])
    same([len(commands(p)) >= n for p, n in zip(PATHS, (5, 5, 5))], [True] * 3, "commands of the paths")
    for command in ELSEWHERE:
        assert command in everything, f"no path has '{command}' any more"
    made = run("lab", "mini-sglang", "report", "--results", work.name)
    index = section(read(next(p for p in made.text.split() if p.endswith("INDEX.md"))), "Learning paths")
    named = re.findall(r"`(vitrine [^`]+)`", index)
    assert len(named) >= 8, index
    for command in named:
        assert command in everything, f"INDEX.md has '{command}', which labs/PLAN.md lacks"


def test_the_readme_leads_to_the_paths_and_the_glossary():
    text = read("README.md")
    assert "(labs/PLAN.md#learning-paths)" in text and "(labs/GLOSSARY.md)" in text
    assert "export PATH=$PWD/build:$PATH" in text and "export PATH=$PWD/build:$PATH" in plan()
    assert "labs/PLAN.md" in ok("lab").text.split("\n\n")[0], "the list of labs begins with where to begin"


def test_the_page_explains_the_sections_that_a_lab_prints():
    explained = re.findall(r"^\| (\d [A-Z]+) \|", section(plan(), "What a lab prints"), re.M)
    printed = re.findall(r"^(\d [A-Z]+)$", ok("lab", "sglang", "00", "--quick", "--results", work.name).text, re.M)
    same(explained, printed, "sections")


def test_the_page_explains_every_part_of_a_story():
    need_model()
    story = ok("run", "Tell me about the sea.", "-n", "24", "--ignore-eos", "--story", *FAST, *model())
    explained = re.findall(r"^\| ([A-Z][A-Z ]+?) \|", section(plan(), "What a story prints"), re.M)
    parts = re.findall(r"^([A-Z]{4,}(?: [A-Z]{2,})*)\b(?! \d)", story.text + story.log, re.M)
    assert "TIME" in parts and "FINDINGS" in parts, parts
    same([p for p in parts if p not in explained], [], "parts of a story that the page does not explain")


def test_the_pages_of_a_path_have_its_commands():
    for path in PATHS:
        text = section(plan(), path)
        for command, track, number in re.findall(r"^ {7}(vitrine lab ([\w-]+) (\d\d) .*)$", text, re.M):
            page, = glob.glob(f"labs/{track}/{number}_*.md")
            assert f"({track}/{os.path.basename(page)})" in text, f"the path has '{command}' and no link to {page}"
            assert re.search(rf"^ *{re.escape(command)}( .*)?$", read(page), re.M), f"{page} lacks '{command}'"


def test_what_a_page_points_at_is_printed():
    """What a page's list 'What to look at' names first in an item stands in its output, or is a label of an item (but for
    files, which a lab leaves beside its result)."""
    labels = "".join(map(read, glob.glob("src/lab/**/*.c", recursive=True))).replace('"\n', "").lower()
    labels = " ".join(re.findall(r'\{"\w+",\s*"([^}]*)', re.sub(r'"\s+"', "", labels)))
    pointed = 0
    for page in sum((glob.glob(f"labs/{track}/*_*.md") for track in ("sglang", "mini-sglang", "flashinfer")), []):
        shown = " ".join("".join(re.findall(r"^```.*?^```", read(page), re.M | re.S)).lower().split())
        for name in re.findall(r"^- `([^`]+)`", section(read(page), "What to look at"), re.M):
            assert os.path.splitext(name)[1] or name.lower() in shown or name.lower() in labels, f"{page}: nothing printed is called '{name}'"
            pointed += 1
    assert pointed > 20, pointed


def test_links_with_a_place_in_a_page_find_it():
    for page in ("README.md", "labs/PLAN.md", "docs/story-format.md"):
        for path, name in re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", read(page)):
            target = os.path.join(os.path.dirname(page), path) if path else page
            assert name in map(anchor, re.findall(r"^#+ (.*)$", read(target), re.M)), f"{page}: {path}#{name}"


# ---- a reader at a terminal ----

def at_terminal(answers, *args, thinks_s=0):
    """What the program writes to the terminal (stderr; stdout too), with `answers` typed one after the other, each
    thinks_s after it asks."""
    keyboard, terminal = pty.openpty()
    p = subprocess.Popen([BIN, *args], stdin=terminal, stdout=terminal, stderr=terminal, env=clean_env({"NO_COLOR": "1"}))
    os.close(terminal)
    seen, asked, left = b"", 0, list(answers)
    while True:
        assert select.select([keyboard], [], [], LIMIT_S)[0], seen
        try:
            piece = os.read(keyboard, 65536)
        except OSError:  # the terminal is closed: the program has ended
            break
        seen += piece
        if left and seen.count(b"Enter to skip):") > asked:
            asked += 1
            time.sleep(thinks_s)
            os.write(keyboard, left.pop(0).encode() + b"\n")
    same((p.wait(LIMIT_S), left), (0, []), seen)
    os.close(keyboard)
    return seen.decode("utf-8").replace("\r\n", "\n")


def test_a_lab_says_what_it_does_before_it_asks_and_asks_again_after_a_slip():
    args = ["lab", "sglang", "00", "--quick", "--results", work.name]
    seen = at_terminal(["soon", "7 apples", "30GB/s"], *args)
    before = seen.split("What do you expect?")[0]
    assert before.startswith("LAB sglang 00 check_env\n  You know what this machine has"), before
    same(seen.count("What do you expect?"), 3)
    assert "'7 apples' has no unit that fits; an answer looks like 40GB/s" in seen, seen
    assert "you said 30.0 GB/s" in seen, seen
    skipped = at_terminal([""], *args)
    assert "you said" not in skipped and skipped.count("What do you expect?") == 1, skipped
    assert not ok(*args, "--no-predict", "--quiet").log
    fails(2, ["--predict", "soon"], *args, "--predict", "soon", "--quiet")  # nobody is there who could be asked again


def test_the_seconds_of_a_lab_leave_out_the_time_that_the_reader_thinks():
    thinks_s, begin = 2, time.monotonic()
    at_terminal([""], "lab", "sglang", "00", "--quick", "--results", work.name, thinks_s=thinks_s)
    whole_s = time.monotonic() - begin
    path = glob.glob(os.path.join(work.name, "sglang", "results", "*", "00_check_env.json"))[0]
    # whatever the machine's load: the lab's own seconds and the reader's are parts of the whole
    assert json.loads(read(path))["seconds"] <= whole_s - thinks_s, whole_s


# ---- the glossary ----

def anchor(heading):
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def terms():
    return {anchor(t): t for t in re.findall(r"^### (.*)$", read("labs/GLOSSARY.md"), re.M)}


def test_links_from_everywhere_find_their_term():
    known, links = terms(), 0
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *glob.glob("docs/*.md"), *glob.glob("labs/**/*.md", recursive=True)]:
        for path, name in re.findall(r"\]\(([^)\s#]*GLOSSARY\.md)(?:#([^)\s]*))?\)", read(page)):
            assert os.path.exists(os.path.join(os.path.dirname(page), path)), (page, path)
            assert not name or name in known, f"{page}: the glossary has no term {name}"
            links += 1
    assert links > 100, links


def test_every_page_of_a_lab_leads_to_the_glossary():
    for page in glob.glob("labs/*/*_*.md"):
        assert "../GLOSSARY.md#" in read(page), f"{page} links no term of the glossary"


def test_the_words_of_a_story_are_in_the_glossary():
    """docs/story-format.md has them, each linked to its term; and stories use them: this one, or those of other machines
    and sizes, whose words are in the sources."""
    need_model()
    words = re.findall(r"^\| `([^`]+)` \|.*\(\.\./labs/GLOSSARY\.md#([\w-]+)\)", section(read("docs/story-format.md"), "Words on the terminal"),
                       re.M)
    assert len(words) >= 12, words
    story = ok("run", "Tell me about the sea.", "-n", "24", "--ignore-eos", "--story", *FAST, *model())
    shown = " ".join((story.text + story.log).split())
    sources = [path for layer in ("src/story", "src/ops/linear") for path in glob.glob(layer + "/**/*.c", recursive=True)]
    others = "".join(map(read, sources))
    same([w for w, _ in words if w not in shown + others], [], "words that no story says")
    assert sum(w in shown for w, _ in words) >= 12, shown
    same([t for _, t in words if t not in terms()], [], "words that are no terms of the glossary")


if __name__ == "__main__":
    main(globals())
