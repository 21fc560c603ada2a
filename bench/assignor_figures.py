"""The sticky assignor with 1,000 members and 10,000 partitions: ours, and Apache Kafka's Java class."""

from __future__ import annotations

import random
import statistics
import time
import uuid

from bench.figure import MILLISECONDS, Measure, Unit, Values
from ottla.assign import Cluster, StickyAssignor, Subscription
from ottla.assign.sticky.user_data import encode_assignment
from tests.interop import apache
from tests.interop.oracle import lines, times_ms

_MEMBERS, _TOPICS, _PARTITIONS_EACH = 1_000, 100, 100
_TIMES = 15
NOTE = (
    "1,000 members divide 10,000 partitions of 100 topics; both peers get the same groups. A JVM gets faster with "
    "every division: the figures are medians of 15 in one process, and the first of them, which is what a leader that "
    "has just started waits for. Unequal: every second member wants half of the topics. Aim: 1.0."
)
Group = tuple[Cluster, dict[str, Subscription]]


def unit_of(_name: str) -> Unit:
    """All are times."""
    return MILLISECONDS


def groups() -> dict[str, Group]:
    """What is divided."""
    made = {}
    for equal in (True, False):
        name = "equal subscriptions" if equal else "unequal subscriptions"
        empty = _group(random.Random(1), equal=equal)
        made[f"{name}, nobody had anything"] = empty
        made[f"{name}, a tenth of the members replaced"] = _a_tenth_replaced(random.Random(2), *empty)
    return made


def _group(draw: random.Random, *, equal: bool) -> Group:
    cluster = Cluster.of({f"topic-{n:03}": _PARTITIONS_EACH for n in range(_TOPICS)})
    topics = tuple(cluster.topics)
    half = topics if equal else topics[: _TOPICS // 2]
    return cluster, {_member_id(draw): Subscription(half if n % 2 else topics) for n in range(_MEMBERS)}


def _a_tenth_replaced(draw: random.Random, cluster: Cluster, said: dict[str, Subscription]) -> Group:
    had = StickyAssignor().assign(cluster, said)
    gone = set(draw.sample(sorted(said), _MEMBERS // 10))
    left = {
        member: wanted._replace(user_data=encode_assignment(had[member].partitions, 5), generation_id=5)
        for member, wanted in said.items()
        if member not in gone
    }
    return cluster, left | {_member_id(draw): said[member] for member in sorted(gone)}


def _member_id(draw: random.Random) -> str:
    return f"consumer-{uuid.UUID(int=draw.getrandbits(128))}"


def _values(times: dict[str, list[float]]) -> Values:
    found = {}
    for name, taken in times.items():
        found[name] = statistics.median(taken)
        found[f"{name}, the first"] = taken[0]
    return found


def ours(_bootstrap: str, _scale: float) -> Values:
    """Our class in this process."""
    times: dict[str, list[float]] = {}
    for name, (cluster, said) in groups().items():
        for _ in range(_TIMES):
            assignor = StickyAssignor()
            began = time.perf_counter()
            assignor.assign(cluster, said)
            times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return _values(times)


def theirs(_bootstrap: str, _scale: float) -> Values:
    """The Java class in one JVM."""
    made = groups()
    text = "".join(lines(group, "sticky", times=_TIMES) for group in made.values())
    return _values(dict(zip(made, times_ms(text, str(apache.jars())), strict=True)))


FIGURES: dict[str, Measure] = {"ottla": ours, "Java": theirs}
