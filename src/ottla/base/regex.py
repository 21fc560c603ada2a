"""Regular expressions that come over the wire: matched in time linear in the text, as RE2 does.

Kafka matches what clients send (ListTransactions' id pattern, KIP-848's subscriptions) with RE2/J, because a
backtracking matcher can be made to run for ever. Python's `re` backtracks, and a broker has one event loop.

Theory of operation. `compile_regex` turns the pattern into a program of three kinds of instruction (a Pike machine
without captures); matching keeps the set of instructions it may be at, and moves all of them over each character once.

Supported: literals, `.`, classes, `\\d \\w \\s` and their opposites, groups (captures are just groups), `|`, the
repetitions `* + ? {n,m}` with or without a lazy `?`, `^`, `$`, and `(?i)` or `(?s)` in front. What RE2 lacks
(back-references, look-around) is refused here too.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn, TypeAlias

from ottla.base.limits import MAX_REGEX_DEPTH, MAX_REGEX_PROGRAM, MAX_REGEX_REPEAT

Predicate: TypeAlias = Callable[[str], bool]

_SPACES: Final = " \t\n\r\f\v"
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES: Final[dict[str, Predicate]] = {
    "d": lambda c: c in string.digits,
    "w": lambda c: c in _WORD,
    "s": lambda c: c in _SPACES,
    "D": lambda c: c not in string.digits,
    "W": lambda c: c not in _WORD,
    "S": lambda c: c not in _SPACES,
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class RegexError(ValueError):
    """The pattern is not one; the message says where and why."""


class _Char(NamedTuple):
    """Take one character that satisfies this."""

    accepts: Predicate


class _Split(NamedTuple):
    """Go on at each of these, relative to here; one of them is a jump."""

    offsets: tuple[int, ...]


class _At(NamedTuple):
    """Go on only at the text's start, or its end."""

    end: bool


_Program: TypeAlias = tuple[_Char | _Split | _At, ...]


class Regex:
    """A compiled pattern."""

    def __init__(self, program: _Program) -> None:
        self._program = program

    def fullmatch(self, text: str) -> bool:
        """Whether the pattern matches the whole of `text`, in time proportional to its length."""
        states = self._reach({0}, at_start=True, at_end=not text)
        for index, character in enumerate(text, 1):
            moved = set()
            for state in states:
                instruction = self._program[state] if state < len(self._program) else None
                if isinstance(instruction, _Char) and instruction.accepts(character):
                    moved.add(state + 1)
            states = self._reach(moved, at_start=False, at_end=index == len(text))
            if not states:
                return False
        return len(self._program) in states

    def _reach(self, states: set[int], *, at_start: bool, at_end: bool) -> set[int]:
        """Every instruction that can be reached without taking a character; the program's length is its end."""
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in reached:
                continue
            reached.add(state)
            instruction = self._program[state] if state < len(self._program) else None
            if isinstance(instruction, _Split):
                waiting.extend(state + offset for offset in instruction.offsets)
            elif isinstance(instruction, _At) and (at_end if instruction.end else at_start):
                waiting.append(state + 1)
        return reached


