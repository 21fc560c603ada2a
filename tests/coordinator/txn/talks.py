"""Conversations that any Kafka transaction coordinator must answer alike.

`talks.txt` beside this file holds what Apache Kafka 4.3.0 answered; `tests/interop` asks it again.
"""

from __future__ import annotations

from pathlib import Path

from tests.coordinator.txn.conversation import Conversation


def kip_890(talk: Conversation) -> None:
    """KIP-890's protocol: every end raises the epoch, repeats succeed, late ends are fenced."""
    talk.init()
    talk.describe()
    talk.add("P0", 0, 0, 1)
    talk.describe()
    talk.end("P0", 0, commit=True)
    talk.describe()
    talk.end("P0", 0, commit=True)
    talk.end("P0", 0, commit=False)
    talk.end("P0", 1, commit=True)
    talk.end("P0", 1, commit=False)
    talk.end("P0", 1, commit=False)
    talk.end("P0", 1, commit=True)
    talk.end("P0", 0, commit=False)
    talk.add("P0", 1, 0)
    talk.add("P0", 2, 0)
    talk.end("P0", 1, commit=True)
    talk.end("P0", 2, commit=False)
    talk.end("P0", 2, commit=False)
    talk.end("P0", 2, commit=True)
    talk.end("P0", 3, commit=True)


def before_kip_890(talk: Conversation) -> None:
    """The older protocol: the epoch stays, so that an end in the other direction is a misuse."""
    talk.init(version=1)
    talk.end("P0", 0, commit=False, version=4)
    talk.end("P0", 0, commit=True, version=4)
    talk.add("P0", 0, 0, version=3)
    talk.add("P0", 0, 0, version=3)
    talk.add("P0", 0, 1, version=0)
    talk.offsets("P0", 0)
    talk.end("P0", 0, commit=True, version=4)
    talk.end("P0", 0, commit=True, version=4)
    talk.end("P0", 0, commit=False, version=4)
    talk.add("P0", 0, 0, version=3)
    talk.end("P0", 0, commit=False, version=1)
    talk.end("P0", 0, commit=False, version=4)
    talk.end("P0", 0, commit=True, version=4)
    talk.add("P0", 1, 0, version=3)
    talk.add("?", 0, 0, version=3)
    talk.end("P0", 1, commit=True, version=4)
    talk.end("?", 0, commit=True, version=4)
    talk.describe()


def fencing(talk: Conversation) -> None:
    """A second producer: the first one's transaction is aborted, its epoch is over."""
    talk.init()
    talk.add("P0", 0, 0)
    talk.init()
    talk.add("P0", 0, 0)
    talk.end("P0", 0, commit=True)
    talk.end("P0", 1, commit=False)
    talk.offsets("P0", 0)
    talk.describe()
    talk.init()
    talk.end("P0", 2, commit=False)
    talk.end("P0", 3, commit=True)
    talk.end("P0", 3, commit=False)


def kip_360(talk: Conversation) -> None:
    """A producer that names its id and epoch gets the next epoch, once."""
    talk.init()
    talk.init("P0", 0)
    talk.init("P0", 0)
    talk.init("P0", 1)
    talk.init("P0", 0)
    talk.init("P0", 7)
    talk.init("?", 2)
    talk.add("P0", 2, 0)
    talk.init("P0", 2)
    talk.init("P0", 3)
    talk.init()
    talk.init("P0", 3)


def kip_360_unknown(talk: Conversation) -> None:
    """An id that is not known any more starts again, whatever the producer believes."""
    talk.init("?", 7)
    talk.describe()


def misuse(talk: Conversation) -> None:
    """What is refused before anything is looked at, or because nothing is there."""
    talk.add("?", 0, 0)
    talk.add("?", 0, 0, version=3)
    talk.add("?", 0, 0, verify=True)
    talk.offsets("?", 0)
    talk.end("?", 0, commit=True)
    talk.end("?", 0, commit=True, version=4)
    talk.describe()
    talk.init(timeout_ms=0)
    talk.init(timeout_ms=-1)
    talk.init(timeout_ms=900_001)
    talk.init("?", -1)
    talk.init("-", 3)
    talk.describe()
    talk.init(timeout_ms=900_000)
    talk.end("?", 0, commit=True)
    talk.add("P0", 0)
    talk.describe()
    talk.end("P0", 0, commit=True)
    talk.describe()


