"""Writes src/ottla/wire/messages/ from the facts in kio's schema: names, types, versions, tags, defaults.

usage: python tools/gen_messages.py [--check]

kio holds one class per version; this joins them into one class per message with the union of the fields. With
--check nothing is written: the exit code says whether the files are what would be written. Needs kio (a development
dependency; Ottla does not import it).
"""

import dataclasses
import datetime
import importlib
import pkgutil
import subprocess
import sys
import uuid
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

TARGET = Path(__file__).parent.parent / "src" / "ottla" / "wire" / "messages"

APIS = (  # noqa: SIM905
    "produce fetch list_offsets metadata offset_commit offset_fetch find_coordinator join_group heartbeat "
    "leave_group sync_group describe_groups list_groups sasl_handshake api_versions create_topics delete_topics "
    "delete_records init_producer_id offset_for_leader_epoch add_partitions_to_txn add_offsets_to_txn end_txn "
    "write_txn_markers txn_offset_commit describe_configs alter_configs incremental_alter_configs "
    "describe_log_dirs create_partitions delete_groups sasl_authenticate offset_delete describe_cluster "
    "describe_producers describe_transactions list_transactions describe_topic_partitions consumer_group_heartbeat "
    "consumer_group_describe describe_acls create_acls delete_acls describe_user_scram_credentials "
    "alter_user_scram_credentials describe_client_quotas alter_client_quotas elect_leaders "
    "alter_partition_reassignments list_partition_reassignments list_config_resources describe_quorum "
    "alter_replica_log_dirs update_features "
    "consumer_protocol_subscription consumer_protocol_assignment "
).split()

#: Request fields that change what is asked: a version that lacks one must not drop it in silence.
STRICT = {
    "AddPartitionsToTxnRequest": {"transactions"},
    "ConsumerGroupHeartbeatRequest": {"subscribed_topic_regex"},
    "DeleteTopicsRequest": {"topics"},
    "DescribeClusterRequest": {"endpoint_type"},
    "FindCoordinatorRequest": {"key_type"},
    "InitProducerIdRequest": {"producer_id", "producer_epoch", "enable2_pc", "keep_prepared_txn"},
    "ListGroupsRequest": {"states_filter", "types_filter"},
    "ListOffsetsRequest": {"isolation_level"},
    "ListTransactionsRequest": {"duration_filter", "transactional_id_pattern"},
    "OffsetFetchRequest": {"require_stable"},
    "TxnOffsetCommitRequest": {"group_instance_id"},
    "JoinGroupRequest": {"group_instance_id"},
    "SyncGroupRequest": {"group_instance_id"},
    "HeartbeatRequest": {"group_instance_id"},
    "OffsetCommitRequest": {"group_instance_id"},
}

#: Structs that have these fields show nothing: they are passwords, or prove them.
SECRET = {"auth_bytes", "salted_password"}

#: Structs of an answer that have the name of another one in the request.
SPLIT = {
    ("alter_client_quotas", "response"): {"EntryData": "EntryResult"},
    ("describe_quorum", "response"): {"TopicData": "QuorumTopic", "PartitionData": "QuorumPartition"},
}

RENAMED = {"enable2_pc": "enable_2pc"}
TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
KINDS = {**TIMES, "error_code": "int16"}
PYTHON = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes", "records": "Buffer", "float64": "float"}
IMPLICIT = {"bool": "False", "string": '""', "bytes": 'b""', "uuid": "NULL_UUID", "records": "None", "float64": "0.0"}


@dataclasses.dataclass
class FieldFacts:
    """What all versions together say of one field."""

    name: str
    type: str
    array: bool
    struct: bool
    versions: set[int] = dataclasses.field(default_factory=set)
    null_versions: set[int] = dataclasses.field(default_factory=set)
    tag: int = -1
    default: str | None = None
    nullable_default: bool = False


@dataclasses.dataclass
class StructFacts:
    """What all versions together say of one struct."""

    name: str
    fields: list[FieldFacts] = dataclasses.field(default_factory=list)
    flexible: set[int] = dataclasses.field(default_factory=set)
    versions: set[int] = dataclasses.field(default_factory=set)


