"""A10: what is forecast on paper for a consumer group is what the coordinator then does."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from random import Random

import pytest

from ottla.assign import Cluster
from ottla.assign.rehearsal import Rehearsal
from ottla.assign.server import RangeServerAssignor, ServerAssignor, UniformAssignor
from ottla.assign.server.on_paper import OnPaper
from ottla.base.types import TopicPartition
from tests.coordinator.group.consumer.rig import FakeMember, Metadata, Rig, settle


def _held(rig: Rig, members: Iterable[FakeMember], topics: Iterable[str]) -> dict[str, tuple[TopicPartition, ...]]:
    names = {rig.metadata.id_of(topic): topic for topic in topics}

    def of(member: FakeMember) -> list[TopicPartition]:
        return [TopicPartition(names[topic], number) for topic, numbers in member.owned.items() for number in numbers]

    return {member.member_id: tuple(sorted(of(member))) for member in members}


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeServerAssignor()], ids=lambda each: each.name)
@pytest.mark.parametrize("seed", range(12))
def test_a10_a_member_goes_on_paper_as_it_goes_in_the_group(seed: int, assignor: ServerAssignor) -> None:
    random = Random(seed)
    topics = {f"t{number}": random.randint(1, 7) for number in range(random.randint(1, 3))}
    rig = Rig(Metadata(**topics), assignors={assignor.name: assignor})
    members: dict[str, FakeMember] = {}
    wants: dict[str, list[str]] = {}
    for _ in range(random.randint(3, 6)):
        member_id = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        wants[member_id] = [topic for topic in topics if seed % 2 or random.random() < 0.7] or ["t0"]
        members[member_id] = rig.joined(member_id, *wants[member_id])
    settle(*members.values(), rounds=30)
    ids = {topic: rig.metadata.id_of(topic) for topic in topics}
    paper = Rehearsal(lambda: OnPaper(assignor, ids), Cluster.of(topics), rig.group.epoch)
    for member_id, holds in _held(rig, members.values(), topics).items():
        paper.join(member_id, wants[member_id], holds=holds)
    gone = random.choice(sorted(members))
    paper.leave(gone)
    paper.settle()
    members.pop(gone).leave()
    settle(*members.values(), rounds=30)
    forecast = {member_id: tuple(sorted(holds)) for member_id, holds in paper.holds.items()}
    assert forecast == _held(rig, members.values(), topics)