def verification(talk: Conversation) -> None:
    """A broker asks whether a client added what it now writes to."""
    talk.init()
    talk.add("P0", 0, 0, version=4, verify=True)
    talk.add("P0", 0, 0, 1, version=3)
    talk.add("P0", 0, 0, 2, version=4, verify=True)
    talk.add("P0", 1, 0, version=4, verify=True)
    talk.add("?", 0, 0, version=4, verify=True)
    talk.end("P0", 0, commit=True, version=4)
    talk.add("P0", 0, 0, version=4, verify=True)


def mixed_protocols(talk: Conversation) -> None:
    """One id, used by an older client and by a newer one."""
    talk.init()
    talk.add("P0", 0, 0, version=3)
    talk.end("P0", 0, commit=True, version=5)
    talk.add("P0", 1, 0, version=5)
    talk.end("P0", 1, commit=False, version=4)
    talk.end("P0", 1, commit=False, version=4)
    talk.end("P0", 1, commit=False, version=5)
    talk.end("P0", 1, commit=False, version=4)
    talk.end("P0", 2, commit=False, version=4)
    talk.end("P0", 2, commit=True, version=4)
    talk.init()


def older_versions(talk: Conversation) -> None:
    """How each version is told that the producer is fenced, or that a partition is not there."""
    talk.init(version=0)
    talk.init(version=0)
    for version in (3, 4):
        talk.init("P0", 9, version=version)
    for version in range(4):
        talk.add("P0", 0, 0, version=version)
    for version in range(5):
        talk.offsets("P0", 0, version=version)
    for version in range(6):
        talk.end("P0", 9, commit=True, version=version)
    talk.add("P0", 1, 7, version=3)
    talk.add("P0", 1, 0, 7, version=3)
    talk.add("P0", 1, 0, 7, version=5)


def exhaustion_by_init(talk: Conversation) -> None:
    """InitProducerId when the epochs are used up: another producer id, and the repeated request finds it."""
    talk.use_up_epochs(32_765)
    talk.init()
    talk.add("P0", 32_766, 0)
    talk.init()
    talk.init("P1", 0)
    talk.end("P0", 32_766, commit=True)
    talk.end("P1", 1, commit=False)


def exhaustion_by_end(talk: Conversation) -> None:
    """An end when the epochs are used up: the answer names another producer id; so does its repetition."""
    talk.use_up_epochs(32_765)
    talk.add("P0", 32_765, 0)
    talk.end("P0", 32_765, commit=True)
    talk.end("P0", 32_765, commit=True)
    talk.add("P0", 32_766, 0)
    talk.end("P0", 32_766, commit=True)
    talk.end("P0", 32_766, commit=True)
    talk.end("P0", 32_766, commit=False)
    talk.add("P1", 0, 0)
    talk.end("P0", 32_766, commit=True)
    talk.end("P1", 0, commit=True)


def exhaustion_by_request(talk: Conversation) -> None:
    """KIP-360 when the epochs are used up."""
    talk.use_up_epochs(32_765)
    talk.init("P0", 32_765)
    talk.init("P0", 32_766)
    talk.init("P0", 32_766)
    talk.init("P0", 32_765)
    talk.init("P1", 0)
    talk.init("P0", 32_766)


#: Talks that take tens of thousands of requests with a coordinator whose log cannot be written by hand.
LONG_TALKS = {talk.__name__: talk for talk in (exhaustion_by_init, exhaustion_by_end, exhaustion_by_request)}