def default_of(kind: str, array: bool, value: object) -> str | None:
    """The default as Python source, or None when the schema names none."""
    if value is dataclasses.MISSING:
        return None
    if isinstance(value, datetime.timedelta):
        return str(value // datetime.timedelta(milliseconds=1))
    if value is None and kind in ("int64", "int32") and not array:
        return "-1"
    if isinstance(value, bool | NoneType):
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, uuid.UUID):
        return "NULL_UUID" if value.int == 0 else repr(value.bytes)
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, tuple) and not value:
        return "()"
    if dataclasses.is_dataclass(value):
        return type(value).__name__ + "()"
    return repr(value)


def unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """(element type, is an array, may be null)."""
    args = get_args(annotation)
    if NoneType in args and get_origin(annotation) is not tuple:
        inner, array, _ = unwrap(next(a for a in args if a is not NoneType))
        return inner, array, True
    if get_origin(annotation) is tuple:
        inner, _, _ = unwrap(args[0])
        return inner, True, False
    return annotation, False, False


def field_facts(raw: dataclasses.Field[Any]) -> tuple[FieldFacts, bool]:
    """The facts of one version's field, and whether it may be null there."""
    inner, array, nullable = unwrap(raw.type)
    struct = dataclasses.is_dataclass(inner)
    kafka = str(raw.metadata.get("kafka_type", ""))
    kind = inner.__name__ if struct else KINDS.get(kafka, kafka)
    if kind == "uuid" or kafka == "datetime_i64":
        nullable = False  # kio shows the zero uuid and the timestamp -1 as None; on the wire neither can be null
    name = RENAMED.get(raw.name, raw.name) + ("_ms" if kafka in TIMES else "")
    facts = FieldFacts(name, kind, array, struct, tag=int(raw.metadata.get("tag", -1)))
    facts.default = default_of(kind, array, raw.default)
    if kind == "uuid" and facts.default == "None":
        facts.default = "NULL_UUID"
    return facts, nullable


def merge(into: StructFacts, cls: type[Any], version: int) -> None:
    """Add what `version` says of a struct; a new field goes behind the one it follows there."""
    if version in into.versions and {f.name for f in into.fields if version in f.versions} != {
        field_facts(raw)[0].name for raw in dataclasses.fields(cls)
    }:
        raise SystemExit(f"request and answer each have a {into.name} of their own: see SPLIT")
    into.versions.add(version)
    if cls.__flexible__:
        into.flexible.add(version)
    place = 0
    for raw in dataclasses.fields(cls):
        facts, nullable = field_facts(raw)
        known = next((f for f in into.fields if f.name == facts.name), None)
        if known is None:
            known = facts
            into.fields.insert(place, known)
        if (known.type, known.array, known.tag) != (facts.type, facts.array, facts.tag):
            raise SystemExit(f"{into.name}.{facts.name} changes its type or tag in version {version}")
        place = into.fields.index(known) + 1
        known.versions.add(version)
        if nullable:
            known.null_versions.add(version)
        known.default = facts.default


def read(api: str) -> dict[str, StructFacts]:
    """All structs of one API in all versions, nested ones before those that hold them."""
    package = importlib.import_module(f"kio.schema.{api}")
    found: dict[str, StructFacts] = {}
    for version in sorted(int(m.name[1:]) for m in pkgutil.iter_modules(package.__path__)):
        path = importlib.import_module(f"kio.schema.{api}.v{version}").__path__
        for module in sorted((m.name for m in pkgutil.iter_modules(path)), reverse=False):
            loaded = importlib.import_module(f"kio.schema.{api}.v{version}.{module}")
            names = SPLIT.get((api, module), {})
            own = [c for c in vars(loaded).values() if dataclasses.is_dataclass(c) and c.__module__ == loaded.__name__]
            for cls in own:
                cls.__name__ = names.get(cls.__name__, cls.__name__)  # type: ignore[union-attr]
            for cls in own:
                name = cls.__name__  # type: ignore[union-attr]
                merge(found.setdefault(name, StructFacts(name)), cls, version)  # type: ignore[arg-type]
    return ordered(found)