def compile_regex(pattern: str) -> Regex:
    """Compile `pattern`; RegexError when it is none, or needs more than RE2 offers, or is too large."""
    return Regex(_Parser(pattern).program())


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._pos = 0
        self._ignore_case = False
        self._dot_takes_newline = False
        self._depth = 0

    def program(self) -> _Program:
        while self._taken("(?i)") or self._taken("(?s)") or self._taken("(?is)") or self._taken("(?si)"):
            flags = self._pattern[: self._pos]
            self._ignore_case = "i" in flags
            self._dot_takes_newline = "s" in flags
        made = self._alternatives()
        if self._pos < len(self._pattern):
            self._fail("unmatched )")
        return made

    def _fail(self, why: str) -> NoReturn:
        raise RegexError(f"{why} at {self._pos} of {self._pattern!r}")

    def _peek(self) -> str:
        return self._pattern[self._pos : self._pos + 1]

    def _next(self) -> str:
        if self._pos >= len(self._pattern):
            self._fail("the pattern ends too early")
        self._pos += 1
        return self._pattern[self._pos - 1]

    def _taken(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._pos)
        self._pos += len(text) if found else 0
        return found

    def _sized(self, program: _Program) -> _Program:
        if len(program) > MAX_REGEX_PROGRAM:
            self._fail(f"more than {MAX_REGEX_PROGRAM} steps")
        return program

    def _alternatives(self) -> _Program:
        made = self._sequence()
        while self._taken("|"):
            other = self._sequence()
            head, jump = _Split((1, len(made) + 2)), _Split((len(other) + 1,))
            made = self._sized((head, *made, jump, *other))
        return made

    def _sequence(self) -> _Program:
        made: _Program = ()
        while self._peek() not in ("", "|", ")"):
            made = self._sized((*made, *self._repeated(self._atom())))
        return made

    def _atom(self) -> _Program:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return (_Char(self._class()),)
        if character == ".":
            newline_too = self._dot_takes_newline
            return (_Char(lambda c: newline_too or c != "\n"),)
        if character in "^$":
            return (_At(end=character == "$"),)
        if character in "*+?":
            self._fail(f"nothing to repeat before {character}")
        if character == "\\":
            return self._escape()
        return (_Char(self._literal(character)),)

    def _group(self) -> _Program:
        if self._taken("?") and not self._taken(":"):
            named = self._taken("P<") or (
                self._peek() == "<" and self._pattern[self._pos + 1 : self._pos + 2] not in "=!"
            )
            if not named:
                self._fail("a group that RE2 does not have")
            end = self._pattern.find(">", self._pos)
            if end < 0:
                self._fail("a group's name does not end")
            self._pos = end + 1
        self._depth += 1
        if self._depth > MAX_REGEX_DEPTH:
            self._fail(f"more than {MAX_REGEX_DEPTH} groups in each other")
        made = self._alternatives()
        if not self._taken(")"):
            self._fail("missing )")
        self._depth -= 1
        return made

    def _escape(self) -> _Program:
        character = self._next()
        if character in ("A", "z"):
            return (_At(end=character == "z"),)
        if character in _CLASSES:
            return (_Char(_CLASSES[character]),)
        return (_Char(self._literal(self._escaped(character))),)

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            digits = self._pattern[self._pos : self._pos + 2]
            if len(digits) != 2 or not all(digit in string.hexdigits for digit in digits):
                self._fail(r"\x needs two hexadecimal digits")
            self._pos += 2
            return chr(int(digits, 16))
        if character.isalnum():
            self._fail(f"an escape that is not known: \\{character}")
        return character

    def _literal(self, character: str) -> Predicate:
        if self._ignore_case:
            folded = character.casefold()
            return lambda c: c.casefold() == folded
        return lambda c: c == character

    def _class(self) -> Predicate:
        negated = self._taken("^")
        parts: list[Predicate] = []
        while not self._taken("]") or not parts:
            low = "]" if not parts and self._pattern[self._pos - 1] == "]" else self._next()
            if low == "\\":
                low = self._next()
                if low in _CLASSES:
                    parts.append(_CLASSES[low])
                    continue
                low = self._escaped(low)
            parts.append(self._range(low))
        return lambda c: any(part(c) for part in parts) != negated

    def _range(self, low: str) -> Predicate:
        if self._peek() != "-" or self._pattern[self._pos + 1 : self._pos + 2] in ("]", ""):
            return self._literal(low)
        self._pos += 1
        high = self._next()
        high = self._escaped(self._next()) if high == "\\" else high
        if high < low:
            self._fail(f"a range from {low!r} to {high!r}")
        if self._ignore_case:
            return lambda c: low <= c.lower() <= high or low <= c.upper() <= high
        return lambda c: low <= c <= high

    def _repeated(self, atom: _Program) -> _Program:
        bounds = self._bounds()
        while bounds is not None:
            least, most = bounds
            self._taken("?")  # lazy or not, the whole text matches or it does not
            if len(atom) * max(least, most or 0, 1) > MAX_REGEX_PROGRAM:
                self._fail(f"more than {MAX_REGEX_PROGRAM} steps")
            made = atom * least
            if most is None:
                made = (*made, _Split((1, len(atom) + 2)), *atom, _Split((-len(atom) - 1,)))
            else:
                for _ in range(most - least):
                    made = (*made, _Split((1, len(atom) + 1)), *atom)
            atom = self._sized(made)
            bounds = self._bounds()
        return atom

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._taken(sign):
                return bounds
        end = self._pattern.find("}", self._pos)
        low, comma, high = self._pattern[self._pos + 1 : end].partition(",")
        if self._peek() != "{" or end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a brace that bounds nothing is a literal, as in RE2
        self._pos = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > MAX_REGEX_REPEAT or (most is not None and most < least):
            self._fail(f"a repetition that is not within 0 to {MAX_REGEX_REPEAT}")
        return least, most
