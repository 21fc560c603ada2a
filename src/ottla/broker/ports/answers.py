"""Answers that are encoded in slices, and the memory that they take meanwhile."""

from typing import Protocol

from ottla.broker.runtime.encoding import Answers


class HasAnswers(Protocol):
    """Needs to encode long answers."""

    @property
    def answers(self) -> Answers: ...
