"""`ottla acls`: list, add and remove ACLs, which say who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    print_rows,
    say,
)

if TYPE_CHECKING:
    from ottla.client.admin.acls import AclBinding, AclOperation, AclResourceType

app = typer.Typer(
    no_args_is_help=True,
    help="List, add and remove ACLs: who may do what, on a broker with an authorizer.\n\n"
    "Example: `ottla acls add User:alice READ --topic orders`",
)

Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic; `*` for all.")]
Group = Annotated[str | None, typer.Option("--group", metavar="ID", help="A group; `*` for all.")]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; `*` for all.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Principal = Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Only ACLs of this principal.")]


@app.command("list")
def list_acls(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    principal: Principal = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List ACLs. With a resource those that concern it: also prefixes of its name, and `*`.

    Example: `ottla acls list --topic orders`
    """
    from ottla import Admin
    from ottla.client.admin.acls import AclBindingFilter, AclPatternType

    found = _resource(topic=topic, group=group, transactional_id=transactional_id, cluster=cluster)
    wanted = AclBindingFilter(principal=principal)
    if found is not None:
        wanted = wanted._replace(resource_type=found[0], resource_name=found[1], pattern_type=AclPatternType.MATCH)
    with Admin(admin_config(bootstrap, config)) as admin:
        acls = admin.describe_acls(wanted)
    print_rows(map(_row, acls), _COLUMNS, as_json=as_json, none="There are no such ACLs.")


@app.command("add")
def add(
    principal: Annotated[str, typer.Argument(help="Who: User:alice, or User:* for everybody.")],
    operations: Annotated[list[str], typer.Argument(help="What: READ, WRITE, CREATE, DESCRIBE, … or ALL.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="All resources whose names begin like this.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Deny it, whatever else is allowed.")] = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="From where; `*` is everywhere.")] = "*",
    config: Config = None,
) -> None:
    """Let a principal do something with a resource, or, with --deny, forbid it.

    Example: `ottla acls add User:alice READ DESCRIBE --topic orders- --prefixed`
    """
    from ottla import Admin
    from ottla.broker.access.authorizer import is_principal
    from ottla.client.admin.acls import AclBinding, AclPatternType, AclPermissionType

    found = _resource(topic=topic, group=group, transactional_id=transactional_id, cluster=cluster)
    if found is None:
        raise CommandError("on what? give --topic NAME, --group ID, --transactional-id ID or --cluster")
    if not is_principal(principal):
        raise CommandError(f"{principal!r} is no principal; write User:{principal or 'alice'}, or User:* for everybody")
    if prefixed and (cluster or found[1] == "*"):
        raise CommandError("--prefixed needs the beginning of names: --topic orders- --prefixed")
    acls = [
        AclBinding(
            *found,
            principal,
            _operation(each, found[0]),
            AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
            AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL,
            _host(host),
        )
        for each in operations
    ]
    with Admin(admin_config(bootstrap, config)) as admin:
        admin.create_acls(acls)
    for each in acls:
        say(f"{each}.")


@app.command("remove")
def remove(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    principal: Principal = None,
    operations: Annotated[
        list[str] | None, typer.Option("--operation", metavar="READ", help="Only these operations; may be repeated.")
    ] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    everything: Annotated[bool, typer.Option("--all", help="All ACLs there are.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove ACLs, and print those that are gone. A resource means ACLs with just this name, also prefixed ones.

    Example: `ottla acls remove --principal User:alice --topic orders`
    """
    from ottla import Admin
    from ottla.client.admin.acls import AclBindingFilter

    found = _resource(topic=topic, group=group, transactional_id=transactional_id, cluster=cluster)
    is_narrow = found is not None or principal is not None or bool(operations)
    if everything == is_narrow:
        raise CommandError("which? give --principal, --operation or a resource; or --all, and nothing else, for all")
    wanted = AclBindingFilter(principal=principal)
    if found is not None:
        wanted = wanted._replace(resource_type=found[0], resource_name=found[1])
    filters = [wanted._replace(operation=_operation(each)) for each in operations or ()] or [wanted]
    with Admin(admin_config(bootstrap, config)) as admin:
        gone = admin.delete_acls(filters)
    print_rows(map(_row, gone), _COLUMNS, as_json=as_json, none="There are no such ACLs; nothing was removed.")


_COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")


def _row(acl: AclBinding) -> dict[str, object]:
    return {
        "principal": acl.principal,
        "permission": acl.permission_type.name,
        "operation": acl.operation.name,
        "resource": acl.resource_type.name,
        "name": acl.resource_name,
        "pattern": acl.pattern_type.name,
        "host": acl.host,
    }


def _resource(**given: Any) -> tuple[AclResourceType, str] | None:
    """The one resource that is named; None if none is. CommandError for two."""
    from ottla.client.admin.acls import AclResourceType
    from ottla.wire.acls import CLUSTER_NAME

    named = [(kind, CLUSTER_NAME if value is True else value) for kind, value in given.items() if value]
    if len(named) > 1:
        raise CommandError("one resource at a time: --topic, --group, --transactional-id or --cluster")
    return None if not named else (AclResourceType[named[0][0].upper()], named[0][1])


def _host(text: str) -> str:
    from ipaddress import ip_address

    from ottla.broker.access.authorizer import java_host

    if text != "*":
        try:
            ip_address(text.partition("%")[0])
        except ValueError:
            raise CommandError(
                f"{text!r} is no address: an ACL has one address, as the broker sees it (10.1.2.3, ::1), or * for all"
            ) from None
    return java_host(text)


def _operation(text: str, resource: AclResourceType | None = None) -> AclOperation:
    """`resource`: it must be something that one does there. A rule that nothing asks for allows, or denies, nothing."""
    from ottla.client.admin.acls import AclOperation
    from ottla.wire.acls import OPERATIONS_ON, ResourceType

    known = {each.name: each for each in AclOperation if each > AclOperation.ANY}
    name = text.upper().replace("-", "_")
    if name not in known:
        raise CommandError(f"{text!r} is no operation; there are {', '.join(known)}")
    if resource is not None:
        there = [AclOperation.ALL, *(AclOperation(each) for each in OPERATIONS_ON[ResourceType(resource)])]
        if known[name] not in there:
            what = resource.name.lower().replace("_", " ")
            raise CommandError(
                f"nobody asks for {name} on a {what}; there are {', '.join(each.name for each in there)}"
            )
    return known[name]
