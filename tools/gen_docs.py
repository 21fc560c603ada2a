"""Writes the generated pages of docs/: APIs, configuration keys, automata.

usage: python tools/gen_docs.py [--check]      with --check: exit 1 when a page is not what it would be
"""

import sys
from collections.abc import Callable
from pathlib import Path

from ottla.base.config import REQUIRED, ConfigKey, ConfigSet, Standing
from ottla.broker.config_keys import BROKER_CONFIG
from ottla.broker.handlers import table
from ottla.broker.topic_config import TOPIC_CONFIG, TOPIC_KEYS
from ottla.client.config.admin import ADMIN_CONFIG
from ottla.client.config.consumer import CONSUMER_CONFIG
from ottla.client.config.producer import PRODUCER_CONFIG
from ottla.client.core.consumer import answers as consumer_answers
from ottla.client.core.consumer.group.classic import states as classic_membership
from ottla.client.core.consumer.group.consumer import states as consumer_membership
from ottla.client.core.producer import answers, transaction_state
from ottla.coordinator.group.classic.state import TRANSITIONS, GroupState
from ottla.coordinator.group.consumer import states as consumer_group
from ottla.coordinator.txn import states
from ottla.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"
_HEAD = "Written by `make docs` from the code's own tables; do not edit.\n"


def config_page() -> str:
    """docs/config.md: every key with type, default and meaning."""
    sections = (
        ("Broker", "`ottla serve -o key=value`, a properties file, or the environment", BROKER_CONFIG),
        ("Topics", "`ottla topics create --set key=value`", TOPIC_CONFIG),
        ("Producer", "`ottla.Producer({key: value})`", PRODUCER_CONFIG),
        ("Consumer", "`ottla.Consumer({key: value})`", CONSUMER_CONFIG),
        ("Admin", "`ottla.Admin({key: value})`", ADMIN_CONFIG),
        ("Spark source", '`spark.readStream.format("ottla").option(key, value)`', SOURCE_OPTIONS),
        ("Spark sink", '`writeStream.format("ottla").option(key, value)`', SINK_OPTIONS),
    )
    parts = ["# Configuration", "", _HEAD, "An unknown key is an error that names the nearest known one.", ""]
    for title, where, keys in sections:
        parts += [f"## {title}", "", f"Given by {where}.", ""]
        if keys is TOPIC_CONFIG:
            parts += ["A default in code letters is the broker's key of that name.", ""]
        for standing, said in _STANDINGS.items():
            rows = _rows(keys, standing)
            if rows:
                parts += [*([f"### {title}: {said}", ""] if said else []), *rows, ""]
    return "\n".join(parts)


#: Kafka's keys are all known; what becomes of those that are not in force.
_STANDINGS = {
    Standing.IN_FORCE: "",
    Standing.WITHOUT_EFFECT: "accepted, without effect",
    Standing.DEFAULT_ONLY: "refused, unless it is the default",
}


def _rows(keys: ConfigSet, standing: Standing) -> list[str]:
    found = sorted((key for key in keys.keys.values() if key.standing is standing), key=lambda each: each.name)
    if not found:
        return []
    rows = [
        f"| key | type | default | {'what it does' if standing is Standing.IN_FORCE else 'why'} |",
        "|---|---|---|---|",
    ]
    for key in found:
        names = ", ".join([f"`{key.name}`", *(f"or `{other}`" for other in key.synonyms)])
        doc = key.doc.replace("|", chr(92) + "|")
        rows.append(f"| {names} | {key.type.value} | {_default_of(keys, key)} | {doc} |")
    return rows


def _default_of(keys: ConfigSet, key: ConfigKey) -> str:
    if keys is TOPIC_CONFIG and TOPIC_KEYS[key.name].synonyms:
        return f"`{TOPIC_KEYS[key.name].synonyms[0][0]}`"
    return _default(key.default)


def _default(value: object) -> str:
    if value is REQUIRED:
        return "(required)"
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "–"
    return str(getattr(value, "__name__", value)) or '""'


def automata_page() -> str:
    """docs/automata.md: the diagrams of the state machines, and the table of what answers mean."""
    group = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    group += [
        f"    {source.value} --> {target.value}"
        for source, targets in TRANSITIONS.items()
        for target in sorted(targets, key=list(GroupState).index)
        if source is not target
    ]
    parts = [
        "# Automata",
        "",
        _HEAD,
        "Each automaton is one constant in the code. A test visits every state and input.",
        "",
    ]
    for title, file, diagram in (
        ("Classic consumer group", "coordinator/group/classic/state.py", "\n".join(group)),
        ("Consumer group (KIP-848)", "coordinator/group/consumer/states.py", consumer_group.diagram()),
        ("Member of a consumer group", "coordinator/group/consumer/states.py", consumer_group.member_diagram()),
        ("Transaction", "coordinator/txn/states.py", states.diagram()),
        ("Transactional producer", "client/core/producer/transaction_state.py", transaction_state.diagram()),
        (
            "Consumer in a classic group",
            "client/core/consumer/group/classic/states.py",
            classic_membership.diagram(),
        ),
        (
            "Consumer in a group of the consumer protocol (KIP-848)",
            "client/core/consumer/group/consumer/states.py",
            consumer_membership.diagram(),
        ),
    ):
        parts += [f"## {title}", "", f"`TRANSITIONS` in `{file}`.", "", "```mermaid", diagram, "```", ""]
    parts += ["## What an answer about a batch means", "", answers.INTRODUCTION, "", answers.table(), ""]
    consumer = (consumer_answers.INTRODUCTION, "", consumer_answers.table(), "")
    parts += ["## What an answer to a consumer means", "", *consumer]
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "apis.md": table.document,
    "automata.md": automata_page,
    "config.md": config_page,
}


def main() -> int:
    """Write the pages, or compare them."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        print(f"out of date: {', '.join(stale)}; run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
