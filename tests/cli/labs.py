"""What the tests of the labs share: a copy of a track to run scripts in, results, pages. What all tests share is in
tap.py."""
import glob, json, os, re, shutil, subprocess, sys, tempfile

from tap import *

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^`(src/[\w./-]+): (\w+)`$")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


# ---- results ----

# Labs that look around, or measure roofs, and run nothing else.
RUNS_NOTHING = {"sglang 00", "mini-sglang 00", "flashinfer 00"}


def events_are_ordered(lab):
    """Whatever the lab ran stands in its timeline, in the order in which it ended, within the lab's own time."""
    name, events = f"{lab['track']} {lab['lab']}", lab["events"]
    assert events or name in RUNS_NOTHING, f"{name}: no event"
    ends = [e["at_s"] + e["seconds"] for e in events]
    same(ends, sorted(ends), name + ": ends of events")
    for e in events:
        assert 0 <= e["at_s"] and e["at_s"] + e["seconds"] <= lab["seconds"] + 0.01 and len(e["text"]) > 10, (name, e, lab["seconds"])


def told(lab, wanted):
    """The lab tells every wanted item and no other one, each with its content or with the reason why it is missing.
    Returns the keys of the missing ones."""
    same(sorted(lab["items"]), sorted(wanted), lab["name"] + ": items")
    events_are_ordered(lab)
    for key, item in lab["items"].items():
        if "missing" in item:
            assert len(item["missing"]) > 15, (lab["name"], key, item)
        else:
            assert item.get("text") or item.get("rows") or item.get("drawing") or item.get("value") is not None, \
                (lab["name"], key, item)
    return {key for key, item in lab["items"].items() if "missing" in item}


def checks_hold(lab):
    assert lab["checks"] and all(c["ok"] for c in lab["checks"]), (lab["name"], lab["checks"])


def text_of(cell):
    return cell if isinstance(cell, str) else str(cell.get("text", cell.get("value")))


def rows(item):
    """A table's cells as texts."""
    return [[text_of(cell) for cell in row] for row in item["rows"]]


def cells(lab, item, column):
    """One column of a table."""
    t = lab["items"][item]
    at = [c.lstrip(">") for c in t["columns"]].index(column)
    return [row[at] for row in rows(t)]


# ---- scripts ----

def program(name, lines, folder=None):
    """A program for one test; without `folder`, in one of its own."""
    path = os.path.join(folder or tempfile.mkdtemp(dir=scratch()), name)
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n" + lines + "\n")
    os.chmod(path, 0o755)
    return path


_scratch = []


def scratch():
    """A folder that goes when the test ends."""
    if not _scratch:
        _scratch.append(tempfile.TemporaryDirectory(prefix="labs-"))
    return _scratch[0].name


class Track:
    """A copy of a track's folder below a labs folder of its own, so that results go there."""

    def __init__(self, name):
        self.name, self.labs = name, os.path.join(scratch(), "labs")
        self.folder = os.path.join(self.labs, name)

    def place(self):
        if not os.path.exists(self.folder):
            shutil.copytree(os.path.join("labs", self.name), self.folder, symlinks=True,
                            ignore=shutil.ignore_patterns("results", "reports", "__pycache__"))
            shutil.copy("labs/run-lab", self.labs)
            open(os.path.join(self.labs, "PLAN.md"), "w").close()
        return self.folder

    def script(self, command, **env):
        """Runs a command of the documents in the track's folder. `python` is the one that runs this test."""
        if command.startswith("python "):
            command = sys.executable + command[len("python"):]
        if not have_model():
            env["VITRINE_MODEL"] = DUMMY
        p = subprocess.run(command.split(), cwd=self.place(), env=clean_env({"VITRINE": BIN, **env}), timeout=LIMIT_S,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert b"Sanitizer" not in p.stderr, p.stderr
        return Result(p.returncode, p.stdout, p.stderr)

    def means(self, commands):
        """Each command starts the program with `lab TRACK` and these words, and the program takes its options."""
        stub = program("vitrine", 'echo "$*"')
        for command, words in commands.items():
            r = self.script(command, VITRINE=stub)
            same((r.code, r.text.strip()), (0, f"lab {self.name} {words}"), command)
            # an option that the program does not have ends with 2; a folder that cannot be, with 1
            r = self.script(command + " --no-predict --results /dev/null/x")
            assert r.code == 1 and "/dev/null/x" in r.log, (command, r.code, r.log)

    def refuses(self, commands):
        """Each command has an option that the labs do not have: one sentence that names it, and no result."""
        for command, option in commands.items():
            r = self.script(command)
            assert r.code == 2 and r.log.startswith("vitrine: ") and r.log.count("\n") == 1 and option in r.log, \
                (command, r.code, r.log)

    def path(self, file):
        return os.path.join(self.place(), "results", "local", file)

    def result(self, name):
        return json.loads(read(self.path(name + ".json")))


# ---- pages ----

def pages(track):
    return sorted(p for p in glob.glob(f"labs/{track}/*.md") if not p.endswith("README.md"))


def check_pages(track, names, sources="## Where to read", cannot="## What this page cannot show", width=120):
    """Every lab has a page, each with all its parts, the lab's command and three questions."""
    same([os.path.basename(p)[:-3] for p in pages(track)], sorted(names), "pages")
    for page in pages(track):
        text = read(page)
        for part in ("## Goal", "## Concept", "## Run it", "## What to look at", "## Questions", sources, cannot):
            assert part in text, (page, part)
        same(text.count("<details>"), 3, page)
        number = os.path.basename(page).split("_")[0]
        assert re.search(rf"vitrine lab {track} 0?{number.lstrip('0') or '0'}\b", text), page
        assert max(len(line) for line in text.split("\n") if not line.startswith("|")) <= width, page


def check_links(track, least=2):
    """Files and functions that the pages link to are there; each page names at least so many functions."""
    for page in pages(track) + glob.glob(f"labs/{track}/README.md"):
        named = 0
        for label, target in LINK.findall(read(page)):
            path = target.split("#")[0]
            if "://" in target or not path:
                continue
            full = os.path.normpath(os.path.join(os.path.dirname(page), path))
            assert os.path.exists(full), f"{page}: {target} is not there"
            code = CODE.match(label)
            if code:
                named += 1
                same(code.group(1), full, page)
                assert re.search(rf"\b{code.group(2)}\b", read(full)), (page, label)
        assert named >= least or page.endswith("README.md"), f"{page} names {named} functions of our sources"