def produced(talk: Conversation) -> None:
    """What the exactly-once sink stands on: a transaction belongs to id, producer id and epoch, not to a connection."""
    talk.init()
    talk.produce("P0", 0, 0)
    talk.produce("P0", 0, 1)
    talk.produce("P0", 0, 1)
    talk.describe()
    talk.end("P0", 0, commit=True)
    talk.end("P0", 0, commit=True)
    talk.end("P0", 0, commit=False)
    talk.produce("P0", 0, 2)
    talk.produce("P0", 0, 0, partition=1)
    talk.produce("P0", 1, 0)
    talk.end("P0", 0, commit=True)
    talk.end("P0", 1, commit=False)
    talk.produce("P0", 2, 0, version=11)
    talk.produce("P0", 2, 0, version=10)
    talk.add("P0", 2, 0, version=3)
    talk.produce("P0", 2, 0, version=11)
    talk.init()
    talk.produce("P0", 2, 1, version=11)
    talk.produce("P0", 4, 0)
    talk.end("P0", 4, commit=True)
    talk.produce("?", 0, 0)


def two_phase(talk: Conversation) -> None:
    """KIP-939: no time-out for who asks; whoever comes without asking gets one again. Either aborts what is open."""
    talk.init_two_phase(two_phase=False)
    talk.describe()
    talk.init_two_phase()
    talk.describe()
    talk.add("P0", 1, 0)
    talk.describe()
    talk.end("P0", 1, commit=True)
    talk.end("P0", 1, commit=True)
    talk.add("P0", 2, 0)
    talk.init_two_phase()
    talk.describe()
    talk.end("P0", 2, commit=True)
    talk.add("P0", 4, 0)
    talk.init()
    talk.describe()
    talk.add("P0", 6, 0)
    talk.init_two_phase("P0", 6)
    talk.describe()
    talk.init_two_phase("P0", 3)
    talk.init_two_phase("?", 3)
    talk.init_two_phase("-", 3)


def two_phase_time_outs(talk: Conversation) -> None:
    """Who asks for two-phase commit may name any time-out: it is not looked at."""
    for timeout_ms in (0, -1, 900_001, 2_147_483_647):
        talk.init_two_phase(timeout_ms=timeout_ms)
        talk.init_two_phase(timeout_ms=timeout_ms, two_phase=False)
    talk.describe()


def two_phase_keep(talk: Conversation) -> None:
    """`keepPreparedTxn` is not there yet: it is refused before anything is touched."""
    talk.init_two_phase(keep=True)
    talk.init_two_phase(keep=True, two_phase=False)
    talk.describe()
    talk.init_two_phase()
    talk.add("P0", 0, 0)
    talk.init_two_phase(keep=True)
    talk.init_two_phase("P0", 0, keep=True)
    talk.init_two_phase(keep=True, timeout_ms=0, two_phase=False)
    talk.describe()
    talk.end("P0", 0, commit=True)


#: Talks in InitProducerId v6, with brokers that allow two-phase commit (KIP-939).
TWO_PHASE_TALKS = {talk.__name__: talk for talk in (two_phase, two_phase_time_outs, two_phase_keep)}
TWO_PHASE_SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


def two_phase_forbidden(talk: Conversation) -> None:
    """With a broker that knows version 6, and does not allow two-phase commit."""
    talk.init_two_phase(two_phase=False)
    talk.init_two_phase()
    talk.init_two_phase(timeout_ms=0)
    talk.init_two_phase(keep=True)
    talk.init_two_phase(keep=True, two_phase=False)
    talk.describe()


#: Talks about what a broker's handlers add to the coordinator's answers.
HANDLER_TALKS = {talk.__name__: talk for talk in (older_versions, produced)}

TALKS = {
    talk.__name__: talk
    for talk in (
        kip_890,
        before_kip_890,
        fencing,
        kip_360,
        kip_360_unknown,
        misuse,
        verification,
        mixed_protocols,
    )
}


def recorded() -> dict[str, list[str]]:
    """The transcripts in `talks.txt`, by name."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("talks.txt").read_text().splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = transcript = []
        elif line and not line.startswith("#"):
            transcript.append(line)
    return found
