#!/usr/bin/env python3
"""Containerfile, built and run by podman where it can run a container, and what the documents say about it.

A build from nothing takes minutes and a network: VITRINE_CONTAINER_BASE=TREE.tar (a Debian 12 tree, made by
`mmdebstrap --variant=minbase bookworm TREE.tar`) does it. Otherwise the program that is already built stands in for the first stage,
and the base has a few of this machine's programs, whose apt-get notes what it was asked for."""
import json, os, re, shutil, subprocess, sys, tempfile

from tap import *

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WHOLE = os.environ.get("VITRINE_CONTAINER_BASE")
TOOLS = ("bash", "sh", "cat", "env", "grep", "head", "id", "install", "rm", "sed", "sleep", "tail", "touch", "tr", "useradd")
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]  # podman's own may be above what this machine allows
MODELS = os.path.join(ROOT, "tests", "golden", "models")
HEALTH = os.path.join(ROOT, "tools", "container-health")

# podman mounts; what it mounts ends with a namespace of this test's own. crun refuses a machine that has both kinds of control
# groups, so there the second kind is left out.
if os.geteuid() == 0 and shutil.which("podman") and "VITRINE_CONTAINER_NAMESPACE" not in os.environ:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0:
        os.execvpe("unshare", ["unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh", sys.executable,
                               os.path.abspath(__file__), *sys.argv[1:]], {**os.environ, "VITRINE_CONTAINER_NAMESPACE": "1"})


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def instructions():
    """The Containerfile's instructions: (word, rest), continued lines joined."""
    text = re.sub(r"\\\n", "", re.sub(r"^\s*#.*\n", "", read("Containerfile"), flags=re.M))
    return [tuple(line.split(None, 1)) for line in text.split("\n") if line.strip()]


class Podman:
    """podman with a store of its own, an image `vitrine` in it, and its containers, which end with the block."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="vitrine-container-")
        self.driver = "overlay"

    def __call__(self, *args, check=True, **kw):
        p = subprocess.run(["podman", "--root", self.dir + "/store", "--runroot", self.dir + "/run", "--storage-driver", self.driver,
                            "--log-level", "error", *args], capture_output=True, text=True, timeout=LIMIT_S, cwd=self.dir, **kw)
        assert not check or p.returncode == 0, f"podman {args}: {p.stdout[-1000:]}{p.stderr[-3000:]}"
        return p

    def run(self, *args, **kw):
        return self("run", "--network", "none", "--cgroups", "disabled", *LIMITS, *args, **kw)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        self.base()
        for self.driver in ("overlay", "vfs"):
            p = self("import", self.dir + "/base.tar", "base", check=False)
            if p.returncode == 0:
                break
        p = self.run("--rm", "base", "bash", "-c", "true", check=False) if p.returncode == 0 else p
        if p.returncode != 0:
            skip("podman cannot run a container here: " + (p.stderr.strip().split("\n")[-1] or "it says nothing"))
        self.build()

    def __exit__(self, *_):
        self("rm", "--all", "--force", "--time", "0", check=False)
        for path in (self.dir + "/store/overlay", self.dir + "/store/vfs"):
            subprocess.run(["umount", path], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def base(self):
        """The image that the Containerfile begins with, as base.tar."""
        if WHOLE:
            os.symlink(os.path.abspath(WHOLE), self.dir + "/base.tar")
            return
        tree = self.dir + "/base"
        for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/local/bin", "etc", "tmp", "proc", "sys", "dev", "root"):
            os.makedirs(os.path.join(tree, folder))
        for link in ("bin", "sbin", "lib", "lib64"):
            os.symlink("usr/" + link, os.path.join(tree, link))
        for program in [shutil.which(t) or skip(f"this machine has no {t} for a container") for t in TOOLS] + [BIN]:
            needed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
            for path in re.findall(r"(/\S+) \(0x", needed) + ([program] if program != BIN else []):
                to = tree + os.path.realpath(os.path.dirname(path))
                os.makedirs(to, exist_ok=True)
                shutil.copy2(os.path.realpath(path), os.path.join(to, os.path.basename(path)))
        for name, text in (("etc/login.defs", "USERGROUPS_ENAB yes\nSYS_UID_MIN 100\nSYS_UID_MAX 999\nSYS_GID_MIN 100\nSYS_GID_MAX 999\n"),
                           ("etc/passwd", "root:x:0:0::/root:/bin/bash\n"),
                           ("etc/group", "root:x:0:\n"),
                           ("usr/bin/apt-get", '#!/bin/sh\necho "apt-get $*" >> /apt.log\n')):
            with open(os.path.join(tree, name), "w", encoding="utf-8") as f:
                f.write(text)
        os.chmod(tree + "/usr/bin/apt-get", 0o755)
        subprocess.run(["tar", "-C", tree, "-cf", self.dir + "/base.tar", "."], check=True)

    def build(self):
        text, context = read("Containerfile"), ROOT
        if not WHOLE:
            context = self.dir + "/context"
            os.makedirs(context + "/out/usr/local/bin")
            os.makedirs(context + "/tools")
            shutil.copy2(BIN, context + "/out/usr/local/bin/vitrine")
            shutil.copytree(os.path.join(ROOT, "labs", "experiments"), context + "/out/usr/local/share/vitrine/labs", symlinks=True,
                            ignore=shutil.ignore_patterns("results", "reports"))
            shutil.copy2(HEALTH, context + "/tools/")
            text, n = re.subn(r"^FROM \S+ AS build\n.*?(?=^FROM )", "FROM scratch AS build\nCOPY out /out\n\n", text, flags=re.M | re.S)
            same(n, 1, "first stages")
        with open(self.dir + "/Containerfile", "w", encoding="utf-8") as f:
            f.write(text)
        self("build", "--isolation", "chroot", "--format", "docker", "--build-arg", "BASE=localhost/base", "-t", "vitrine", "-f",
             self.dir + "/Containerfile", context)


def test_the_file_has_two_stages_and_ends_as_a_user():
    words = instructions()
    known = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {w for w, _ in words} <= known, words
    stages = [i for i, (w, _) in enumerate(words) if w == "FROM"]
    same([words[i][1] for i in stages], ["${BASE} AS build", "${BASE}"])
    last = dict(words[stages[1]:])
    same((last["USER"], last["VOLUME"], last["EXPOSE"]), ("vitrine", "/models", "8000"))
    same(json.loads(last["ENTRYPOINT"]), ["vitrine"])
    for word in ("CMD", "HEALTHCHECK"):
        assert json.loads(last[word][last[word].index("["):]), last[word]
    assert "NVIDIA_VISIBLE_DEVICES=all" in last["ENV"] and "VITRINE_CACHE=/models" in last["ENV"]
    for copied in re.findall(r"^COPY (?!--from)(\S+) \S", read("Containerfile"), re.M):
        assert os.path.exists(os.path.join(ROOT, copied)), copied
    if shutil.which("hadolint"):
        p = subprocess.run(["hadolint", "--failure-threshold", "error", os.path.join(ROOT, "Containerfile")], capture_output=True, text=True)
        same(p.returncode, 0, p.stdout)


def test_the_health_check_asks_the_port_of_the_command():
    from served import Server
    s = Server()
    with tempfile.NamedTemporaryFile() as command:
        for words, code in ((["--port", str(s.port)], 0), ([f"--port={s.port}"], 0), (["--port", "1"], 1)):
            command.seek(0)
            command.truncate()
            command.write("\0".join(["vitrine", "serve", *words, "--host", "0.0.0.0", ""]).encode())
            command.flush()
            p = subprocess.run([HEALTH, command.name], capture_output=True, text=True)
            same(p.returncode, code, f"{words}: {p.stderr}")
    s.process.kill()


def documented():
    """The words of the labs' `podman run` line: those of podman, and those of the container."""
    line = re.search(r"^ {4}(podman run .*?)\s+#", read("labs", "experiments", "README.md").replace("\\\n", " "), re.M | re.S)[1].split()
    at = line.index("vitrine")
    return line[2:at], line[at + 1:]


