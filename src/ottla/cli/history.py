"""`ottla history`: how Kafka's coordination came to be what it is, shown by models beside the real thing.

The models belong to the project's simulator, `sim`, which is no part of the installed package. This module is the only
one below `src` that imports it, when the command runs in a checkout.
"""

from __future__ import annotations

import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ottla
from ottla.base.words import counted
from ottla.cli.common import CommandError, Json, print_json, print_rows

if TYPE_CHECKING:
    from sim.zookeeper_era import Comparison, Figures, Numbers, Settled

Row = dict[str, object]
_COLUMNS = ("figure", "zookeeper", "coordinator")
_EVENT_COLUMNS = ("at_s", "event", "member", "zookeeper", "coordinator")

app = typer.Typer(
    no_args_is_help=True,
    help="How Kafka's coordination came to be what it is.\n\nExample: `ottla history rebalance --members 5`",
)


@app.callback()
def _history() -> None:
    """Keeps `rebalance` a command of its own, though it is the only one so far."""


@app.command("rebalance")
def rebalance(
    members: Annotated[int, typer.Option("--members", "-m", help="Members that start together.")] = 5,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="Partitions of the topic.")] = 20,
    joins: Annotated[int, typer.Option("--joins", help="Members that join later.")] = 2,
    leaves: Annotated[int, typer.Option("--leaves", help="Members that leave in order.")] = 1,
    crashes: Annotated[int, typer.Option("--crashes", help="Members that are killed.")] = 1,
    pauses: Annotated[
        int, typer.Option("--pauses", help="Members that stand still for longer than their session, and go on.")
    ] = 0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed is the same history; else drawn.")] = None,
    as_json: Json = False,
) -> None:
    """Share partitions as Kafka 0.8's consumers did over ZooKeeper, and with the group coordinator, side by side.

    Both live through one script, drawn from the seed, in virtual time. docs/history.md explains what is seen.

    Example: `ottla history rebalance --members 5 --partitions 20 --seed 1`
    """
    _find_simulator()
    from sim.zookeeper_era import Numbers, compare

    asked = Numbers(members=members, partitions=partitions, joins=joins, leaves=leaves, crashes=crashes, pauses=pauses)
    asked.check()
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    if as_json:
        print_json(_data(compare(asked, seed)))
        return
    # First, because a large group takes a while, and the seed of one that was interrupted should be known.
    print(f"Seed {seed}: {_told(asked)}.", flush=True)
    found = compare(asked, seed)
    print_rows(_figures(found), _COLUMNS, as_json=False, none="")
    print("How long it took until every partition was read by one member, and stayed so:")
    print_rows(_events(found), _EVENT_COLUMNS, as_json=False, none="")
    for sentence in _seen(found):
        print(sentence)


def _find_simulator() -> None:
    """Make `sim` importable: it lies beside `src` in a checkout. Raises CommandError where there is none."""
    root = Path(ottla.__file__).resolve().parents[2]
    if not (root / "sim" / "zookeeper_era").is_dir():
        raise CommandError(
            "`ottla history` needs a checkout of the project: its models are no part of the installed package"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))  # before a stranger's package of this name


# -- what is printed


def _told(asked: Numbers) -> str:
    happens = (
        counted(asked.joins, "join"),
        counted(asked.leaves, "leave"),
        counted(asked.crashes, "crash", "crashes"),
        counted(asked.pauses, "pause"),
    )
    return f"{counted(asked.members, 'member')}, {counted(asked.partitions, 'partition')}; {', '.join(happens)}"


#: What a figure is called, and where it is.
_FIGURES = {
    "notifications: members told that something changed": "notifications",
    "requests to coordinate: reads and writes, or joins and syncs": "requests",
    "requests to commit offsets": "commits",
    "pings, or heartbeats": "keep_alives",
    "rebalances: of each consumer by itself, or of the group": "rebalances",
    "attempts that failed": "failed_attempts",
    "members that gave up, and stayed without partitions": "given_up",
    "times when two took a partition for theirs": "disputes",
    "two took it for theirs, partition-seconds": "disputed_s",
    "two read it, partition-seconds": "read_by_two_s",
    "nobody read it, partition-seconds": "unread_s",
    "partitions committed by a former owner, accepted": "late_commits_taken",
    "partitions committed by a former owner, refused": "late_commits_refused",
}


def _figures(found: Comparison) -> list[Row]:
    return [
        {
            "figure": figure,
            "zookeeper": round(getattr(found.zookeeper, name), 1),
            "coordinator": round(getattr(found.coordinator, name), 1),
        }
        for figure, name in _FIGURES.items()
    ]


def _events(found: Comparison) -> list[Row]:
    return [
        {
            "at_s": round(old.event.at_ms / 1_000, 1),
            "event": old.event.kind.value,
            "member": "all that start" if old.event.kind.value == "start" else old.event.member,
            "zookeeper": _after(old),
            "coordinator": _after(new),
        }
        for old, new in zip(found.zookeeper.settled, found.coordinator.settled, strict=True)
    ]


def _after(settled: Settled) -> str:
    return "not before the next" if settled.after_ms is None else f"{settled.after_ms / 1_000:.1f} s"


def _seen(found: Comparison) -> list[str]:
    """What a reader of the tables should see."""
    old, new = found.zookeeper, found.coordinator
    reads = old.requests_by_kind.get("read", 0)
    said = [
        "The herd: nobody leads, so every old consumer hears of every change and rebalances by itself: "
        f"{counted(old.rebalances, 'rebalance')}, {counted(reads, 'read')}. With the coordinator the group had "
        f"{counted(new.rebalances, 'generation')}, and in each one member divided for all.",
    ]
    if old.disputes:
        said.append(
            "Split brain: each old consumer computes from what its own server shows, at its own time. "
            f"Two took a partition for theirs {_times(old.disputes)}. "
            f"Failed attempts: {old.failed_attempts:,}. Who fails waits, and tries again."
        )
    if old.late_commits_taken or new.late_commits_refused:
        said.append(
            "A member that stood still does not know that it is out. ZooKeeper takes its offsets, and the group's "
            "position goes back; the coordinator sees that its generation is over, and refuses them."
        )
    return said


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _data(found: Comparison) -> Row:
    return {
        "seed": found.seed,
        "script": asdict(found.script.numbers),
        "zookeeper": _way(found.zookeeper),
        "coordinator": _way(found.coordinator),
    }


def _way(figures: Figures) -> Row:
    data: Row = asdict(figures)
    data["settled"] = [
        {
            "at_ms": round(each.event.at_ms),
            "event": each.event.kind.value,
            "member": each.event.member,
            "after_ms": None if each.after_ms is None else round(each.after_ms),
        }
        for each in figures.settled
    ]
    return data
