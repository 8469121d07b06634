"""A terminal with the command in it, driven as a person would: keys in, screen out. Needs tmux."""

import os
import re
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import binary

COLUMNS, LINES = 80, 50
# Far above what any answer needs on two slow cores.
TIMEOUT_S = 90.0
# The last line of a terminal whose program has ended.
ENDED = re.compile(r"ended with (\d+)$")


def missing() -> str | None:
    """Returns why there are no terminals here, or None."""
    return None if shutil.which("tmux") else "tmux is not installed"


class Terminal:
    """A running `pellucid` in a terminal of its own."""

    def __init__(self, socket: str) -> None:
        self.socket = socket

    def tmux(self, *args: str) -> str:
        """Runs a command of tmux on this terminal's server and returns its output."""
        command = ["tmux", "-L", self.socket, "-f", os.devnull, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout

    def screen(self, *options: str) -> str:
        """Returns all lines from the start; options are those of `capture-pane`."""
        shown = self.tmux("capture-pane", "-p", "-S", "-", *options)
        return "\n".join(line.rstrip() for line in shown.splitlines()).rstrip("\n")

    def until(self, condition: Callable[[str], object], what: str = "a change") -> str:
        """Waits until the text, in which wrapped lines are joined, meets the condition; returns it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            text = self.screen("-J")
            if condition(text):
                return text
            assert time.monotonic() < deadline, f"timed out waiting for {what}:\n{self.screen()}"
            time.sleep(0.02)

    def shows(self, pattern: str) -> str:
        """Waits until the text matches the pattern; returns it."""
        return self.until(lambda text: re.search(pattern, text, re.MULTILINE), repr(pattern))

    def keys(self, *names: str) -> None:
        """Presses keys by their names in tmux: `Enter`, `Tab`, `C-c`."""
        self.tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Types a text, without Enter."""
        # tmux takes a semicolon at the end of an argument for its own.
        self.tmux("send-keys", "-l", "--", re.sub(";$", r"\\;", text))

    def answer(self, text: str) -> str:
        """Waits for an empty prompt, types an input of one or more lines and Enter; returns what is printed."""
        self.ready()
        return self.answer_of(text)

    def answer_of(self, text: str) -> str:
        """Types the rest of an input and Enter; returns what is printed before the next prompt."""
        before = prompts(self.screen("-J"))
        for line in text.split("\n"):
            self.type(line)
            self.keys("Enter")
        after = self.until(lambda shown: prompts(shown) > before and is_ready(shown), f"an answer to {text!r}")
        lines = after.splitlines()
        starts = [at for at, line in enumerate(lines) if line.startswith("pellucid>")]
        printed = lines[starts[-2] + 1 : starts[-1]]
        return "\n".join(line for line in printed if not line.lstrip().startswith("...>"))

    def clear(self) -> None:
        """Presses Ctrl-C and waits for the next prompt."""
        before = prompts(self.screen("-J"))
        self.keys("C-c")
        self.until(lambda shown: prompts(shown) > before and is_ready(shown), "a cleared line")

    def ready(self) -> str:
        """Waits for an empty prompt; returns the text."""
        return self.until(is_ready, "an empty prompt")

    def ended(self) -> int:
        """Waits until the program ends; returns its exit code."""
        text = self.until(ENDED.search, "the end")
        found = ENDED.search(text)
        assert found
        return int(found[1])


def is_ready(text: str) -> bool:
    """Returns whether the last line is an empty prompt."""
    return text.splitlines()[-1:] == ["pellucid>"]


def prompts(text: str) -> int:
    """Returns the number of prompts in a text."""
    return len(re.findall(r"^pellucid>", text, re.MULTILINE))


@contextmanager
def terminal(folder: Path, *args: str | Path, columns: int = COLUMNS, **environment: str) -> Iterator[Terminal]:
    """Starts `pellucid ARGS` in a terminal, in a folder that is its home, too."""
    socket = f"pellucid-{uuid.uuid4().hex[:12]}"
    home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    settings = [part for key, value in (home | environment).items() for part in ("-e", f"{key}={value}")]
    program = shlex.join([str(binary.binary()), *map(str, args)])
    # NO_COLOR of these tests is not that of the program. `read` keeps the screen.
    keep = "" if "NO_COLOR" in environment else "unset NO_COLOR; "
    line = f'{keep}{program}; echo "ended with $?"; read -r line'
    made = Terminal(socket)
    made.tmux(
        *("new-session", "-d", "-x", str(columns), "-y", str(LINES), "-c", str(folder), *settings, "/bin/sh", "-c", line),
    )
    try:
        yield made
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True, timeout=TIMEOUT_S)
