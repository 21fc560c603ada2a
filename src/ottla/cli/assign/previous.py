"""What `ottla assign --previous` reads: a group as `--json` has printed it, or as somebody has written it by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.assign import Cluster, PartitionInfo
from ottla.assign.rehearsal import by_owner
from ottla.base.digits import INT32_MAX, natural
from ottla.base.types import TopicPartition
from ottla.cli.assign.paper import PaperGroup, PaperMember
from ottla.cli.common import CommandError

#: What a rehearsal begins with is below: it goes on for some generations, which are numbers of 32 bits.
_LAST_GENERATION = INT32_MAX - 1_000


def previous(path: Path, cluster: Cluster, *, one_owner: bool) -> PaperGroup:
    """What `--json` printed before, or a JSON object {"C0": ["t0-0", …], …}; with the topics of `cluster`.

    Topics that have no racks there have those of the file. `one_owner`: no two members may have a partition, which
    happens in classic groups only. Raises CommandError.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))  # editors put a mark in front
    except OSError as error:
        raise CommandError(f"--previous: {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--previous: {path} is no JSON: {error}") from error
    whole = data if isinstance(data, dict) and isinstance(data.get("assignment"), dict) else {"assignment": data}
    if not _is_right(whole):
        raise CommandError(
            f'--previous: {path} has to hold what --json prints, or an object such as {{"C0": ["t0-0", "t1-2"]}}'
        )
    wants, racks, instances = (whole.get(key, {}) for key in ("subscriptions", "racks", "group_instance_ids"))
    members = {}
    for member, given in whole["assignment"].items():
        wanted = wants.get(member)
        kept = None if wanted is None else tuple(str(topic) for topic in wanted if str(topic) in cluster.topics)
        holds = tuple(_partition(path, text) for text in given)
        for place, tp in enumerate(holds if len(set(holds)) < len(holds) else ()):
            if tp in holds[:place]:
                raise CommandError(f"--previous: {path} has {tp} twice for {member}")
        members[member] = PaperMember(kept, holds, racks.get(member), instances.get(member))
    claims = by_owner({name: member.holds or () for name, member in members.items()})
    for tp, owners in claims.items() if one_owner else ():
        if len(owners) > 1:
            raise CommandError(
                f"--previous: {path} gives {tp} to {' and '.join(owners)}, and in a consumer group a partition has one "
                "owner: leave it to one of them, or rehearse a classic group"
            )
    topic_racks = whole.get("topic_racks", {})
    topics = {topic: _with_racks(infos, topic_racks.get(topic, ())) for topic, infos in cluster.topics.items()}
    return PaperGroup("", Cluster(topics), members, whole.get("generation", 1))


def _with_racks(infos: tuple[PartitionInfo, ...], racks: Sequence[Sequence[str]]) -> tuple[PartitionInfo, ...]:
    if any(each.replica_racks for each in infos):
        return infos
    return tuple(
        each._replace(replica_racks=tuple(racks[number])) if number < len(racks) else each
        for number, each in enumerate(infos)
    )


def _is_right(whole: Mapping[str, Any]) -> bool:
    generation_id = whole.get("generation", 1)
    return (
        all(_maps_to(list, whole, key) for key in ("assignment", "subscriptions", "topic_racks"))
        and all(_maps_to(str, whole, key) for key in ("racks", "group_instance_ids"))
        and all(_is_texts(each) for replicas in whole.get("topic_racks", {}).values() for each in replicas)
        and type(generation_id) is int
        and 0 <= generation_id < _LAST_GENERATION
    )


def _maps_to(kind: type, whole: Mapping[str, object], key: str) -> bool:
    found = whole.get(key, {})
    return isinstance(found, dict) and all(isinstance(each, kind) for each in found.values())


def _is_texts(each: object) -> bool:
    return isinstance(each, list) and all(isinstance(text, str) for text in each)


def _partition(path: Path, text: object) -> TopicPartition:
    topic, _, number = str(text).rpartition("-")
    partition = natural(number, INT32_MAX)
    if not topic or partition is None:
        raise CommandError(f"--previous: {path} has {text!r}, which is not TOPIC-PARTITION, for example t0-2")
    return TopicPartition(topic, partition)
