"""`ottla serve`: the help of it. The command itself goes from `cli.main` straight to the broker (see there)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    port: Annotated[
        int | None, typer.Option("--port", help="Port to listen on, 9092 by default; 0 takes a free one.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Directory of the logs; made when it is not there.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="KEY=VALUE", help="Any of Kafka's broker settings; may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A server.properties file.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; 127.0.0.1 by default.")] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="NAME=FILE",
            help="Add this user, if there is none, with the first line of FILE as password; may be repeated.",
        ),
    ] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM. Prints `ottla ready HOST:PORT` when it takes connections.

    Settings come from `--config`, then from the environment (`OTTLA_LOG_RETENTION_MS=1000` is `log.retention.ms`),
    then from `-o`; later ones win.

    Example: `ottla serve --port 9092 --data-dir ./data -o log.retention.hours=24`
    """
    from ottla.broker.process import main

    arguments: list[str] = []
    own = {"--port": port, "--data-dir": data_dir, "--config": config, "--host": host, "--log-level": log_level}
    for name, value in own.items():
        arguments += [] if value is None else [name, str(value)]
    for each in option or ():
        arguments += ["-o", each]
    for each in add_scram or ():
        arguments += ["--add-scram", each]
    raise typer.Exit(main(arguments))
