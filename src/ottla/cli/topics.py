"""`ottla topics`: list, create, describe, delete and alter topics."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    client_config,
    pairs,
    print_rows,
    say,
)

app = typer.Typer(no_args_is_help=True, help="List, create, describe, delete and alter topics.")

Names = Annotated[list[str], typer.Argument(help="Topic names.")]
TopicConfig = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A topic setting such as retention.ms; may be repeated."),
]


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[bool, typer.Option("--internal", help="Also the broker's own topics.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List topics.

    Example: `ottla topics list --json`
    """
    from ottla import Admin

    with Admin(client_config(bootstrap, config)) as admin:
        found = admin.describe_topics(admin.list_topics(internal=internal))
    rows: list[dict[str, object]] = [
        {"topic": topic.name, "partitions": len(topic.partitions), "id": topic.topic_id} for topic in found
    ]
    print_rows(rows, ("topic", "partitions"), as_json=as_json, none="There are no topics.")


@app.command("create")
def create(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's num.partitions.")] = -1,
    replication: Annotated[int, typer.Option("--replication-factor", help="-1: the broker's default.")] = -1,
    settings: TopicConfig = None,
    config: Config = None,
) -> None:
    """Create topics.

    Example: `ottla topics create orders --partitions 4 --set retention.ms=86400000`
    """
    from ottla import Admin
    from ottla.client.admin import NewTopic

    wanted = [NewTopic(name, partitions, replication, pairs(settings)) for name in names]
    with Admin(client_config(bootstrap, config)) as admin:
        admin.create_topics(wanted)
    say(f"Created {', '.join(names)}.")


@app.command("describe")
def describe(
    names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """Show partitions with their offsets, and the settings that differ from the defaults.

    Example: `ottla topics describe orders`
    """
    from ottla import Admin, TopicPartition

    rows: list[dict[str, object]] = []
    with Admin(client_config(bootstrap, config)) as admin:
        for topic in admin.describe_topics(names):
            partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
            first, last = admin.list_offsets(partitions, "earliest"), admin.list_offsets(partitions, "latest")
            rows += [
                {
                    "topic": topic.name,
                    "partition": tp.partition,
                    "leader": each.leader,
                    "start_offset": first[tp].offset,
                    "end_offset": last[tp].offset,
                }
                for tp, each in zip(partitions, topic.partitions, strict=True)
            ]
        changed = {name: admin.describe_configs("topic", name) for name in names}
    settings = {
        name: {entry.name: entry.value for entry in entries if not entry.is_default}
        for name, entries in changed.items()
    }
    columns = ("topic", "partition", "leader", "start_offset", "end_offset")
    if as_json:
        rows = [{**row, "settings": settings[str(row["topic"])]} for row in rows]
    print_rows(rows, columns, as_json=as_json, none="There are no such topics.")
    for name, values in settings.items():
        if values and not as_json:
            print(f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}")


@app.command("delete")
def delete(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None) -> None:
    """Delete topics with all their records, at once and for good.

    Example: `ottla topics delete orders`
    """
    from ottla import Admin

    with Admin(client_config(bootstrap, config)) as admin:
        admin.delete_topics(names)
    say(f"Deleted {', '.join(names)}.")


@app.command("alter")
def alter(
    name: Annotated[str, typer.Argument(help="Topic name.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="The new, larger number.")] = None,
    settings: TopicConfig = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default.")] = None,
    config: Config = None,
) -> None:
    """Add partitions to a topic, or change its settings.

    Example: `ottla topics alter orders --partitions 8 --set cleanup.policy=compact`
    """
    from ottla import Admin

    if partitions is None and not settings and not unset:
        raise CommandError("nothing to alter; give --partitions N, --set KEY=VALUE or --unset KEY")
    with Admin(client_config(bootstrap, config)) as admin:
        if partitions is not None:
            admin.create_partitions({name: partitions})
        if settings or unset:
            changes: dict[str, str | None] = {**pairs(settings), **dict.fromkeys(unset or ())}
            admin.incremental_alter_configs("topic", name, changes)
    say(f"Altered {name}.")
