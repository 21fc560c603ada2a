"""Apache Kafka's assignors in a JVM: what they answer, and how long they take."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.assign import Subscription
from tests.assign.groups import Case
from tests.interop import apache

_ORACLE = Path(__file__).with_name("assignors") / "Oracle.java"
Answer = dict[str, list[str]]


def lines(case: Case, assignor: str, *, times: int = 0) -> str:
    """A case as the oracle reads it: to be divided once, or, if `times` is given, to be timed so often."""
    cluster, subscriptions = case
    facts = [
        f"P\t{topic}\t{info.partition}\t{','.join(info.replica_racks) or '-'}"
        for topic, infos in cluster.topics.items()
        for info in infos
    ]
    facts += [_member(member, wanted) for member, wanted in subscriptions.items()]
    return "\n".join([*facts, f"TIME\t{assignor}\t{times}" if times else f"RUN\t{assignor}", ""])


def _member(member: str, said: Subscription) -> str:
    rack = "-" if said.rack_id is None else said.rack_id or '""'
    owned = ",".join(f"{tp.topic}:{tp.partition}" for tp in said.owned_partitions)
    user_data = "-" if said.user_data is None else said.user_data.hex()
    fields = ["M", member, said.group_instance_id or "-", rack, ",".join(said.topics) or "-", owned or "-"]
    return "\t".join([*fields, str(said.generation_id), user_data])


def answers(text: str, jars: str) -> list[Answer]:
    """What Apache Kafka's classes answer, a case after the other."""
    found: list[Answer] = [{}]
    for line in _said(text, jars):
        if line == "END":
            found.append({})
        else:
            member, *partitions = line.split("\t")
            found[-1][member] = sorted(partitions)
    return found[:-1]


def times_ms(text: str, jars: str) -> list[list[float]]:
    """How many milliseconds each division took, a case after the other."""
    return [[float(each) for each in line.split("\t")] for line in _said(text, jars) if line != "END"]


def _said(text: str, jars: str) -> list[str]:
    command = [apache.java(), "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*"]
    done = subprocess.run(
        [*command, str(_ORACLE)], input=text, capture_output=True, text=True, encoding="utf-8", timeout=600, check=True
    )
    return done.stdout.splitlines()
