"""Records what a command writes to a terminal, and draws the recording as an SVG.

usage: python tools/picture.py record RECORDING [--title TITLE] -- COMMAND...
       python tools/picture.py draw RECORDING PICTURE

`record` runs COMMAND in a terminal of its own (a pty) and writes an asciicast (version 2) that holds only what stayed
on the screen: a progress bar that was drawn a hundred times is there once, in its last form. A pause longer than a
second becomes one second. `draw` needs no terminal: it makes the same picture from the same recording every time, and
`tests/house/test_picture.py` holds the two together. Lines that the command wrote late light up late.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, ROWS = 100, 60
_LONGEST_PAUSE_S = 1.0
_READ_BYTES = 65_536
#: A control sequence, or one character.
_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|(.)", re.DOTALL)

#: Background, text, then black, red, green, yellow, blue, magenta, cyan, white, and the same eight bright.
_THEME = TerminalTheme(
    (13, 17, 23),
    (201, 209, 217),
    [
        *((72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (201, 209, 217)),
    ],
    [
        *((110, 118, 129), (255, 161, 152), (126, 231, 135), (242, 204, 96)),
        *((165, 214, 255), (226, 197, 255), (179, 240, 255), (240, 246, 252)),
    ],
)

#: rich's own format fetches a font from another site, which GitHub does not allow. This one names fonts that are there.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, "Segoe UI", Helvetica, sans-serif; }}
{styles}
ANIMATION</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


class Line(NamedTuple):
    """A line of the screen: when it took its last form, in seconds from the start, and its text with colours."""

    at_s: float
    text: str


class Screen:
    """As much of a terminal as rich and plain commands use: colours, carriage return, cursor up and down, erase."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self._columns = columns
        self._row = self._column = 0
        self._style = ""
        self._cells: list[list[tuple[str, str]]] = [[]]
        self._left_over = ""
        self.lines: list[Line] = []

    def feed(self, at_s: float, text: str) -> None:
        """Take what was written at `at_s`."""
        text = self._left_over + text
        cut = text.rfind("\x1b")
        self._left_over = ""
        if cut >= 0 and re.fullmatch(r"\x1b(\[[0-9;?]*)?", text[cut:]):
            text, self._left_over = text[:cut], text[cut:]
        for token in _TOKEN.finditer(text):
            if token[3] is not None:
                self._put(token[3])
            elif token[2] is not None:
                self._control(token[1], token[2])
        self._note(at_s)

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
        elif character >= " ":
            if self._column == self._columns:
                self._row, self._column = self._row + 1, 0
            row = self._at(self._row)
            row += [(" ", "")] * (self._column + 1 - len(row))
            row[self._column] = (character, self._style)
            self._column += 1

    def _control(self, argument: str, command: str) -> None:
        if command == "m":
            self._style = "" if argument in {"", "0"} else f"{self._style}\x1b[{argument}m"
        elif command in "AB":
            step = int(argument or 1)
            self._row = max(0, self._row + (step if command == "B" else -step))
        elif command == "K":
            row = self._at(self._row)
            del row[0 if argument == "2" else self._column :]

    def _at(self, number: int) -> list[tuple[str, str]]:
        self._cells += [[] for _ in range(number + 1 - len(self._cells))]
        return self._cells[number]

    def _note(self, at_s: float) -> None:
        texts = [_with_colours(row) for row in self._cells]
        known = self.lines
        self.lines = [
            known[number] if number < len(known) and known[number].text == text else Line(at_s, text)
            for number, text in enumerate(texts)
        ]


def _with_colours(row: list[tuple[str, str]]) -> str:
    out, style = "", ""
    for character, wanted in row:
        if wanted != style:
            out += "\x1b[0m" + wanted
            style = wanted
        out += character
    return out.rstrip() if not style else out + "\x1b[0m"


def run(command: list[str]) -> tuple[int, list[Line]]:
    """Exit code of `command`, and the lines that it leaves on a terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    child, terminal = pty.fork()
    if child == 0:
        # The size is set here and not by the parent: the command must find it when it starts.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvpe(command[0], command, environment)
    start, screen, pending = time.monotonic(), Screen(), b""
    while True:
        try:
            chunk = os.read(terminal, _READ_BYTES)
        except OSError:  # Linux's way to say that the other end is closed
            chunk = b""
        if not chunk:
            break
        pending += chunk
        sound = pending.decode(errors="ignore")  # a character may be cut in two
        pending = pending[len(sound.encode()) :]
        screen.feed(time.monotonic() - start, sound)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen.lines


def folded(lines: list[Line]) -> list[Line]:
    """The same lines, with every pause cut to a second. Empty lines at the end are left out."""
    while lines and not lines[-1].text:
        lines = lines[:-1]
    out: list[Line] = []
    before = now = 0.0
    for line in lines:
        now += min(max(line.at_s - before, 0.0), _LONGEST_PAUSE_S)
        before = max(before, line.at_s)
        out.append(Line(round(now, 2), line.text))
    return out


def save(recording: Path, title: str, lines: list[Line]) -> None:
    """Write an asciicast: a header, and one event a line."""
    header = {"version": 2, "width": COLUMNS, "height": len(lines), "title": title}
    events = [[line.at_s, "o", line.text + "\r\n"] for line in lines]
    recording.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in [header, *events]))


def load(recording: Path) -> tuple[str, list[Line]]:
    """Title and lines of an asciicast that `save` wrote."""
    header, *events = (json.loads(line) for line in recording.read_text().splitlines())
    return header["title"], [Line(at_s, text.removesuffix("\r\n")) for at_s, _kind, text in events]


def drawn(title: str, lines: list[Line]) -> str:
    """The SVG: the prompt with the command, and the lines. Every line can be read from the start."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), (title, "bold")))
    for line in lines:
        console.print(Text.from_ansi(line.text), soft_wrap=True)
    animation = ["@keyframes light { from { opacity: 0.15 } to { opacity: 1 } }"]
    animation += [
        f'[clip-path$="-line-{number})"] {{ animation: light 0.4s {line.at_s:g}s both }}'
        for number, line in enumerate(lines, 1)
        if line.text
    ]
    still = "@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(animation) + "\n}\n"
    form = _FORMAT.replace("ANIMATION", still.replace("{", "{{").replace("}", "}}"))
    picture = console.export_svg(title=title, theme=_THEME, code_format=form, unique_id="terminal")
    return "\n".join(line.rstrip() for line in picture.splitlines() if line.strip()) + "\n"


def main(arguments: list[str]) -> int:
    """What the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    record = commands.add_parser("record")
    record.add_argument("recording", type=Path)
    record.add_argument("--title", default="", help="what stands behind the prompt; the command itself by default")
    record.add_argument("command", nargs="+")
    draw = commands.add_parser("draw")
    draw.add_argument("recording", type=Path)
    draw.add_argument("picture", type=Path)
    asked = parser.parse_args(arguments)
    if asked.what == "draw":
        asked.picture.write_text(drawn(*load(asked.recording)))
        return 0
    code, lines = run(asked.command)
    print("\n".join(line.text for line in lines))
    if code:
        print(f"{asked.command[0]} ended with {code}; nothing is recorded", file=sys.stderr)
        return code
    save(asked.recording, asked.title or " ".join(asked.command), folded(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
