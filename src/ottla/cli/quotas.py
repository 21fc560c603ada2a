"""`ottla quotas`: how much users, client ids and addresses may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from ottla.client.admin.quotas import ClientQuotaEntity

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and remove quotas of users, client ids and addresses.\n\n"
    "Example: `ottla quotas set --user alice producer_byte_rate=1048576`",
)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
Users = Annotated[bool, typer.Option("--user-defaults", help="Users who have no quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
ClientIds = Annotated[bool, typer.Option("--client-defaults", help="Client ids that have no quota of their own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address.")]
Ips = Annotated[bool, typer.Option("--ip-defaults", help="Addresses that have no quota of their own.")]
_UNITS = {
    "producer_byte_rate": "bytes a second",
    "consumer_byte_rate": "bytes a second",
    "request_percentage": "% of the broker's thread",
    "controller_mutation_rate": "partitions made or deleted a second",
    "connection_creation_rate": "connections a second",
}


@app.command("list")
def list_quotas(
    user: User = None,
    user_defaults: Users = False,
    client_id: ClientId = None,
    client_defaults: ClientIds = False,
    ip: Ip = None,
    ip_defaults: Ips = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List quotas: all, or those of a user, client id or address, also together with others.

    Example: `ottla quotas list --user alice`
    """
    from ottla import Admin, ClientQuotaFilter

    of_user, of_client, of_ip = _parts((user, client_id, ip), (user_defaults, client_defaults, ip_defaults))
    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.describe_client_quotas(ClientQuotaFilter(of_user, of_client, of_ip))
    rows = [
        {
            **{name: "<default>" if part == "" else part for name, part in entity._asdict().items()},
            "quota": key,
            "value": _shown(value),
            "unit": _UNITS.get(key, ""),
        }
        for entity, quotas in found.items()
        for key, value in sorted(quotas.items())
    ]
    print_rows(
        rows, ("user", "client_id", "ip", "quota", "value", "unit"), as_json=as_json, none="There are no such quotas."
    )


@app.command("set")
def set_quotas(
    quotas: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE", help=", ".join(_UNITS))],
    user: User = None,
    user_defaults: Users = False,
    client_id: ClientId = None,
    client_defaults: ClientIds = False,
    ip: Ip = None,
    ip_defaults: Ips = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Set quotas of a user, a client id, both together, or an address. Others of theirs stay.

    Example: `ottla quotas set --user-defaults --client-id spark consumer_byte_rate=10485760`
    """
    from ottla import Admin, ClientQuotaAlteration

    entity = _entity((user, client_id, ip), (user_defaults, client_defaults, ip_defaults))
    wanted = {_known(key): _number(key, value) for key, value in pairs(quotas).items()}
    with Admin(admin_config(bootstrap, config)) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, wanted)])
    for key, value in wanted.items():
        say(f"{entity}: {key} is {_shown(value)} {_UNITS.get(key, '')}.")


@app.command("remove")
def remove_quotas(
    quotas: Annotated[list[str] | None, typer.Argument(metavar="QUOTA", help="Quotas; all if none is named.")] = None,
    user: User = None,
    user_defaults: Users = False,
    client_id: ClientId = None,
    client_defaults: ClientIds = False,
    ip: Ip = None,
    ip_defaults: Ips = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Remove quotas that were set for exactly this user, client id or address.

    Example: `ottla quotas remove --user alice producer_byte_rate`
    """
    from ottla import Admin, ClientQuotaAlteration, ClientQuotaFilter

    entity = _entity((user, client_id, ip), (user_defaults, client_defaults, ip_defaults))
    quotas = [_known(key) for key in quotas or ()]
    with Admin(admin_config(bootstrap, config)) as admin:
        there = admin.describe_client_quotas(ClientQuotaFilter(*entity, strict=True)).get(entity, {})
        missing = [key for key in quotas if key not in there]
        if missing or not there:
            raise CommandError(f"{entity} has no {missing[0] if missing else 'quota'}")
        gone = quotas or sorted(there)
        admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(gone))])
    say(f"{entity}: {', '.join(gone)} removed.")


def _parts(names: tuple[str | None, ...], defaults: tuple[bool, ...]) -> list[str | None]:
    """The parts of an entity; the empty name is the default."""
    for name, is_default in zip(names, defaults, strict=True):
        if name is not None and (is_default or not name):
            raise CommandError(f"{name!r} cannot be a name and the default" if is_default else "a name is empty")
    return ["" if is_default else name for name, is_default in zip(names, defaults, strict=True)]


def _entity(names: tuple[str | None, ...], defaults: tuple[bool, ...]) -> ClientQuotaEntity:
    from ottla import ClientQuotaEntity

    parts = _parts(names, defaults)
    if all(part is None for part in parts):
        raise CommandError("of whom? give --user NAME, --client-id ID, both, --ip ADDRESS, or --user-defaults …")
    return ClientQuotaEntity(*parts)


def _known(key: str) -> str:
    """`key`, if it is a quota: no broker is needed to say that it is none."""
    if key not in _UNITS:
        raise CommandError(f"{key!r} is no quota; there are {', '.join(_UNITS)}")
    return key


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"{key}: {text!r} is no number") from None


def _shown(value: float) -> int | float:
    return int(value) if value.is_integer() else value
