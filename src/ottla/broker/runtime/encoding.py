"""Answers of many elements: encoded in slices, as far as there is memory for them.

A request of a few bytes may ask for very much. So the bytes of such an answer are counted while they are made, and of
one that is carried out in parts each part is encoded at once: what it was made of need not wait for the other parts.
When the answer is whole, it is the client's to take, and `unread` counts it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ottla.base.errors import OttlaError
from ottla.base.limits import MAX_ANSWER_BYTES, MAX_UNREAD_BYTES
from ottla.base.words import shown
from ottla.broker.outbox import Piece
from ottla.wire.apis import API
from ottla.wire.codec import Buffer
from ottla.wire.frames import encode_response_element_steps, encode_response_steps

#: Small pieces are put together to so many bytes. One that has as many as a field that is not copied stays alone.
_PIECE_BYTES: Final = 1_048_576
_ALONE_FROM_BYTES: Final = 32_768


class AnswerTooLargeError(OttlaError):
    """There is no room for an answer; its connection is closed, and a line says why."""


class Answers:
    """The answers that are being encoded, and what they take."""

    def __init__(self, limit_bytes: int = MAX_ANSWER_BYTES, total_bytes: int = MAX_UNREAD_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = total_bytes
        #: What all that are being made take now.
        self.held_bytes = 0

    def begin(self, api_key: int, version: int, client_id: str) -> "MadeAnswer":
        """An answer in this version to this client. Whoever calls ends it."""
        return MadeAnswer(self, api_key, version, client_id)


class MadeAnswer:
    """One answer that is being encoded."""

    def __init__(self, answers: Answers, api_key: int, version: int, client_id: str) -> None:
        self._answers = answers
        self._api_key = api_key
        self._version = version
        self._client_id = client_id
        self._size_bytes = 0

    def elements(self, field: str, elements: Iterable[tuple[Any, ...]], into: list[list[Buffer]]) -> Iterator[None]:
        """Encode some of the elements of an array of the answer, one in each step, or a part of a large one."""
        for each in elements:
            made: list[Buffer] = []
            for _ in encode_response_element_steps(self._api_key, self._version, field, each, made):
                self.take(len(made[-1]))
                yield
            into.append([])
            yield from _put_together(made, into[-1])

    def whole(self, correlation_id: int, message: tuple[Any, ...], frame: list[Piece]) -> Iterator[None]:
        """Encode the answer, an element in each step. At last its frame is in `frame`, in pieces."""
        self.end()  # elements that are encoded already are counted again, and not copied
        made: list[Buffer] = []
        for _ in encode_response_steps(self._api_key, self._version, correlation_id, message, made):
            self.take(len(made[-1]))
            yield
        yield from _put_together(made, frame)

    def end(self) -> None:
        """It is the connection's now, or nobody's."""
        self._answers.held_bytes -= self._size_bytes
        self._size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """So many bytes more are made. AnswerTooLargeError where there is no room for them."""
        answers = self._answers
        self._size_bytes += size_bytes
        answers.held_bytes += size_bytes
        if self._size_bytes <= answers.limit_bytes and answers.held_bytes <= answers.total_bytes:
            return
        name = API[self._api_key].name
        if self._size_bytes > answers.limit_bytes:
            what = f"its answer to {name} is larger than {answers.limit_bytes} bytes: it should name less in a request"
        else:
            what = (
                f"all answers that are being made take more than {answers.total_bytes} bytes, one to {name} is given up"
            )
        raise AnswerTooLargeError(f"{what} (client id {shown(self._client_id)})")


def _put_together(made: Iterable[Buffer], into: list[Any]) -> Iterator[None]:
    """Small pieces as few larger ones; large ones, which nobody has copied yet, as they are."""
    small: list[Buffer] = []
    small_bytes = 0
    for each in made:
        is_alone = len(each) >= _ALONE_FROM_BYTES
        if not is_alone:
            small.append(each)
            small_bytes += len(each)
        if small and (is_alone or small_bytes >= _PIECE_BYTES):
            into.append(b"".join(small))
            small, small_bytes = [], 0
            yield
        if is_alone:
            into.append(each)
    if small:
        into.append(b"".join(small))
