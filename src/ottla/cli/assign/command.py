"""`ottla assign`: rehearse a rebalance on paper, or of a live group, and explain what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.assign.checking import InvalidAssignmentError
from ottla.assign.rehearsal import by_owner
from ottla.base.errors import OttlaError
from ottla.cli.assign import paper
from ottla.cli.assign.paper import PaperGroup, PaperMember
from ottla.cli.assign.previous import previous as previous_group
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    print_json,
    print_rows,
)

CLASSIC, CONSUMER = "classic", "consumer"

if TYPE_CHECKING:
    from ottla import TopicPartition
    from ottla.assign.explain import Explanation
    from ottla.assign.rehearsal import Rehearsal

Texts = list[str] | None


Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-s",
        help="range, roundrobin, sticky, cooperative-sticky, the name of a Java class, or your own assignor as "
        "package.module:Class. By default cooperative-sticky, or what the live group uses.",
    ),
]
Topics = Annotated[
    Texts,
    typer.Option(
        "--topics",
        "-t",
        help="Topics and their partitions: t0:3,t1:3. With the racks of each partition's replicas: t0:3@a/b/a+b.",
    ),
]
Members = Annotated[
    Texts, typer.Option("--member", "-m", help="A member and its topics: C0=t0,t1, or C0 for all. May be repeated.")
]
Racks = Annotated[
    Texts, typer.Option("--rack", help="A member's rack: C0=a. Topics need racks, too: see --topics. May be repeated.")
]
Previous = Annotated[
    Path | None, typer.Option("--previous", help="What members had before: a file that --json has written.")
]
Kill = Annotated[Texts, typer.Option("--kill", help="This member dies. May be repeated.")]
Add = Annotated[
    Texts, typer.Option("--add", help="This member comes: C3=t0,t1, or C3 for all topics. May be repeated.")
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Begin with this live group. It is only read, never changed.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Say for each partition why it is where it is.")]


Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        help="classic, or consumer (KIP-848): then --strategy is uniform, range or your own, as on the broker. "
        "By default classic, or that of the live group.",
    ),
]


def assign(
    strategy: Strategy = None,
    protocol: Protocol = None,
    topics: Topics = None,
    member: Members = None,
    rack: Racks = None,
    previous: Previous = None,
    kill: Kill = None,
    add: Add = None,
    group: Group = None,
    explain: Explain = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show who gets which partition, what would move if a member died or came, and why. Nothing is changed.

    On paper: `ottla assign --topics t0:3,t1:3 --member C0 --member C1 --strategy range --explain`

    Later: `ottla assign --topics t0:3,t1:3 --previous before.json --kill C1 --add C3=t0`

    A live group: `ottla assign --group billing --kill consumer-2 --explain`

    Example: `ottla assign --topics t0:2,t1:2 --member C0 --member C1 --kill C1 --explain`
    """
    if protocol not in (None, CLASSIC, CONSUMER):
        raise CommandError(f"--protocol: {protocol!r} is neither classic nor consumer")
    if group is not None:
        if topics or member or previous:
            raise CommandError(
                "--group reads topics and members from the cluster: leave out --topics, --member "
                "and --previous, or leave out --group"
            )
        from ottla.cli.assign.live import live_group

        began = live_group(group, strategy, protocol, bootstrap, config, paper.topics_wanted(add or []))
        kill = [_one_of(began, name) for name in kill or ()]
    else:
        began = _on_paper(strategy, protocol, topics or [], member or [], previous)
    comes = _coming(began, add or [], rack or [], is_live=group is not None)
    try:
        explained, rehearsed = _rehearse(began, kill or [], comes)
    except InvalidAssignmentError as error:
        raise CommandError(f"the assignor {began.strategy} is wrong: {error}") from error
    except OttlaError:
        raise
    except (Exception, SystemExit) as error:  # of an assignor that the user has written
        raise CommandError(f"the assignor {began.strategy} failed: {error!r}") from error
    if as_json:
        print_json(_as_json(explained, rehearsed))
    else:
        _print(explained, rehearsed, began, with_reasons=explain)


def _on_paper(
    strategy: str | None,
    protocol: str | None,
    topics: Sequence[str],
    member: Sequence[str],
    before: Path | None,
) -> PaperGroup:
    cluster = paper.topics_of(topics)
    if not cluster.topics:
        raise CommandError("there is nothing to assign: give topics (--topics t0:3,t1:3), or a live group (--group G)")
    old = previous_group(before, cluster, one_owner=protocol == CONSUMER) if before is not None else None
    members = dict(old.members) if old is not None else {}
    for name, wanted in paper.members_of("--member", member, cluster.topics).items():
        members[name] = members.get(name, PaperMember())._replace(topics=wanted)
    if not members:
        raise CommandError("the group has no members: give some with --member C0=t0,t1, or with --previous FILE")
    generation_id = old.generation_id if old is not None else 0
    strategy = strategy or ("uniform" if protocol == CONSUMER else "cooperative-sticky")
    cluster = old.cluster if old is not None else cluster
    return PaperGroup(strategy, cluster, members, generation_id, protocol == CONSUMER)


def _coming(began: PaperGroup, add: Sequence[str], rack: Sequence[str], *, is_live: bool) -> dict[str, PaperMember]:
    """The members that come. Those of `began` get their racks, too."""
    wanted = paper.members_of("--add", add, began.cluster.topics, is_live=is_live)
    comes = {name: PaperMember(topics) for name, topics in wanted.items()}
    racks = paper.racks_of(rack, [*(() if is_live else began.members), *comes], is_live=is_live)
    for name, where in racks.items():
        for members in (began.members, comes):
            if name in members:
                members[name] = members[name]._replace(rack_id=where)
    return comes