def ordered(found: dict[str, StructFacts]) -> dict[str, StructFacts]:
    """Every struct behind those it uses."""
    done: dict[str, StructFacts] = {}

    def visit(name: str) -> None:
        for f in found[name].fields:
            if f.struct and f.type not in done:
                visit(f.type)
        done.setdefault(name, found[name])

    for name in found:
        visit(name)
    return done


def value_of(f: FieldFacts) -> tuple[str, str]:
    """(annotation, default) of a field in the NamedTuple."""
    element = f.type if f.struct else PYTHON.get(f.type, "int")
    annotation = f"tuple[{element}, ...]" if f.array else element
    implicit = "()" if f.array else f"{element}()" if f.struct else IMPLICIT.get(f.type, "0")
    default = f.default or implicit
    if f.struct and not f.array and default == "None" and not f.null_versions:
        default = implicit
    if f.null_versions or default == "None":
        annotation += " | None"
    return annotation, default


def span(versions: set[int], all_versions: set[int]) -> tuple[int, int]:
    """First and last version; the last is open when the newest version has the field."""
    if versions != {v for v in all_versions if min(versions) <= v <= max(versions)}:
        raise SystemExit(f"a field comes and goes: {sorted(versions)}")
    return min(versions), max(versions)


def table_row(struct: StructFacts, f: FieldFacts) -> str:
    first, last = span(f.versions, struct.versions)
    kind = f.type if f.struct else f'"{f.type}"'
    words = [f'"{f.name}"', f"[{kind}]" if f.array else kind]
    words.append(str(first) if first != min(struct.versions) else "0")
    words.append(str(last) if last != max(struct.versions) else "LATEST")
    if f.null_versions:
        low, high = span(f.null_versions, f.versions)
        words.append(f"null_first={low}")
        words.append("null_last=" + (str(high) if high != max(f.versions) else "LATEST"))
    if f.tag >= 0:
        words.append(f"tag={f.tag}")
    if f.name in STRICT.get(struct.name, ()):
        words.append("ignorable=False")
    return f"        Field({', '.join(words)}),"


def write(api: str, kio_version: str) -> str:
    """The source of one module."""
    structs = read(api)
    text = [f'"""{api} messages. Written by tools/gen_messages.py from kio {kio_version}; do not edit."""', ""]
    text += ["from typing import NamedTuple", "", "IMPORTS", ""]
    for struct in structs.values():
        text += ["", f"class {struct.name}(NamedTuple):"]
        rows = []
        for f in struct.fields:
            annotation, default = value_of(f)
            note = "  # type: ignore[assignment]" if f.name in ("index", "count") else ""
            rows.append(f"    {f.name}: {annotation} = {default}{note}")
        text += rows or ["    pass"]
        if SECRET & {f.name for f in struct.fields}:
            text += ["", "    def __repr__(self) -> str:", f'        return "{struct.name}([hidden])"']
        text.append("")
    text.append("")
    for struct in structs.values():
        flexible = f"flexible_from={min(struct.flexible)}" if struct.flexible else "flexible_from=LATEST"
        text += ["declare(", f"    {struct.name},", "    (", *(table_row(struct, f) for f in struct.fields), "    ),"]
        text += [f"    {flexible},", ")"]
    source = "\n".join(text) + "\n"
    names = [n for n in ("LATEST", "Field", "declare") if n in source]
    imports = [f"from ottla.wire.schema import {', '.join(names)}"]
    codec = [n for n in ("NULL_UUID", "Buffer") if n in source]
    if codec:
        imports.insert(0, f"from ottla.wire.codec import {', '.join(codec)}")
    return source.replace("IMPORTS", "\n".join(imports))


def main() -> int:
    import kio._version

    kio_version = kio._version.version
    stale = []
    for api in APIS:
        path = TARGET / f"{api}.py"
        raw = write(api, kio_version)
        ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
        source = subprocess.run(ruff, input=raw, text=True, check=True, capture_output=True).stdout
        if not path.exists() or path.read_text() != source:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(source)
    print(f"{len(APIS)} modules, {len(stale)} {'differ' if '--check' in sys.argv else 'written'}: {' '.join(stale)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
