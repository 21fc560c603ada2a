"""The assignors of the server's side against Apache Kafka's own classes, thousands of random groups in one JVM.

A group changes from step to step: members come, go and change their minds, topics come, grow and go. Each step begins
with the target of the one before. Every answer must be the same, partition by partition: ours go through members and
topics in the order of Java's hash tables.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ottla.assign.server import BUILT_IN
from ottla.base.steps import result_of
from ottla.base.types import topic_id_text
from ottla.coordinator.group.config import GroupConfig, GroupSettings
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Member
from ottla.coordinator.group.consumer.room import Room
from ottla.coordinator.group.consumer.subscriptions import after
from ottla.coordinator.group.consumer.target import group_spec
from tests.coordinator.group.consumer.rig import Metadata
from tests.interop import apache

pytestmark = pytest.mark.interop

_STEPS, _GROUPS = 5, 1_000
_ORACLE = Path(__file__).with_name("assignors") / "ServerOracle.java"
Answer = dict[str, list[str]]


class Story:
    """One group that changes; `asked` is what the oracle is told, `answers` what ours say."""

    def __init__(self, assignor: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._assignor = assignor
        self._metadata = _RandomIds(self._rng)
        config = GroupConfig()
        self._room = Room(config, self._metadata, GroupSettings(config))
        self._group = ConsumerGroup("g")
        self.asked: list[str] = []
        self.answers: list[Answer] = []
        self._topics = [f"t{number}" for number in range(self._rng.randint(1, 6))]
        for topic in self._topics:
            self._metadata.make(topic, self._rng.randint(1, 30))
        self._same = self._rng.random() < 0.4  # all members subscribe alike
        for _ in range(_STEPS):
            self._change()
            self._step()

    def _change(self) -> None:
        rng, group = self._rng, self._group
        for _ in range(rng.randint(1, 4)):
            if group.members and rng.random() < 0.3:
                gone = rng.choice(sorted(group.members))
                group.apply_target(gone, None)
                group.apply_current_tombstone(gone)
                group.apply_member_tombstone(gone)
            else:
                name = f"{rng.choice(['consumer', 'm', 'ü'])}-{rng.randrange(10 ** rng.randint(1, 9))}"
                group.apply_member(self._member(name))
        if rng.random() < 0.3:
            topic = self._metadata.find(rng.choice(self._topics))
            if topic is not None:
                self._metadata.make(topic.name, topic.partitions + rng.randint(1, 5))
        if self._same:
            names = frozenset(rng.sample(self._topics, rng.randint(1, len(self._topics))))
            for member_id in list(group.members):
                group.apply_member(
                    Member(member_id, topic_names=names, instance_id=group.members[member_id].instance_id)
                )

    def _member(self, name: str) -> Member:
        rng = self._rng
        names = frozenset(rng.sample(self._topics, rng.randint(0, len(self._topics))))
        taken = name in self._group.members
        return Member(name, topic_names=names, instance_id=f"i{name}" if not taken and rng.random() < 0.2 else None)

    def _step(self) -> None:
        group = self._group
        kind = after(group, ()).kind(len(group.members))
        spec = result_of(group_spec(self._room, group, None, kind))
        for topic_id, topic in spec.topics.items():
            self.asked.append(f"T\t{topic_id_text(topic_id)}\t{topic.partitions}")
        for member_id, member in spec.members.items():
            ids = ",".join(map(topic_id_text, member.topic_ids)) or "-"
            before = group.target.get(member_id, {})
            has = ",".join(f"{topic_id_text(each)}:{p}" for each, numbers in before.items() for p in sorted(numbers))
            self.asked.append(f"M\t{member_id}\t{member.instance_id or '-'}\t{ids}\t{has or '-'}")
        self.asked.append(f"RUN\t{self._assignor}\t{kind.name}")
        target = BUILT_IN[self._assignor]().assign(spec)
        answer: Answer = {}
        for member_id in group.members:
            given = target.get(member_id, {})
            group.apply_target(member_id, {each: frozenset(numbers) for each, numbers in given.items() if len(numbers)})
            answer[member_id] = sorted(f"{topic_id_text(each)}:{p}" for each, numbers in given.items() for p in numbers)
        self.answers.append(answer)


class _RandomIds(Metadata):
    """Topics whose ids are random, as real ones are: Java's order of topics depends on them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        super().__init__()

    def new_id(self) -> bytes:
        return self._rng.randbytes(16)


def _oracle(text: str, jars: str) -> list[Answer]:
    command = [apache.java(), "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*"]
    done = subprocess.run(
        [*command, str(_ORACLE)], input=text, capture_output=True, text=True, encoding="utf-8", timeout=600, check=True
    )
    answers: list[Answer] = [{}]
    for line in done.stdout.splitlines():
        if line == "END":
            answers.append({})
        else:
            member, *partitions = line.split("\t")
            answers[-1][member] = sorted(partitions)
    return answers[:-1]


@pytest.mark.parametrize("assignor", BUILT_IN)
def test_a10_ours_divide_as_apache_kafkas_classes_do(apache_jars: str, assignor: str) -> None:
    stories = [Story(assignor, seed) for seed in range(_GROUPS)]
    theirs = _oracle("\n".join(line for story in stories for line in story.asked) + "\n", apache_jars)
    ours = [answer for story in stories for answer in story.answers]
    assert len(ours) == len(theirs) == _GROUPS * _STEPS
    different = [(at, mine, other) for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)) if mine != other]
    assert not different, f"{len(different)} of {len(ours)}, the first: {different[0]}"
    assert sum(len(answer) > 3 for answer in ours) > len(ours) // 3, "most cases are trivial"
