"""A9: our assignors against Apache Kafka's own classes, on thousands of random groups, all in one JVM.

The cases have racks, static members, unequal subscriptions, and previous owners of several generations whose claims
contradict each other. The Java classes are deterministic: where they go through a HashMap, ours keep its order. So
every answer must be the same, save where Java's is no assignment at all (see `_is_wrong`).
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from ottla.assign import BUILT_IN, CooperativeStickyAssignor, StickyAssignor, find
from tests.assign import recorded
from tests.assign.groups import Case
from tests.assign.histories import case_for
from tests.interop.oracle import Answer, answers, lines

#: `make interop` runs all of them; SHORT=1 (what CI runs) leaves the slow test out.
FULL, SHORT = 6_000, 1_000

pytestmark = pytest.mark.interop


def _is_wrong(answer: Answer, case: Case) -> str:
    """Why Java's answer is no assignment; "" if it is one."""
    cluster, subscriptions = case
    if "ERROR" in answer:
        return "raised " + answer["ERROR"][0].partition(":")[0]
    given = [partition for partitions in answer.values() for partition in partitions]
    existing = {f"{tp.topic}:{tp.partition}" for tp in cluster.partitions(cluster.topics)}
    if set(given) - existing:
        return "gave a partition that does not exist"
    if len(set(given)) < len(given):
        return "gave a partition to two members"
    for member, partitions in answer.items():
        if {partition.rpartition(":")[0] for partition in partitions} - set(subscriptions[member].topics):
            return "gave a member a topic that it does not want"
    return ""


def _known_flaw(case: Case, name: str) -> str:
    """A flaw of the sticky Java classes that this case can meet without an answer that is plainly wrong; "" if none."""
    assignor = find(name)
    if not isinstance(assignor, StickyAssignor | CooperativeStickyAssignor):
        return ""
    wanted = {member: set(said.topics) for member, said in case[1].items()}
    if set() in wanted.values() and any(wanted.values()):
        return "took a member that wants nothing for one that wants everything"  # allSubscriptionsEqual
    claims = {member: assignor.claim(said) for member, said in case[1].items()}
    newest = max(claim.generation_id for claim in claims.values())
    for member, claim in claims.items():
        if claim.generation_id < newest and {tp.topic for tp in claim.partitions} - wanted[member]:
            return "gave a member a topic that it does not want, and took it back"  # performReassignments
    return ""


def _ours(name: str, case: Case) -> Answer:
    return {
        member: sorted(f"{p.topic}:{p.partition}" for p in assignment.partitions)
        for member, assignment in find(name).assign(*case).items()
    }


def _flaw(name: str, case: Case, theirs: Answer) -> str:
    """Why Java's answer does not count; "" if it does."""
    return _is_wrong(theirs, case) or (_known_flaw(case, name) if _ours(name, case) != theirs else "")


def _agree(name: str, count: int, jars: str) -> Counter[str]:
    cases = [case_for(name, seed) for seed in range(count)]
    theirs = answers("".join(lines(case, name) for case in cases), jars)
    assert len(theirs) == count
    wrong: Counter[str] = Counter()
    for seed, (case, expected) in enumerate(zip(cases, theirs, strict=True)):
        ours = _ours(name, case)
        assert not _is_wrong(ours, case), f"seed {seed}"
        why = _flaw(name, case, expected)
        if why:
            wrong[why] += 1
        else:
            assert ours == expected, f"seed {seed}"
    return wrong


@pytest.mark.parametrize("name", BUILT_IN)
def test_a9_every_assignor_agrees_with_apache_kafka(name: str, apache_jars: str) -> None:
    count = SHORT if os.environ.get("SHORT") else FULL
    wrong = _agree(name, count, apache_jars)
    print(name, count, wrong)
    assert count - wrong.total() >= count * 0.9, wrong


def test_a9_the_recorded_answers_are_those_of_apache_kafka(apache_jars: str) -> None:
    """`tests/seeds` compares ours with them where there is no Java. If this fails: `OTTLA_RECORD=1`, and look at it."""
    found: dict[str, list[Answer | None]] = {}
    for name in BUILT_IN:
        cases = [case_for(name, seed) for seed in range(recorded.COUNT)]
        theirs = answers("".join(lines(case, name) for case in cases), apache_jars)
        found[name] = [None if _flaw(name, *each) else each[1] for each in zip(cases, theirs, strict=True)]
    if os.environ.get("OTTLA_RECORD"):
        recorded.write(found)
    assert recorded.read() == found
