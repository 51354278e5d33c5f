#!/usr/bin/env python3
"""What only a terminal shows: line editing, long lines, pastes, Ctrl-C and Ctrl-D, and control characters of others."""
import ctypes, json, os, pty, re, select, shlex, shutil, signal, subprocess, tempfile, time

from tap import *

CHAT = ["chat", "-n", "8", "--max-context", "2048", "--kv-memory", "128M"]
# Beyond the 4,096 bytes that a terminal's own line may have, in few tokens, since it is the line that is tried and not the model.
LONG = " ".join(letter + "=" * 256 for letter in "abcdefghijklmnopqrst")
UP, PASTE, PASTED = "\033[A", "\033[200~", "\033[201~"


class Terminal:
    """A command whose stdin, stdout and stderr are one terminal, which is the controlling one: Ctrl-C is a signal."""

    def __init__(self, *args, env=None):
        self.out = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN, [BIN, *args], clean_env({"TERM": "xterm", "HOME": "/nonexistent", "VITRINE_CACHE": CACHE, **(env or {})}))

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:  # in pieces that fit the terminal's buffer, and reading what it echoes
            n = os.write(self.fd, data[:512])
            data = data[n:]
            self.read(0.01)

    def read(self, seconds):
        """False when the program's end of the terminal is closed."""
        until = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, until - time.monotonic()))[0]:
            try:
                chunk = os.read(self.fd, 65536)
            except OSError:
                return False
            if not chunk:
                return False
            self.out += chunk
        return True

    def expect(self, pattern, begin=0):
        """Waits until the output since byte `begin` matches; returns the match."""
        until = time.monotonic() + LIMIT_S
        while True:
            m = re.search(pattern.encode(), self.out[begin:], re.S)
            if m:
                return m
            open_still = self.read(0.1)
            assert time.monotonic() < until and (open_still or re.search(pattern.encode(), self.out[begin:], re.S)), \
                f"no {pattern!r} in {self.out[begin:][-2000:]!r}"

    def turn(self, text, pattern):
        """Sends the text and waits for the expected output and the next prompt."""
        begin = len(self.out)
        self.send(text)
        m = self.expect(pattern, begin)
        self.expect("> ", begin + m.end())
        return m

    def press_until(self, key, pattern):
        """Sends the key again and again until the output matches: a key that comes between the prompt and the
        editor's taking over of the terminal is lost on a busy machine."""
        begin, until = len(self.out), time.monotonic() + LIMIT_S
        while not re.search(pattern.encode(), self.out[begin:], re.S):
            assert time.monotonic() < until, f"no {pattern!r} in {self.out[begin:][-2000:]!r}"
            self.send(key)
            self.read(2)

    def end(self):
        """The exit status, once it has ended."""
        until = time.monotonic() + LIMIT_S
        while self.read(0.1):
            assert time.monotonic() < until, f"it does not end: {self.out[-2000:]!r}"
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        assert os.WIFEXITED(status), f"died of signal {os.WTERMSIG(status)}"
        assert b"Sanitizer" not in self.out and b"runtime error:" not in self.out, self.out
        return os.WEXITSTATUS(status)


EDITORS = ["xterm", "dumb"]  # libedit (or the plain editor where it is not installed), and the plain one
ANSWERED = r"\[\d+ tokens?, \d+ of (\d+) prompt tokens cached"


def have_libedit():
    try:
        ctypes.CDLL("libedit.so.2")
        return True
    except OSError:
        return False


def saved(t, folder):
    """The conversation's user messages, read from a file that /save writes."""
    path = os.path.join(folder, "c.json")
    if os.path.exists(path):
        os.unlink(path)
    t.turn(f"/save {path}\r", r"saved to")
    return [m["content"] for m in json.load(open(path))["messages"] if m["role"] == "user"]


def test_chat_takes_a_line_of_any_length():
    line = LONG + " and an end?"
    for term in EDITORS:
        with tempfile.TemporaryDirectory() as d:
            t = Terminal(*CHAT, *model(), env={"TERM": term})
            t.expect("> ")
            t.turn(line + "\r", ANSWERED)
            same(saved(t, d), [line], f"messages (TERM={term})")
            t.send("\x04")
            same(t.end(), 0)


def test_chat_takes_a_pasted_text_as_one_message():
    text = "first line\nsecond \u00e9\u65e5\n\nlast line"
    with tempfile.TemporaryDirectory() as d:
        t = Terminal(*CHAT, *model())
        t.expect("> ")
        assert b"\033[?2004h" in t.out, "the terminal was not asked to mark pastes"
        t.turn("see: " + PASTE + text.replace("\n", "\r") + PASTED + " thanks\r", ANSWERED)
        t.turn(PASTE + "/exit is\rno command here\033[2J\u009b1m\u202e" + PASTED + "\r", ANSWERED)
        same(saved(t, d), [f"see: {text} thanks", "/exit is\nno command here" + "\ufffd" * 2 + "1m\ufffd"])
        t.send("/exit\r")
        same(t.end(), 0)


