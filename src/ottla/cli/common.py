"""What the commands share: connection options, `--json`, tables, and errors that say what to do next."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.base.config import ConfigSet, ConfigType
from ottla.base.digits import INT32_MAX, natural
from ottla.base.errors import ConfigError, OttlaError

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: How long a command waits for an answer. Kafka's clients wait sixty seconds; a person at a terminal should not.
PATIENCE_MS = 10_000

#: Who has named the broker. That of `ottla --config FILE` comes before what the environment says, and before the
#: default. Set anew by each command line.
_bootstrap_source = "COMMANDLINE"
_NOBODY: Final = ("DEFAULT", "DEFAULT_MAP")


def _note_source(context: typer.Context, value: str) -> str:
    global _bootstrap_source
    source = context.get_parameter_source("bootstrap")
    _bootstrap_source = "COMMANDLINE" if source is None else source.name
    return value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker of the cluster to talk to.",
        callback=_note_source,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_SETTING: Final = (
    "A client setting with Kafka's name; may be repeated. The list of processes shows it: passwords belong in a file, "
    "for `ottla --config FILE`."
)
Config = Annotated[
    list[str] | None,
    typer.Option("-o", "--config", metavar="KEY=VALUE", help=_SETTING),
]


class CommandError(OttlaError):
    """A command cannot do what the user asked. The message says why and what to do."""


def pairs(options: Sequence[str] | None) -> dict[str, str]:
    """`KEY=VALUE` options as a mapping. Raises ConfigError for one without `=`."""
    found: dict[str, str] = {}
    for option in options or ():
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            shown = " ".join(option.split()[:1])  # what is behind a blank may be a password
            raise ConfigError(f"{shown!r} is not KEY=VALUE; write for example linger.ms=5")
        found[key.strip()] = value.strip()
    return found


#: What `ottla --config FILE` has read, and where. Set anew by each command line.
_file: dict[str, object] = {}
_file_path: Path | None = None


def use_config_file(path: Path | None) -> None:
    """Read `path`, a client's properties file, for all commands of this command line; None: there is none.

    Raises ConfigError for a key that no client has. A key of another kind of client counts for that kind alone, and
    Java's classes (serializers) count for none: so a Java client's file can be used as it is.
    """
    global _bootstrap_source, _file_path
    _file.clear()
    _bootstrap_source = "COMMANDLINE"
    _file_path = path
    if path is None:
        return
    from ottla.base.properties import read_properties
    from ottla.client.config.consumer import CONSUMER_CONFIG
    from ottla.client.config.producer import PRODUCER_CONFIG

    for name, value in read_properties(path).items():
        key = CONSUMER_CONFIG.keys.get(name)
        if key is None and name not in PRODUCER_CONFIG.keys:
            raise ConfigError(f"{path}: {CONSUMER_CONFIG.unknown(name)}")
        if (key or PRODUCER_CONFIG.keys[name]).type is not ConfigType.OBJECT:
            _file[name] = value


def bootstrap_is_named() -> bool:
    """Whether the command line, the environment or the file of `--config` says which broker."""
    return _bootstrap_source not in _NOBODY or "bootstrap.servers" in _file


def bootstrap_of_the_file() -> str | None:
    """The brokers that the file of `--config` names: for commands that else start a broker of their own."""
    named = _file.get("bootstrap.servers")
    return None if named is None else str(named)


def file_for_every_client() -> tuple[Path, dict[str, str]] | None:
    """The file of `--config`, and what it says to every kind of client but where the brokers are; None without one."""
    if _file_path is None:
        return None
    from ottla.client.config import COMMON_KEYS

    shared = {key.name for key in COMMON_KEYS} - {"bootstrap.servers"}
    return _file_path, {name: str(value) for name, value in _file.items() if name in shared}


def _from_file(known: ConfigSet) -> dict[str, object]:
    """The file's settings for this kind of client. The file's brokers count unless the command line names some."""
    settings = only(_file, known)
    if _bootstrap_source not in (*_NOBODY, "ENVIRONMENT"):
        settings.pop("bootstrap.servers", None)
    return settings


def client_config(
    bootstrap: str, options: Sequence[str] | None = None, known: ConfigSet | None = None, **more: object
) -> dict[str, object]:
    """A client's configuration: the address, `more` (underscores for dots), the file's settings that are `known`, then
    the user's own."""
    own: dict[str, object] = {name.replace("_", "."): value for name, value in more.items()}
    file = {} if known is None else _from_file(known)
    return {"bootstrap.servers": bootstrap, **own, **file, **pairs(options)}


