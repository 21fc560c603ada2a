"""Random groups and clusters, as Hypothesis strategies and from a plain seeded generator."""

from __future__ import annotations

import random
from typing import TypeAlias

from hypothesis import strategies as st

from ottla.assign import Cluster, PartitionInfo, Subscription

Case: TypeAlias = tuple[Cluster, dict[str, Subscription]]


def random_case(seed: int, *, racks: bool = True) -> Case:
    """A cluster of up to five topics and a group of up to seven members; half of all cases have racks."""
    draw = random.Random(seed)
    names = ["a", "b", "c"] if racks and draw.random() < 0.5 else []
    topics = {f"t{number}": draw.choice([0, 1, 2, 3, 3, 4, 7]) for number in range(draw.randint(1, 5))}
    cluster = Cluster(
        {
            topic: tuple(PartitionInfo(p, _replicas(draw, names)) for p in range(count))
            for topic, count in topics.items()
        }
    )
    known = [*topics, "missing"]
    subscriptions: dict[str, Subscription] = {}
    same = draw.random() < 0.5
    wanted = tuple(draw.sample(known, draw.randint(1, len(known))))
    for number in range(draw.randint(1, 7)):
        member = f"{draw.choice('xyzÿ')}-{draw.randint(0, 99)}-{number}"
        subscriptions[member] = Subscription(
            topics=wanted if same else tuple(draw.sample(known, draw.randint(0, len(known)))),
            rack_id=draw.choice([*names, None, ""]) if names else None,
            group_instance_id=f"i{draw.randint(0, 99)}-{number}" if draw.random() < 0.3 else None,
        )
    return cluster, subscriptions


def _replicas(draw: random.Random, names: list[str]) -> tuple[str, ...]:
    return tuple(draw.sample(names, draw.randint(1, len(names)))) if names else ()


def cases(*, racks: bool = True) -> st.SearchStrategy[Case]:
    """Random cases by their seed."""
    return st.integers(0, 2**32).map(lambda seed: random_case(seed, racks=racks))
