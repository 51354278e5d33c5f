#!/usr/bin/env python3
"""The table of clients in docs/server.md: what the tests of test_sdks.py show, with the versions of the requirements' files.

    python3 tests/clients/table.py            prints it
    python3 tests/clients/table.py --write    writes it between its marks in docs/server.md"""
import glob, os, re, sys, typing

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "../../docs/server.md")
BEGIN, END = "<!-- tests/clients/table.py -->\n", "<!-- end -->\n"
FEATURES = {"answer": "answers", "stream": "streams", "tools": "calls", "turn": "a second turn", "forced": "a forced call", "schema": "a schema",
            "thought": "thoughts", "error": "errors", "vectors": "vectors", "ranks": "ranks"}


class Shown(typing.NamedTuple):
    client: str  # the package's name
    api: str
    features: list
    test: str


SHOWN = []


def shows(client, api, features):
    """Marks a test with what it shows: words of FEATURES."""
    def mark(test):
        SHOWN.append(Shown(client, api, features.split(), test.__name__))
        return test
    return mark


def pinned():
    """Versions of packages, the newest first, from lines NAME==VERSION."""
    versions = {}
    for path in glob.glob(os.path.join(HERE, "requirements*.txt")):
        with open(path) as f:
            for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", f.read(), re.M):
                versions.setdefault(name, set()).add(version)
    return {name: sorted(v, key=lambda s: [int(n) for n in re.findall(r"\d+", s)], reverse=True) for name, v in versions.items()}


PINNED = pinned()


def table():
    rows = {}
    for s in SHOWN:
        assert set(s.features) <= set(FEATURES), f"{s.test}: {s.features} found, expected words of {list(FEATURES)}"
        assert s.client in PINNED, f"{s.test}: no file of requirements names a version of {s.client}"
        rows.setdefault((s.client, s.api), set()).update(s.features)
    lines = ["| client | form | " + " | ".join(FEATURES.values()) + " |", "|---" * (2 + len(FEATURES)) + "|"]
    for (client, api), features in rows.items():
        marks = ["yes" if f in features else "" for f in FEATURES]
        lines.append(f"| {client} {', '.join(PINNED[client])} | {api} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def main():
    import table as shared  # the tests mark themselves there, not in the program that runs
    import test_sdks
    assert test_sdks.SHOWN is shared.SHOWN
    if sys.argv[1:] != ["--write"]:
        sys.stdout.write(shared.table())
        return
    with open(DOCS, encoding="utf-8") as f:
        before, _, rest = f.read().partition(BEGIN)
    assert rest, f"docs/server.md: {BEGIN.strip()} expected"
    with open(DOCS, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + shared.table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
