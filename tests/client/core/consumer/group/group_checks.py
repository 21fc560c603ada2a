"""What must hold in every history of `group_world`."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.client.core.intents import Ask
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from tests.client.core.consumer.group.group_world import Member, World

_MOST_WAKES_AT_ONCE = 20


class Checks:
    """Raises AssertionError as soon as something does not hold."""

    def __init__(self, world: "World") -> None:
        self._world = world
        #: What the user of each member knows to be its own.
        self._known: dict[int, set[TopicPartition]] = {}
        self._owned: dict[int, frozenset[TopicPartition]] = {}
        self._woken: dict[int, tuple[float, int]] = {}
        #: How far each partition was read: every record below was given to some member of the group.
        self._read: dict[TopicPartition, int] = defaultdict(int)
        #: How often each of these was seen, so that a model that shows nothing is noticed.
        self.seen: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # records: a partition's are numbered, and one is taken at a time

    def taken(self, tp: TopicPartition, offset: int) -> None:
        """A member's user takes a record. Some may be given again, none is passed over."""
        assert offset <= self._read[tp], f"{tp}: {offset} is given, and nobody was given {self._read[tp]}"
        self.count("given" if offset == self._read[tp] else "given again")
        self._read[tp] = max(self._read[tp], offset + 1)

    def commit_arrived(self, request: Any) -> None:
        """What is committed was given to somebody: else a crash would lose it."""
        for topic in request.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                assert 0 <= part.committed_offset <= self._read[tp], f"{tp}@{part.committed_offset} is committed ahead"
                self.count("commit")

    # callbacks are in a legal order

    def assigned(self, member: "Member", tps: list[TopicPartition]) -> None:
        known = self._known.setdefault(member.name, set())
        assert not known & set(tps), f"{member.name}: assigned twice"
        known |= set(tps)
        self.count("assigned")

    def given_up(self, member: "Member", tps: list[TopicPartition]) -> None:
        known = self._known.setdefault(member.name, set())
        assert set(tps) <= known, f"{member.name}: {tps} were given up, and are not its own"
        known -= set(tps)
        self.count("given up" if member.core.member.in_generation else "lost")

    def gone(self, member: "Member") -> None:
        """It has left."""
        assert not self._known.get(member.name), "it has left, and its user was not told of partitions that went"
        self.count("left")

    # after every event

    def after_event(self, member: "Member") -> None:
        owned = member.owned()
        if owned == self._owned.get(member.name):
            return
        came = owned - self._owned.get(member.name, frozenset())
        self._owned[member.name] = owned
        if not member.core.watch.in_poll and not member.is_leaving:
            assert not came, "partitions came while the user was not in poll"
        self._one_owner(member, came)

    def _one_owner(self, member: "Member", came: frozenset[TopicPartition]) -> None:
        """Who takes a partition is its only owner, but for those whom the coordinator no longer counts on."""
        counts_on = self._world.coordinator.counts_on
        if came and not counts_on(member.core.member.metadata):
            self.count("late assignment")  # it was expelled while the answer that brought it was on its way
            return
        for other in self._world.members:
            if other is not member and other.owned() & came:
                # a static member that missed a generation is kept in the group (KIP-345), but not in that generation
                assert not counts_on(other.core.member.metadata), (
                    f"{sorted(other.owned() & came)} belong to {other.name} and to {member.name}"
                )
                self.count("zombie")

    def woken(self, member: "Member") -> None:
        """Nobody is woken again and again at one time."""
        at_s, often = self._woken.get(member.name, (-1.0, 0))
        often = often + 1 if at_s == self._world.now_s else 1
        self._woken[member.name] = (self._world.now_s, often)
        assert often < _MOST_WAKES_AT_ONCE, "it is woken for ever"

    @contextmanager
    def era_rule(self, member: "Member", ask: Ask, *, is_of_before: bool) -> Iterator[None]:
        """An answer to what somebody else asked, as this member once was, changes nothing."""
        before = _frozen(member)
        still_about_some = bool(ask.ticket.partitions) and member.core.holds(ask.ticket)
        yield
        is_waited_for = member.is_leaving and ask.api is ApiKey.OFFSET_COMMIT
        if is_of_before and not still_about_some and not is_waited_for:
            assert _frozen(member) == before, f"an answer to {ask.api.name} of an era before"
            self.count(f"late {ask.ticket.call.value}")

    # when it is calm again

    def at_the_end(self) -> None:
        world = self._world
        states = {member.name: member.core.state.value for member in world.members}
        assert set(states.values()) <= {"Stable", "Fenced"}, f"stuck: {states}"
        stable = [member for member in world.members if states[member.name] == "Stable"]
        wanted = {
            TopicPartition(topic, number)
            for topic in {topic for member in stable for topic in member.core.subscription.topics}
            for number in range(world.counts[topic])
        }
        owned = [tp for member in stable for tp in member.owned()]
        assert sorted(owned) == sorted(wanted), "every partition has one owner"
        for member in stable:
            assert self._known.get(member.name, set()) == member.owned(), "and its user knows"
            assert member.core.member.member_id in world.coordinator.members()
        self.count("calm")


def _frozen(member: "Member") -> object:
    core = member.core
    positions = tuple((s.tp, s.assignment, s.version, s.position, s.fetch_offset) for s in core.positions)
    return core.state, core.member.metadata, getattr(core.member, "is_leader", None), core.rejoin_reason, positions
