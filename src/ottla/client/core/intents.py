"""What a core wants its shell to do, and the base of both cores.

A core is an automaton: an event and the time go in, intents come out. It does no I/O and reads no clock; it knows no
threads either: whoever calls it makes sure that nobody else does meanwhile. The shell (`client.shell.driver`) carries
the intents out in their order, and what comes of them is the next event.

An `Ask` carries a ticket of the core's own. It comes back with the answer, exactly once: `answered(ticket, …)` or
`failed(ticket, …)`, unless the core gives up on it (`GiveUp`). The ticket says in which era the request was asked, so
the core can tell an answer that is of no use any more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot, Node
from ottla.client.errors import ClientError
from ottla.wire.apis import ApiKey

Message: TypeAlias = tuple[Any, ...]


class Channel(Enum):
    """What a connection is for. A broker takes one request of a connection at a time, so what may wait long, a fetch or
    a JoinGroup, gets a connection of its own."""

    MAIN = "main"
    COORDINATOR = "coordinator"
    #: JoinGroup and SyncGroup, which wait for other members; heartbeats and commits shall not wait behind them.
    JOIN = "join"
    FETCH = "fetch"


class CoordinatorKind(IntEnum):
    """What is coordinated: the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Broker(NamedTuple):
    """One broker, over a connection that is open: the core has asked for it by `Connect`."""

    node_id: int
    channel: Channel = Channel.MAIN


class Coordinator(NamedTuple):
    """The coordinator of a group or of a transactional id, wherever it is; the shell finds it and connects."""

    kind: CoordinatorKind
    key: str
    channel: Channel = Channel.MAIN


class AnyBroker(NamedTuple):
    """Whichever broker is at hand; the shell connects."""


Target: TypeAlias = Broker | Coordinator | AnyBroker


class Ask(NamedTuple):
    """Send a request. A message that is long to make is given as a function, which is called when it is sent."""

    ticket: Any
    to: Target
    api: ApiKey
    message: Message | Callable[[], Message]
    timeout_ms: float
    #: The version at which to stop; None for the highest that both sides speak.
    cap: int | None = None
    #: False for a request that has no answer: `answered(ticket, None)` then means that the socket takes more.
    has_answer: bool = True


class GiveUp(NamedTuple):
    """Nobody waits for the answer to this ticket any more, and none shall come. The request is of a kind that the shell
    finds the broker for: if it has not left yet, it must not, because it would come behind what is asked after it."""

    ticket: Any


class AskVersions(NamedTuple):
    """Find out what the cluster speaks: `answered(ticket, BrokerVersions)` follows, or `failed`."""

    ticket: Any


class Connect(NamedTuple):
    """Open a connection; `connected` or `unreachable` follows."""

    node_id: int
    channel: Channel = Channel.MAIN


class ForgetCoordinator(NamedTuple):
    """It has moved: find it again before the next request."""

    kind: CoordinatorKind
    key: str


class RefreshMetadata(NamedTuple):
    """Something that is known of the cluster is out of date: ask for metadata soon.

    With a ticket, `answered(ticket, None)` follows when metadata has come that was asked for after this; or `failed`.
    """

    ticket: Any = None
    timeout_ms: float = 0.0


class Track(NamedTuple):
    """Keep metadata of these topics too."""

    topics: frozenset[str]


class Untrack(NamedTuple):
    """Keep no metadata of these topics any more."""

    topics: frozenset[str]


class LearnLeader(NamedTuple):
    """An answer named the leader of a partition (KIP-951), and where it listens."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    nodes: tuple[Node, ...]


class Finish(NamedTuple):
    """A call of the user's that waits has its result, or its error."""

    call: Any
    value: Any = None
    error: Exception | None = None


class Say(NamedTuple):
    """Tell the operator, as `logging` does: a level, a format, its arguments."""

    level: int
    text: str
    arguments: tuple[object, ...] = ()


class NotSentError(ClientError):
    """The request did not leave this client: its connection was gone before."""

    retriable = True


class Core(ABC):
    """What both cores are made of: the intents that were collected, and when the core has to be woken.

    Every event is a method whose last argument is the time in seconds, on a clock that never goes back.
    """

    def __init__(self) -> None:
        self._intents: list[object] = []
        #: Call `woken` at this time; None when only events can change something.
        self.wake_at_s: float | None = None

    def take_intents(self) -> list[object]:
        """What is to be done now, in this order."""
        intents, self._intents = self._intents, []
        return intents

    def intend(self, intent: object) -> None:
        """Have `intent` carried out after this event."""
        self._intents.append(intent)

    def say(self, level: int, text: str, *arguments: object) -> None:
        """Have something logged."""
        self._intents.append(Say(level, text, arguments))

    # events of the shell

    @abstractmethod
    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        """What is known of the cluster has changed."""

    @abstractmethod
    def woken(self, now_s: float) -> None:
        """It is `wake_at_s`, or a little before."""

    @abstractmethod
    def answered(self, ticket: Any, answer: Any, now_s: float) -> None:
        """The request with `ticket` was answered."""

    @abstractmethod
    def failed(self, ticket: Any, error: ClientError, now_s: float) -> None:
        """The request with `ticket` has no answer. NotSentError: no broker has seen it."""

    @abstractmethod
    def abandoned(self, call: Any, now_s: float) -> None:
        """Whoever made this call has stopped waiting for it (a cancellation, Ctrl-C): nothing more is done for it."""

    @abstractmethod
    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection that was asked for is open."""

    @abstractmethod
    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        """A connection that was asked for could not be opened."""

    @abstractmethod
    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection has been lost or closed. Requests that were on it fail one by one, each with its ticket."""


#: The levels of `logging`.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