def test_the_labs_have_the_documents_line_and_its_port():
    ours, words = documented()
    same(ours[ours.index("-p") + 1], "30000:30000")
    same(words[words.index("--port") + 1], "30000")
    same(words[words.index("--host") + 1], "0.0.0.0")
    assert "--device" in ours and "vitrine-models:/models" in ours, ours


def test_the_container_serves_as_its_user():
    if "/release/" not in os.environ.get("VITRINE_BUILD", "build/release") + "/" or SANITIZED:
        skip("the container has the release build")
    if not shutil.which("podman"):
        skip("podman is not here")
    with Podman() as podman:
        config = json.loads(podman("image", "inspect", "vitrine").stdout)[0]
        print(f"# the image has {config['Size'] / 1e6:.0f} MB")
        same(config["User"], "vitrine")
        same(podman.run("--rm", "vitrine", "--version").stdout, ok("--version").text)
        inside = podman.run("--rm", "-v", "kept:/models", "--entrypoint", "bash", "vitrine", "-c",
                            "id -un; echo $HOME; touch /models/a && echo written; touch /usr/a 2>/dev/null || echo refused").stdout
        same(inside.split(), ["vitrine", "/models", "written", "refused"])
        assert "no model" in podman.run("--rm", "-v", "kept:/models", "vitrine", "run", "-m", "nonesuch", "x", check=False).stderr
        if not WHOLE:
            log = podman.run("--rm", "--entrypoint", "cat", "vitrine", "/apt.log").stdout
            assert all(f" {p} " in log.replace("\n", " ") for p in ("ca-certificates", "libcurl4", "python3-pip")), log
        words = [w if w != "qwen3-0.6b" else "/golden/qwen3-gqa2" for w in documented()[1]]
        podman.run("-d", "--name", "served", "-v", MODELS + ":/golden:ro", "vitrine", *words, "--kv-memory", "4M", "--device", "cpu")

        def state():
            return json.loads(podman("inspect", "served").stdout)[0]["State"]

        def log():
            p = podman("logs", "served")
            return p.stdout + p.stderr
        wait_until(lambda: " serves " in log() or not state()["Running"], "the server's first line")
        assert state()["Running"] and ":30000" in log(), log()
        same(podman("healthcheck", "run", "served", check=False).returncode, 0, "the health check's status")
        same(podman("exec", "served", "id", "-un").stdout, "vitrine\n")
        podman("kill", "--signal", "TERM", "served")
        same(podman("wait", "served").stdout.strip(), "0", "the status of a server that is told to end")


main(globals())