def admin_config(bootstrap: str, options: Sequence[str] | None = None) -> dict[str, object]:
    """An admin client's configuration, with time-outs for a person who waits."""
    from ottla.client.config.admin import ADMIN_CONFIG

    waits = {"default_api_timeout_ms": PATIENCE_MS, "request_timeout_ms": PATIENCE_MS}
    return client_config(bootstrap, options, ADMIN_CONFIG, **waits)


def producer_config(bootstrap: str, options: Sequence[str] | None = None, **more: object) -> dict[str, object]:
    """A producer's configuration, with time-outs for a person who waits.

    The time-outs of a delivery depend on each other. If the user sets one of them, all are left as they are.
    """
    from ottla.client.config.producer import PRODUCER_CONFIG

    waits: dict[str, object] = {"max_block_ms": PATIENCE_MS}
    if not (pairs(options).keys() | _file.keys()) & {"delivery.timeout.ms", "request.timeout.ms", "linger.ms"}:
        waits |= {"request_timeout_ms": PATIENCE_MS, "delivery_timeout_ms": 3 * PATIENCE_MS}
    return client_config(bootstrap, options, PRODUCER_CONFIG, **waits, **more)


def consumer_config(bootstrap: str, options: Sequence[str] | None = None, **more: object) -> dict[str, object]:
    """A consumer's configuration, with time-outs for a person who waits for a single call."""
    from ottla.client.config.consumer import CONSUMER_CONFIG

    return client_config(bootstrap, options, CONSUMER_CONFIG, default_api_timeout_ms=PATIENCE_MS, **more)


def only(settings: Mapping[str, object], known: ConfigSet) -> dict[str, object]:
    """Those settings that this kind of client knows."""
    return {name: value for name, value in settings.items() if name in known.keys}


def print_json(data: object) -> None:
    """`data` on standard output, one JSON document."""
    print(json.dumps(data, indent=2, default=_plain, ensure_ascii=not _stdout_is_unicode()))


def print_json_line(data: object) -> None:
    """`data` as one line of JSON on standard output."""
    print(json.dumps(data, default=_plain, ensure_ascii=not _stdout_is_unicode()))


def _stdout_is_unicode() -> bool:
    """Whether every character can be printed; else JSON has to escape them."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def print_rows(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, as_json: bool, none: str) -> None:
    """Print rows as a table of `columns`, or as a JSON array. Without rows a person gets the sentence `none`."""
    listed = list(rows)
    if as_json:
        print_json(listed)
        return
    if not listed:
        print(none)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float) for row in listed)
        table.add_column(column.replace("_", " "), justify="right" if numbers else "left", overflow="fold")
    for row in listed:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    # A pipe or a file has no width, so nothing is cut or wrapped there.
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False, soft_wrap=width is not None).print(table)


def _cell(value: object) -> str:
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, tuple | list | set | frozenset):
        text = ", ".join(str(each) for each in value)
    elif isinstance(value, dict):
        text = ", ".join(f"{key}={each}" for key, each in value.items())
    else:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return escape(printable(text))


def printable(text: str) -> str:
    """`text` without what could steer a terminal: ids, reasons and records are written by other clients."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def topic_partition(text: str) -> tuple[str, int]:
    """`TOPIC:PARTITION` → its parts. Raises CommandError."""
    topic, separator, partition = text.rpartition(":")
    number = natural(partition, INT32_MAX)
    if not separator or not topic or number is None:
        raise CommandError(f"{text!r} is not TOPIC:PARTITION; write for example orders:0")
    return topic, number


def existing_partitions(admin: Admin, names: Sequence[str]) -> list[TopicPartition]:
    """Every partition of the topics, or the one that TOPIC:PARTITION names. CommandError when one does not exist."""
    from ottla import TopicPartition

    single = {TopicPartition(*topic_partition(name)) for name in names if ":" in name}
    whole = {name for name in names if ":" not in name}
    described = admin.describe_topics(whole | {tp.topic for tp in single})
    there = {TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions}
    for tp in sorted(single - there):
        raise CommandError(f"topic {tp.topic} has no partition {tp.partition}")
    return sorted(tp for tp in there if tp.topic in whole or tp in single)


def utc(timestamp_ms: int) -> str | None:
    """A timestamp (milliseconds since the epoch) as a person reads it; None for -1, no timestamp."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def say(message: str) -> None:
    """Print a sentence for a person. It goes to standard error, so that standard output holds only data."""
    print(message, file=sys.stderr, flush=True)


def agreed_to(*, yes: bool, dry_run: bool) -> bool:
    """Whether to do what was said; says so if not. A person is asked; without an answer it is not done."""
    if yes:
        return True
    if not dry_run:
        print("Type yes to go on: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if answer.strip().lower() in ("y", "yes"):
            return True
        if not answer:
            raise CommandError("nobody answered; nothing was written. A script says --yes")
    say("Nothing was written.")
    return False
