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
    admin_config,
    pairs,
    print_rows,
    say,
)

#: Kafka's number of the source "set on this topic" in DescribeConfigs.
_SET_ON_TOPIC = 1

app = typer.Typer(
    no_args_is_help=True,
    help="List, create, describe, delete and alter topics.\n\nExample: `ottla topics create orders --partitions 4`",
)

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

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.list_topics(internal=internal)
    rows: list[dict[str, object]] = [{"topic": topic.name, "partitions": topic.partitions} for topic in found]
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
    from ottla.client.admin.types import NewTopic

    wanted = [NewTopic(name, partitions, replication, pairs(settings)) for name in names]
    with Admin(admin_config(bootstrap, config)) as admin:
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
    from ottla.client.admin.types import ConfigResource, OffsetSpec, ResourceType

    with Admin(admin_config(bootstrap, config)) as admin:
        topics = [topic for _name, topic in sorted(admin.describe_topics(names).items())]
        partitions = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
        first = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        last = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        settings = {
            resource.name: {key: entry.value for key, entry in entries.items() if entry.source == _SET_ON_TOPIC}
            for resource, entries in admin.describe_configs(resources).items()
        }
    rows: list[dict[str, object]] = [
        {
            "topic": topic.name,
            "partition": each.partition,
            "leader": each.leader,
            "start_offset": first[TopicPartition(topic.name, each.partition)].offset,
            "end_offset": last[TopicPartition(topic.name, each.partition)].offset,
            "settings": settings[topic.name],
        }
        for topic in topics
        for each in topic.partitions
    ]
    columns = ("topic", "partition", "leader", "start_offset", "end_offset", "settings")
    print_rows(rows, columns, as_json=as_json, none="There are no such topics.")


@app.command("delete")
def delete(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None) -> None:
    """Delete topics with all their records, at once and for good.

    Example: `ottla topics delete orders`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
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
    from ottla.client.admin.types import AlterConfig, AlterOperation, ConfigResource, ResourceType

    if partitions is None and not settings and not unset:
        raise CommandError("nothing to alter; give --partitions N, --set KEY=VALUE or --unset KEY")
    with Admin(admin_config(bootstrap, config)) as admin:
        if partitions is not None:
            admin.create_partitions({name: partitions})
        if settings or unset:
            changes = [AlterConfig(key, value) for key, value in pairs(settings).items()]
            changes += [AlterConfig(key, operation=AlterOperation.DELETE) for key in unset or ()]
            admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, name): changes})
    say(f"Altered {name}.")
