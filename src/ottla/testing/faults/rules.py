"""Which request or answer is harmed, and how: the pure part of fault injection."""

import threading
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Final

from ottla.testing.arguments import seconds, text, whole
from ottla.testing.faults.refusals import can_be_refused
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode

#: Who asks for a test's broker itself (`Broker.records`): no fault is meant for that, and none counts its requests.
OWN_CLIENT_ID: Final = "ottla-testing"
_POSITIVE: Final = "is a positive number of seconds"
_BY_NAME: Final = {api.name.lower(): ApiKey(key) for key, api in API.items()}


class Harm(Enum):
    """What happens to a request or an answer."""

    FAIL = "fail"
    DELAY = "delay"
    DROP = "drop"
    REPEAT = "repeat"


class Side(Enum):
    """Whether the request is harmed, before the broker has it, or the answer, after the broker has done it."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """What a fault waits for, and what it does."""

    harm: Harm
    api: ApiKey
    side: Side
    #: The first request of `api` that is harmed, counted from 1 since the fault was made.
    nth: int = 1
    #: How many in a row are harmed; None: all from then on.
    times: int | None = 1
    #: Only requests of this `client.id`; None: of all clients.
    client_id: str | None = None
    delay_s: float = 0.0
    error: ErrorCode = ErrorCode.NONE
    #: A dropped message leaves its connection open, and nothing comes on it any more.
    silent: bool = False


@dataclass(eq=False)
class Fault:
    """A fault that was asked for. `happened` is how often it has happened."""

    spec: FaultSpec
    seen: int = 0
    happened: int = 0
    is_cancelled: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __repr__(self) -> str:
        spec = self.spec
        return f"<{spec.harm.value} the {spec.side.value} of {API[spec.api].name}: happened {self.happened} times>"

    def cancel(self) -> None:
        """From now on it does not happen."""
        self.is_cancelled = True

    def wait(self, timeout_s: float = 30.0, *, times: int = 1) -> None:
        """Wait until it has happened so often. In an event loop, call it in a thread: it blocks.

        TimeoutError when it has not happened so often within `timeout_s`; TypeError and ValueError for numbers that
        make no sense.
        """
        seconds("timeout_s", timeout_s)
        whole("times", times, 1)
        with self._changed:
            if not self._changed.wait_for(lambda: self.happened >= times, timeout_s):
                raise TimeoutError(f"{self!r} after {timeout_s:g} s, {times} were waited for")

    def meets(self, api: int, side: Side, client_id: str | None) -> bool:
        """A message passes: whether it is harmed. Counts it."""
        spec = self.spec
        if self.is_cancelled or (spec.api, spec.side) != (api, side):
            return False
        if spec.client_id not in (None, client_id):
            return False
        with self._changed:
            self.seen += 1
            last = None if spec.times is None else spec.nth + spec.times - 1
            if self.seen < spec.nth or (last is not None and self.seen > last):
                return False
            self.happened += 1
            self._changed.notify_all()
        return True


def api_of(api: ApiKey | str) -> ApiKey:
    """The API of Kafka's name for it (`Produce`) or of its key. ValueError names the nearest."""
    if isinstance(api, ApiKey):
        return api
    found = _BY_NAME.get(str(api).lower())
    if found is None:
        near = get_close_matches(str(api).lower(), _BY_NAME, 1)
        hint = f"; did you mean {API[_BY_NAME[near[0]]].name}?" if near else "; Kafka's names are meant, as Produce"
        raise ValueError(f"no API has the name {api}{hint}")
    return found


def checked(spec: FaultSpec) -> FaultSpec:
    """The spec. TypeError for what is no number or no text; ValueError for one that can never happen, or cannot be
    carried out."""
    whole("nth", spec.nth, 1, "counts from 1")
    if spec.times is not None:
        whole("times", spec.times, 1, "is at least 1, or None for all")
    if spec.client_id is not None:
        text("client_id, or None for all clients,", spec.client_id)
    if spec.harm is Harm.DELAY and not seconds("a delay", spec.delay_s, _POSITIVE):
        raise ValueError(f"a delay {_POSITIVE}; it cannot be {spec.delay_s}")
    if spec.harm is Harm.FAIL and spec.error is ErrorCode.NONE:
        raise ValueError("NONE is no error to fail with")
    if spec.harm is Harm.FAIL and not can_be_refused(spec.api):
        raise ValueError(f"an answer of {API[spec.api].name} cannot be made up; drop it, or delay it")
    return spec