def _one_of(began: PaperGroup, name: str) -> str:
    """The member that `name` names: by its id, its group.instance.id, its client.id, or the beginning of its id.

    An id of a consumer group (KIP-848) has nothing in it that a person knows.
    """
    ways: tuple[Callable[[str, PaperMember], bool], ...] = (
        lambda member_id, member: member_id == name,
        lambda member_id, member: member.group_instance_id == name,
        lambda member_id, member: member.client_id == name,
        lambda member_id, member: member_id.startswith(name),
    )
    for way in ways:
        found = [member_id for member_id, member in began.members.items() if way(member_id, member)]
        if len(found) > 1:
            raise CommandError(f"--kill: {name} is any of {len(found)} members: {', '.join(found)}; give a member's id")
        if found:
            return found[0]
    return name


def _rehearse(
    began: PaperGroup, kill: Iterable[str], comes: Mapping[str, PaperMember]
) -> tuple[Explanation, Rehearsal]:
    from ottla.assign.explain import explain
    from ottla.assign.rehearsal import Rehearsal

    make = paper.assignor_of(began)
    rehearsed = Rehearsal(make, began.cluster, began.generation_id)
    everything = tuple(began.cluster.topics)

    def wanted(member: PaperMember) -> tuple[str, ...]:
        return everything if member.topics is None else member.topics

    for name, member in began.members.items():
        rehearsed.join(
            name,
            wanted(member),
            holds=member.holds,
            rack_id=member.rack_id,
            group_instance_id=member.group_instance_id,
        )
    if all(member.holds is None for member in began.members.values()) and (kill or comes):
        rehearsed.settle()  # a group that nobody has divided yet: what happens then needs something to begin with
    before = rehearsed.holds
    for name in kill:
        if name not in rehearsed.holds:
            raise CommandError(f"--kill: there is no member {name} ({', '.join(rehearsed.holds) or 'nobody is left'})")
        rehearsed.leave(name)
    for name, member in comes.items():
        if name in rehearsed.holds:
            raise CommandError(f"--add: {name} is a member already")
        rehearsed.join(name, wanted(member), rack_id=member.rack_id)
    return explain(make().name, rehearsed, rehearsed.settle(), before), rehearsed


def _as_json(found: Explanation, rehearsed: Rehearsal) -> dict[str, object]:
    def texts(given: Iterable[TopicPartition]) -> list[str]:
        return [str(tp) for tp in given]

    subscriptions = rehearsed.subscriptions
    return {
        "strategy": found.strategy,
        "generation": rehearsed.generation_id,
        "assignment": {member: texts(given) for member, given in rehearsed.holds.items()},
        "subscriptions": {member: list(said.topics) for member, said in subscriptions.items()},
        "racks": {member: said.rack_id for member, said in subscriptions.items() if said.rack_id},
        "group_instance_ids": {
            member: said.group_instance_id for member, said in subscriptions.items() if said.group_instance_id
        },
        "topic_racks": {
            topic: [list(each.replica_racks) for each in infos]
            for topic, infos in rehearsed.cluster.topics.items()
            if any(each.replica_racks for each in infos)
        },
        "generations": [
            {
                "generation": step.generation_id,
                "assignment": {member: texts(given) for member, given in step.assignment.items()},
                "revoked": {member: texts(given) for member, given in step.revoked.items() if given},
            }
            for step in found.generations
        ],
        "partitions": [
            {
                "partition": str(each.partition),
                "members": list(each.members),
                "before": list(each.before),
                "move": each.move.value,
                "because": each.because,
                "moved_because": each.moved_because or None,
                "handed_over_in": each.handed_over_in,
            }
            for each in found.placements
        ],
        "unread": texts(found.unread),
        "even": {
            "sizes": found.sizes,
            "is_even": found.is_even,
            "one_move_helps": found.one_move_helps,
            "text": found.evenness(),
        },
        "sticky": {
            "had": found.had,
            "kept": found.kept,
            "could_stay": found.could_stay,
            "moved": found.moved,
            "must_move": found.must_move,
            "text": found.stickiness(),
        },
    }


def _print(found: Explanation, rehearsed: Rehearsal, began: PaperGroup, *, with_reasons: bool) -> None:
    rows: list[dict[str, object]] = []
    for member, given in rehearsed.holds.items():
        had = found.sizes_before.get(member)
        rows.append({"member": member, "count": len(given), "before": had, "partitions": [str(tp) for tp in given]})
    print(f"{found.strategy}, generation {rehearsed.generation_id}:")
    print_rows(rows, ("member", "count", "before", "partitions"), as_json=False, none="Nobody is left in the group.")
    handed_over = {each.partition for each in found.placements if each.handed_over_in is not None}
    for step in found.generations[:-1]:
        for tp, owners in by_owner(step.revoked).items():
            if tp in handed_over:
                whose = "its owner" if len(owners) == 1 else "its owners"
                print(f"Generation {step.generation_id} takes {tp} from {whose}, and the next one hands it over.")
    print(found.evenness())
    print(found.stickiness())
    if found.unread:
        print(found.left_out())
    if with_reasons:
        _print_reasons(found)


def _print_reasons(found: Explanation) -> None:
    rows: list[dict[str, object]] = [
        {
            "partition": str(each.partition),
            "member": list(each.members) or None,
            "was": each.move.value,
            "why": "; ".join(filter(None, (each.moved_because, each.because))),
        }
        for each in found.placements
    ]
    print_rows(rows, ("partition", "member", "was", "why"), as_json=False, none="No member wants a partition.")
