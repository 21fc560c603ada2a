"""A9: our assignors against Apache Kafka's own classes, on thousands of random groups, racks and static members."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.assign import BUILT_IN, find
from tests.assign.groups import Case, random_case
from tests.interop import apache

CASES = 3_000
_ORACLE = Path(__file__).with_name("assignors") / "Oracle.java"

pytestmark = pytest.mark.interop


def _lines(case: Case, assignor: str) -> str:
    cluster, subscriptions = case
    facts = [
        f"P\t{topic}\t{info.partition}\t{','.join(info.replica_racks) or '-'}"
        for topic, infos in cluster.topics.items()
        for info in infos
    ]
    for member, wanted in subscriptions.items():
        rack = "-" if wanted.rack_id is None else wanted.rack_id or '""'
        facts.append(f"M\t{member}\t{wanted.group_instance_id or '-'}\t{rack}\t{','.join(wanted.topics) or '-'}")
    return "\n".join([*facts, f"RUN\t{assignor}", ""])


def _oracle(text: str, jars: str) -> list[dict[str, list[str]]]:
    """What Apache Kafka's classes answer, a case after the other."""
    command = [apache.java(), "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{jars}/*"]
    done = subprocess.run(
        [*command, str(_ORACLE)], input=text, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True
    )
    answers: list[dict[str, list[str]]] = [{}]
    for line in done.stdout.splitlines():
        if line == "END":
            answers.append({})
        else:
            member, *partitions = line.split("\t")
            answers[-1][member] = sorted(partitions)
    return answers[:-1]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a9_every_assignor_agrees_with_apache_kafka(name: str, apache_jars: str) -> None:
    cases = [random_case(seed) for seed in range(CASES)]
    theirs = _oracle("".join(_lines(case, name) for case in cases), apache_jars)
    assert len(theirs) == CASES
    for seed, ((cluster, subscriptions), expected) in enumerate(zip(cases, theirs, strict=True)):
        ours = {
            member: sorted(f"{p.topic}:{p.partition}" for p in assignment.partitions)
            for member, assignment in find(name).assign(cluster, subscriptions).items()
        }
        assert ours == expected, f"seed {seed}"