def test_plain_editor_takes_pastes_too():
    with tempfile.TemporaryDirectory() as d:
        t = Terminal(*CHAT, *model(), env={"TERM": "dumb"})
        t.expect("> ")
        assert b"\033" not in t.out, "a dumb terminal gets no escape sequences"
        t.turn(PASTE + "one\rtwo" + PASTED + "\r", ANSWERED)
        same(saved(t, d), ["one\ntwo"])
        t.send("\x04")
        same(t.end(), 0)


def test_plain_editor_takes_back_characters_words_and_lines():
    with tempfile.TemporaryDirectory() as d:
        t = Terminal(*CHAT, *model(), env={"TERM": "dumb"})
        t.expect("> ")
        t.turn("nothing of this\x15Say h\u00e9\u65e5\x7f\x7fello wrold\x17world\033[A\x01\r", ANSWERED)
        same(saved(t, d), ["Say hello world"])
        t.send("\x04")
        same(t.end(), 0)


def test_chat_edits_lines_and_has_a_history():
    if not have_libedit():
        skip("libedit is not installed")
    with tempfile.TemporaryDirectory() as d:
        t = Terminal(*CHAT, *model())
        t.expect("> ")
        t.turn("hello w\u00f6rld\r", ANSWERED)
        t.turn(UP + "!\r", ANSWERED)             # the line before, and an addition
        t.turn("ne\x01o\x05!\r", ANSWERED)       # Ctrl-A, Ctrl-E
        same(saved(t, d), ["hello w\u00f6rld", "hello w\u00f6rld!", "one!"])
        t.send("\x04")
        same(t.end(), 0)


def test_chat_ctrl_c_at_the_prompt_clears_the_line_and_keeps_the_conversation():
    for term in EDITORS:
        with tempfile.TemporaryDirectory() as d:
            t = Terminal(*CHAT, *model(), env={"TERM": term})
            t.expect("> ")
            t.turn("My name is Ada.\r", ANSWERED)
            t.turn("something else\x03", "Ctrl-D or /exit ends")
            t.press_until("\x03", "\n.*> ")
            t.turn("And you?\r", ANSWERED)
            same(saved(t, d), ["My name is Ada.", "And you?"], f"messages (TERM={term})")
            t.send("\x04")
            same(t.end(), 0)


PRESSES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
/* A Ctrl-C at the moment that PRESS names, the first time that it comes: the terminal's queue is emptied, as its driver
 * does, and SIGINT is sent. */
