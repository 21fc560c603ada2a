"""Random groups whose members held something before: of several generations, with claims that contradict each other.

Three kinds of case, by seed: nobody held anything; members carry what a real earlier division gave them, some of them
from an older generation; claims are drawn at random. Members and topics come and go in between.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from ottla.assign import Cluster, PartitionInfo, RoundRobinAssignor, Subscription
from ottla.assign.sticky.user_data import encode_assignment, encode_generation
from ottla.base.types import TopicPartition
from tests.assign.groups import Case, random_case


class Before(NamedTuple):
    """What a member had."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int


_NOTHING = Before((), -1)


def case_with_history(seed: int, *, cooperative: bool) -> Case:
    """A case whose subscriptions are those of the cooperative sticky assignor, or of the sticky one."""
    draw = random.Random(seed)
    many = draw.random() < 0.1
    racks = draw.choice([[], [], ["a", "b"], ["a", "b", "c"]])
    topics = {f"t{n}": draw.choice([0, 1, 2, 3, 3, 4, 7, 12]) for n in range(draw.randint(1, 9 if many else 5))}
    cluster = Cluster({topic: _infos(draw, count, racks) for topic, count in topics.items()})
    members = [_member_id(draw, n) for n in range(draw.randint(1, 45 if many else 8))]
    wanted = _wanted(draw, members, [*topics, "missing"])
    before = _before(draw, cluster, wanted)
    subscriptions = {}
    for member in members:
        rack = draw.choice([*racks, *racks, None, ""]) if racks else None
        instance = f"i{draw.randint(0, 99)}-{member}" if draw.random() < 0.2 else None
        had = before.get(member, _NOTHING)
        subscriptions[member] = _subscription(draw, wanted[member], had, cooperative)._replace(
            rack_id=rack, group_instance_id=instance
        )
    return cluster, subscriptions


def _infos(draw: random.Random, count: int, racks: list[str]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(number, tuple(draw.sample(racks, draw.randint(1, len(racks)))) if racks else ())
        for number in range(count)
    )


def _member_id(draw: random.Random, number: int) -> str:
    return f"{draw.choice(['consumer', 'x', 'ÿ', 'z'])}-{draw.getrandbits(draw.choice([8, 64])):x}-{number}"


def _wanted(draw: random.Random, members: list[str], known: list[str]) -> dict[str, tuple[str, ...]]:
    kinds = [tuple(draw.sample(known, draw.randint(1, len(known)))) for _ in range(draw.choice([1, 1, 2, 3, 8]))]
    if draw.random() < 0.05:
        kinds.append(())
    return {member: draw.choice(kinds) for member in members}


def _before(draw: random.Random, cluster: Cluster, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Before]:
    match draw.choice(["nothing", "divided", "divided", "divided", "drawn"]):
        case "nothing":
            return {}
        case "divided":
            return _divided(draw, cluster, wanted)
        case _:
            return _drawn(draw, cluster, list(wanted))


def _divided(draw: random.Random, cluster: Cluster, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Before]:
    """Members hold what a division gave them; some hold what an older one, of another group, gave them."""
    found: dict[str, Before] = {}
    for generation_id in range(draw.randint(1, 5), draw.randint(6, 8)):
        there = draw.sample(list(wanted), draw.randint(1, len(wanted)))
        others = [f"gone-{n}" for n in range(draw.choice([0, 0, 1, 3]))]
        group = {member: Subscription(_changed(draw, wanted[member], cluster)) for member in there}
        group |= {member: Subscription(tuple(cluster.topics)) for member in others}
        for member, given in RoundRobinAssignor().assign(cluster, group).items():
            kept = tuple(tp for tp in given.partitions if draw.random() < 0.95)
            found[member] = Before(kept, generation_id)
    return found


def _changed(draw: random.Random, topics: tuple[str, ...], cluster: Cluster) -> tuple[str, ...]:
    return topics if draw.random() < 0.8 else tuple(draw.sample(list(cluster.topics), 1))


def _drawn(draw: random.Random, cluster: Cluster, members: list[str]) -> dict[str, Before]:
    everything = list(cluster.partitions(cluster.topics))
    if draw.random() < 0.2:
        everything += [TopicPartition("t0", 99), TopicPartition("gone", 0)]
    return {
        member: Before(
            tuple(draw.sample(everything, draw.randint(0, len(everything)))), draw.choice([-1, 3, 3, 4, 4, 4])
        )
        for member in members
    }


def _subscription(draw: random.Random, topics: tuple[str, ...], had: Before, cooperative: bool) -> Subscription:
    names_generation = draw.random() < 0.8
    if cooperative:
        user_data = draw.choice([encode_generation(had.generation_id), None, b"", b"xy"])
        generation_id = had.generation_id if names_generation else -1
        if not names_generation:
            user_data = encode_generation(had.generation_id) if draw.random() < 0.8 else user_data
        return Subscription(topics, user_data, had.partitions, generation_id)
    user_data = None
    if had is not _NOTHING:
        user_data = encode_assignment(had.partitions, had.generation_id)
        user_data = draw.choice([user_data] * 8 + [user_data[:-4], user_data[:5]])
    return Subscription(topics, user_data, (), had.generation_id if names_generation else -1)


def case_for(assignor: str, seed: int) -> Case:
    """A case for one of the built-in assignors: the sticky ones have a history, mostly."""
    if "sticky" in assignor and seed % 10:
        return case_with_history(seed, cooperative=assignor.startswith("cooperative"))
    return random_case(seed)
