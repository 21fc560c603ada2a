"""Intents: what a core asks its shell to do. And the base class of both cores.

A core is an automaton: an event and the time go in, intents come out. It does no I/O, reads no clock and knows no
threads. Its caller makes sure that only one thread calls it at a time. The shell (`client.shell.driver`) carries the
intents out in their order. Their results come back to the core as events.

An `Ask` carries a ticket, which the core has made. The shell gives the ticket back exactly once: `answered(ticket, …)`
or `failed(ticket, …)`. After `GiveUp` it does not give it back at all. The ticket says which attempt, or which era, the
request belongs to. So the core recognizes an answer that comes too late to be of use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot, Node
from ottla.client.errors import ClientError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

Message: TypeAlias = tuple[Any, ...]


class Channel(Enum):
    """What a connection is for. A broker works on one request of a connection at a time. So a request that may wait
    long at the broker (a fetch, a JoinGroup) gets a connection of its own."""

    MAIN = "main"
    COORDINATOR = "coordinator"
    #: JoinGroup and SyncGroup wait for other members; heartbeats and commits must not wait behind them.
    JOIN = "join"
    FETCH = "fetch"


class CoordinatorKind(IntEnum):
    """What a coordinator is responsible for: the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Broker(NamedTuple):
    """One broker. Its connection is open: the core has asked for it by `Connect`."""

    node_id: int
    channel: Channel = Channel.MAIN


class Coordinator(NamedTuple):
    """The coordinator of a group or of a transactional id. The shell finds its broker and connects."""

    kind: CoordinatorKind
    key: str
    channel: Channel = Channel.MAIN


class AnyBroker(NamedTuple):
    """Any broker. The shell chooses one and connects."""


Target: TypeAlias = Broker | Coordinator | AnyBroker


class Ask(NamedTuple):
    """Send a request. A message that takes long to make is given as a function; the shell calls it when it sends."""

    ticket: Any
    to: Target
    api: ApiKey
    message: Message | Callable[[], Message]
    timeout_ms: float
    #: The highest version that may be used; None for the highest that both sides speak.
    cap: int | None = None
    #: False for a request without an answer: `answered(ticket, None)` then means that the socket accepts more bytes.
    has_answer: bool = True
    #: The lowest version that may be used: older ones cannot say what the message says. None for any.
    least: int | None = None
    #: Encoding it takes milliseconds: the shell does that in a turn of its own. For a broker, and with an answer.
    is_large: bool = False


class GiveUp(NamedTuple):
    """Nobody waits for the answer to this ticket any more; the shell must not give the ticket back. It belongs to an
    `Ask` whose broker the shell has to find. If that request has not been sent yet, it must not be sent: it would
    arrive after later requests."""

    ticket: Any


class AskVersions(NamedTuple):
    """Find out which versions the cluster speaks: `answered(ticket, BrokerVersions)` follows, or `failed`."""

    ticket: Any


class Connect(NamedTuple):
    """Open a connection; `connected` or `unreachable` follows."""

    node_id: int
    channel: Channel = Channel.MAIN


#: Errors after which the coordinator has to be found again.
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class ForgetCoordinator(NamedTuple):
    """The coordinator has moved: find it again before the next request to it."""

    kind: CoordinatorKind
    key: str


class RefreshMetadata(NamedTuple):
    """Something that the client knows of the cluster is out of date: ask for metadata soon.

    With a ticket, `answered(ticket, None)` follows when metadata has come that was requested after this intent. If none
    comes within `timeout_ms`, `failed` follows.
    """

    ticket: Any = None
    timeout_ms: float = 0.0


class LearnTopics(NamedTuple):
    """Ask for metadata of the topics that have these ids, once and soon. Nothing follows if no broker knows them."""

    topic_ids: frozenset[bytes]


class Track(NamedTuple):
    """Keep metadata of these topics, too."""

    topics: frozenset[str]


class Untrack(NamedTuple):
    """Keep no metadata of these topics any more."""

    topics: frozenset[str]


class LearnLeader(NamedTuple):
    """An answer has named the leader of a partition and its address (KIP-951)."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    nodes: tuple[Node, ...]


class Finish(NamedTuple):
    """A call of the user ends, with this value or this error."""

    call: Any
    value: Any = None
    error: Exception | None = None


class Say(NamedTuple):
    """Write a line to the log. As in `logging`: a level, a format, its arguments."""

    level: int
    text: str
    arguments: tuple[object, ...] = ()


class Work(NamedTuple):
    """Do `work` beside the event loop, for it may take long. `answered(ticket, what it returned)` follows, or `failed`
    with the ClientError that it raised. Of one core, one piece of work is done at a time."""

    ticket: Any
    work: Callable[[], Any]


class NotSentError(ClientError):
    """The request did not leave this client: its connection was lost before."""

    retriable = True


class Core(ABC):
    """What both cores have in common: the intents that they have collected, and when they have to be woken.

    Each event is a method. Its last argument is the time in seconds, on a clock that never goes back.
    """

    def __init__(self) -> None:
        self._intents: list[object] = []
        #: The shell calls `woken` at this time; None when the core only waits for other events.
        self.wake_at_s: float | None = None

    def take_intents(self) -> list[object]:
        """The intents that were collected since the last call, in order."""
        intents, self._intents = self._intents, []
        return intents

    def intend(self, intent: object) -> None:
        """Let the shell carry out `intent` after this event."""
        self._intents.append(intent)

    def say(self, level: int, text: str, *arguments: object) -> None:
        """Let the shell write a line to the log."""
        self._intents.append(Say(level, text, arguments))

    # events of the shell

    @abstractmethod
    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        """There is a new snapshot of the cluster."""

    @abstractmethod
    def woken(self, now_s: float) -> None:
        """It is `wake_at_s`. The shell may also call this earlier."""

    @abstractmethod
    def answered(self, ticket: Any, answer: Any, now_s: float) -> None:
        """The request with `ticket` was answered."""

    @abstractmethod
    def failed(self, ticket: Any, error: ClientError, now_s: float) -> None:
        """The request with `ticket` will get no answer. NotSentError: no broker has seen it."""

    @abstractmethod
    def abandoned(self, call: Any, now_s: float) -> None:
        """The user has stopped waiting for this call (a cancellation, Ctrl-C): do nothing more for it."""

    @abstractmethod
    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection that was asked for is open."""

    @abstractmethod
    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        """A connection that was asked for could not be opened."""

    @abstractmethod
    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection was lost or closed. The requests that were on it fail one by one, each with its ticket."""


#: The levels of `logging`.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