static int asks(const char *moment)
{
    const char *press = getenv("PRESS");
    return press && strcmp(press, moment) == 0;
}
static void ctrl_c(void)
{
    unsetenv("PRESS");
    tcflush(0, TCIFLUSH);
    kill(getpid(), SIGINT);
}
static void *interrupt_me(void *unused)
{
    sigset_t all;
    sigemptyset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    raise(SIGINT);
    return unused;
}
int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    int (*real)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) = dlsym(RTLD_NEXT, "ppoll");
    if (asks("in another thread")) {
        pthread_t other;
        unsetenv("PRESS");
        if (pthread_create(&other, NULL, interrupt_me, NULL) == 0)
            pthread_join(other, NULL);
    }
    int ready = real(p, n, t, mask);
    if ((ready > 0 && asks("before the read")) || (ready < 0 && asks("a second time")))
        ctrl_c();
    return ready;
}
"""


def presses(folder):
    """A library that presses Ctrl-C where no typist could time it."""
    if SANITIZED:
        skip("a sanitized program takes no library before its own")
    source, path = os.path.join(folder, "presses.c"), os.path.join(folder, "presses.so")
    open(source, "w").write(PRESSES)
    subprocess.run([*shlex.split(os.environ.get("CC", "gcc")), "-shared", "-fPIC", "-o", path, source], check=True)
    return path


def test_chat_ctrl_c_between_a_key_and_its_reading_is_not_lost():
    """The terminal drops the key that was announced, so nothing is there to be read: the program must not wait for it."""
    for term in EDITORS:
        for moment in ("before the read", "a second time"):
            with tempfile.TemporaryDirectory() as d:
                t = Terminal(*CHAT, *model(), env={"TERM": term, "LD_PRELOAD": presses(d), "PRESS": moment})
                t.expect("> ")
                t.send("x" if moment == "before the read" else "\x03")
                t.expect("Ctrl-D or /exit ends.*> ")
                t.turn("Hello\r", ANSWERED)
                same(saved(t, d), ["Hello"], f"{moment} (TERM={term})")
                t.send("\x04")
                same(t.end(), 0)


def test_chat_ctrl_c_that_another_thread_is_given_is_not_lost():
    """The kernel gives SIGINT to any thread; here to one beside the reader, which has just found that nothing was pressed."""
    for term in EDITORS:
        with tempfile.TemporaryDirectory() as d:
            t = Terminal(*CHAT, *model(), env={"TERM": term, "LD_PRELOAD": presses(d), "PRESS": "in another thread"})
            t.expect("Ctrl-D or /exit ends.*> ")
            t.send("\x04")
            same(t.end(), 0)


def test_chat_ctrl_c_stops_an_answer_and_keeps_the_conversation():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        t = Terminal("chat", "-n", "4000", "--max-context", "8192", "--kv-memory", "512M", "--logit-bias",
                     "2=-inf,0=-inf", *model())  # no end token: it goes on until it is stopped
        t.expect("> ")
        t.send("Tell me a long story.\r")
        t.expect("Tell me a long story.*?\n.*?\\w+ \\w+ \\w+")
        t.send("\x03")
        t.expect(", stopped.*?> ")
        same(saved(t, d), ["Tell me a long story."])
        t.send("\x04")
        same(t.end(), 0)


def test_rm_asks_and_removes_for_a_yes_alone():
    for answer, removed in (("\r", False), ("n\r", False), ("x\r", False), ("\x04", False), ("y\r", True), ("Yes\r", True)):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "models", "m.gguf")
            os.makedirs(os.path.dirname(path))
            shutil.copyfile("tests/fuzz/corpus/model/llama.gguf", path)
            t = Terminal("rm", "m.gguf", env={"VITRINE_CACHE": d})
            t.expect(r"remove .*\[y/N\] ")
            t.send(answer)
            same((t.end() == 0, os.path.exists(path)), (removed, not removed), f"answer {answer!r}")


def test_run_reads_a_prompt_from_the_terminal_until_one_ctrl_d():
    for ending in ("\x04", "\r\x04"):  # within a line, and at the beginning of one
        t = Terminal("run", "-n", "4", "--raw", *FAST, *model())
        t.expect("Ctrl-D ends it")
        t.send("One two three" + ending)
        t.expect(r"prompt tokens? \(0 cached\)")
        same(t.end(), 0)


def test_run_reads_a_long_line_from_the_terminal():
    text = LONG
    want = ok("run", "--json", "-n", "1", "--raw", "--max-context", "2048", "--kv-memory", "128M", *model(), stdin=text)
    t = Terminal("run", "-n", "1", "--raw", "--max-context", "2048", "--kv-memory", "128M", *model())
    t.expect("Ctrl-D ends it")
    t.send(text + "\x04")
    same(int(t.expect(r"(\d+) prompt tokens").group(1)), want.json["usage"]["prompt_tokens"])
    same(t.end(), 0)


def test_run_ctrl_c_while_the_prompt_is_typed_is_130():
    t = Terminal("run", "-n", "1", *FAST, *model())
    t.expect("Ctrl-D ends it")
    t.send("One\x03")
    same(t.end(), 130)


# ---- foreign text ----

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(out):
    """A terminal gets no control characters except the program's own colours and cursor movements."""
    text = re.sub(r"\033\[(\?2004[hl]|[0-9;]*[mK])", "", out.decode("utf-8", "strict")).replace("\r\n", "\n")
    assert not CONTROL.search(text) and "\033" not in text and "\r" not in text, repr(text)
    return text


def id_of(text):
    ids = ok("tokenize", "--json", stdin=text).json["ids"]
    same(len(ids), 1, f"tokens of {text!r}")
    return str(ids[0])


def test_tokens_are_exact_in_a_pipe_and_harmless_on_a_terminal():
    need_model()
    args = ["run", "--raw", "-n", "3", "--ignore-eos", "--logit-bias", id_of("\033") + "=100", *FAST, *model(), "x"]
    same(ok(*args).out, b"\033" * 3)
    t = Terminal(*args)
    same(t.end(), 0)
    assert "\ufffd" * 3 in harmless(t.out), t.out


def test_tokenize_decode_is_harmless_on_a_terminal():
    need_model()
    text = "a\u009b2Jb\033]0;c\x07\x7f d\u202ee \u2066f\n\tg"
    ids = ",".join(map(str, ok("tokenize", "--json", stdin=text).json["ids"]))
    same(ok("tokenize", "--decode", ids).text, text)
    t = Terminal("tokenize", "--decode", ids)
    same(t.end(), 0)
    same(harmless(t.out).split("\n", 1)[1], "a\ufffd2Jb\ufffd]0;c\ufffd\ufffd d\ufffde \ufffdf\n\tg")
    t = Terminal("tokenize", "--json", "--decode", ids)
    same(t.end(), 0)
    same(json.loads(harmless(t.out).split("\n", 1)[1])["text"], text, "JSON on a terminal: the same value")


def test_messages_of_files_are_harmless():
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "t.jinja")
        open(source, "w").write("{{ raise_exception('a\u009b2J\u202eb\u0085') }}")
        r = run("template", "--template", source, "--messages", "-", stdin="[]")
        assert r.code == 1 and "a 2J b " in r.log, (r.code, r.log)
        open(source, "w").write("x\033[31m{{ messages[0].content }}")
        t = Terminal("template", "--template", source, "--messages", "-")
        t.send('[{"role":"user","content":"\\u009bq"}]\x04')
        same(t.end(), 0)
        assert "x\ufffd[31m\ufffdq" in harmless(t.out), t.out


def test_a_story_of_others_is_harmless():
    r = ok("story", "show", "tests/fuzz/corpus/story/controls.json")
    harmless(r.out)


main(globals())
