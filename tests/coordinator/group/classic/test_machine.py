"""Clients join, sync, heartbeat, commit, leave and vanish in any order; appends fail, brokers die, time passes.

Held at every step: nobody is answered twice (the rig), generations only grow, a partition has one owner in a
generation, what was acknowledged as committed is what is fetched, and a crash in a settled state changes nothing.
Held at the end: once the clock has run, nobody waits for an answer, and a group whose members fell silent is empty.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from tests.coordinator.group.rig import GROUP, REBALANCE_MS, Rig, protocols, recover

PARTITIONS = 5
_SETTLED = (GroupState.EMPTY, GroupState.STABLE)


@dataclass
class Client:
    """A consumer as the coordinator sees it; `alive` is whether anybody still listens to its answers."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    join_token: int | None = None
    sync_token: int | None = None
    joined: JoinGroupResponse | None = None
    synced: bool = False
    alive: bool = True


def durable(group: Group | None) -> object:
    """What of a settled group must come back after a crash."""
    if group is None:
        return None
    return (
        group.state,
        group.generation,
        group.protocol,
        group.leader if group.members else None,
        [(m.member_id, m.group_instance_id, m.metadata(group.protocol), m.assignment) for m in group.members.values()],
    )


class GroupMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([3, 100]), statics=st.lists(st.booleans()))
    def start(self, delay_ms: int, size: int, statics: list[bool]) -> None:
        self.rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size))
        self.clients: list[Client] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.newest = 0
        self.committed = -1
        self.next_offset = 0
        for static in statics[:3]:
            self.start_client(static)
        self.go_on(seed=0, rounds=4)

    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    # -- what clients do

    @rule(static=st.booleans())
    def start_client(self, static: bool) -> None:
        instance = f"i{len(self.clients) % 2}" if static else None
        client = Client(instance)
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), topic=st.sampled_from(["words", "more"]), other=st.booleans())
    def join_again(self, data: st.DataObject, topic: str, other: bool) -> None:
        client = data.draw(st.sampled_from(self.alive()))
        names = ("roundrobin", "range") if other else ("range", "roundrobin")
        self.send_join(client, protocols(*names, topics=(topic,)))

    def send_join(self, client: Client, offered: object = None) -> None:
        given = offered if isinstance(offered, tuple) else protocols("range", "roundrobin")
        client.joined, client.generation, client.synced = None, -1, False
        client.join_token = self.rig.join(client.member_id, instance=client.instance, offered=given)
        self.listen()

    @precondition(lambda self: any(c.joined for c in self.alive()))
    @rule(data=st.data(), seed=st.integers(0, 2**16))
    def send_sync(self, data: st.DataObject, seed: int) -> None:
        self.sync(data.draw(st.sampled_from([c for c in self.alive() if c.joined])), seed)

    def sync(self, client: Client, seed: int) -> None:
        assert client.joined is not None
        assignments: dict[str, bytes] = {}
        if client.joined.leader == client.member_id and not client.joined.skip_assignment:
            members = [m.member_id for m in client.joined.members]
            shares = random.Random(seed).choices(members, k=PARTITIONS) if members else []
            assignments = {m: bytes(p for p, owner in enumerate(shares) if owner == m) for m in members}
        client.sync_token = self.rig.sync(
            client.member_id,
            client.generation,
            assignments,
            instance=client.instance,
            protocol_name=client.joined.protocol_name,
        )
        self.listen()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def send_heartbeat(self, data: st.DataObject) -> None:
        self.heartbeat(data.draw(st.sampled_from(self.alive())))

    def heartbeat(self, client: Client) -> ErrorCode:
        return self.rig.heartbeat(client.member_id, client.generation, client.instance)

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), stale=st.booleans())
    def commit(self, data: st.DataObject, stale: bool) -> None:
        client = data.draw(st.sampled_from(self.alive()))
        group = self.rig.shard.group(GROUP)
        generation = client.generation - 1 if stale else client.generation
        self.next_offset += 1
        error = self.rig.commit(
            self.next_offset, member_id=client.member_id, generation=generation, instance=client.instance
        )
        if error is ErrorCode.NONE:
            self.committed = self.next_offset
            if generation >= 0:
                assert group is not None
                assert generation == group.generation, "an old generation wrote"

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.alive()))
        if client.member_id:
            self.rig.leave(client.member_id)
        client.alive = False
        self.listen()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive())).alive = False

    @precondition(lambda self: self.alive())
    @rule(seed=st.integers(0, 2**16), rounds=st.integers(1, 4))
    def go_on(self, seed: int, rounds: int) -> None:
        """Everybody does what a consumer does next; after four rounds an undisturbed group is stable."""
        for _ in range(rounds):
            for client in self.alive():
                if client.join_token is not None or client.sync_token is not None:
                    continue
                if client.joined is None:
                    self.send_join(client)
                elif not client.synced:
                    self.sync(client, seed)
                elif self.heartbeat(client) is not ErrorCode.NONE:
                    self.send_join(client)
            self.rig.advance(3_000)
            self.listen()

    # -- what happens to them

    @rule(delta_ms=st.sampled_from([1, 1_000, 9_000, REBALANCE_MS]))
    def pass_time(self, delta_ms: int) -> None:
        self.rig.advance(delta_ms)
        self.listen()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]))
    def fail_next_append(self, error: ErrorCode) -> None:
        self.rig.fail_with = error

    @rule()
    def crash(self) -> None:
        self.rig.fail_with = None
        self.rig.crash()
        for client in self.clients:  # their connections are gone; what they have been told they still know
            client.join_token = client.sync_token = None

    def listen(self) -> None:
        """Clients read their answers."""
        for client in self.clients:
            if client.join_token is not None and (answer := self.rig.answer(client.join_token)) is not None:
                client.join_token = None
                self.on_join(client, answer)
            if client.sync_token is not None and (answer := self.rig.answer(client.sync_token)) is not None:
                client.sync_token = None
                client.synced = answer.error_code == ErrorCode.NONE
                if client.synced:
                    self.on_assignment(client, answer.assignment)
                else:
                    client.joined = None

    def on_join(self, client: Client, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            client.member_id, client.generation, client.joined = answer.member_id, answer.generation_id, answer
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == ErrorCode.FENCED_INSTANCE_ID:
            client.alive = False
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    def on_assignment(self, client: Client, assignment: bytes) -> None:
        assert client.generation >= self.newest, "an older generation was assigned after a newer one"
        self.newest = client.generation
        for partition in assignment:
            place = client.instance or client.member_id
            owner = self.owners.setdefault((client.generation, partition), place)
            assert owner == place, "two owners of one partition in one generation"

    # -- what must hold

    @invariant()
    def committed_offsets_are_what_was_acknowledged(self) -> None:
        if hasattr(self, "rig"):
            assert self.rig.fetch().committed_offset == self.committed

    @invariant()
    def a_settled_group_survives_a_crash(self) -> None:
        group = self.rig.shard.group(GROUP) if hasattr(self, "rig") else None
        if group is not None and group.state in _SETTLED:
            again = recover(replace(self.rig.config, group_max_size=1_000), self.rig.log, self.rig.now_ms)
            assert durable(again.group(GROUP)) == durable(group)

    @invariant()
    def there_is_a_leader_exactly_when_there_are_members(self) -> None:
        group = self.rig.shard.group(GROUP) if hasattr(self, "rig") else None
        if group is not None:
            assert (group.leader in group.members) == bool(group.members)
            assert group.pending_sync <= set(group.members)
            assert not group.pending_members & set(group.members)

    @invariant()
    def what_is_kept_of_all_members_is_what_would_be_counted(self) -> None:
        group = self.rig.shard.group(GROUP) if hasattr(self, "rig") else None
        if group is not None:
            members = tuple(group.members.values())
            offered = [{each.name for each in member.protocols} for member in members]
            assert group.members.joins_waiting == sum(member.join_token is not None for member in members)
            assert group.members.candidates() == (
                frozenset.intersection(*map(frozenset, offered)) if offered else set()
            )
            for member in members:
                if member.group_instance_id is not None:
                    assert group.members.static_member_id(member.group_instance_id) == member.member_id

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.fail_with = None
        self.rig.advance(1_000_000)
        group = self.rig.shard.group(GROUP)
        if group is not None:
            assert group.state is GroupState.EMPTY
            assert not group.members
            assert not group.pending_members
        self.listen()
        assert not self.rig.waiting, "somebody waits forever"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=150, stateful_step_count=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
