"""The broker as a process. `ottla serve` and `ottla.testing` run `main`. It imports little, and late, to start fast.

Prints `ottla ready host:port` on stdout once it listens. With several listeners, all of them follow in the same line,
as `NAME://host:port`. SIGTERM, SIGINT and SIGHUP, the end of its terminal, stop it in order; under nohup the last is
ignored. Exit codes: 0 after a stop (130 when Ctrl-C comes before it listens), 1 for a directory or address that cannot
be used, 2 for a wrong configuration.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.secret import Secret
from ottla.broker.config import BrokerConfig, from_environment, from_file, from_options
from ottla.broker.listeners import Listener, SecurityProtocol

if TYPE_CHECKING:
    from ottla.broker.app import BrokerApp

#: Makes the broker, inside its loop.
MakeApp = Callable[[BrokerConfig], "BrokerApp"]

#: Behind its start a broker imports what it has not needed yet. One of a short test never needs it.
_SETTLED_S: Final = 1.0
#: The system's table of our open files has room for so many from the start, or for as many as may be: a megabyte.
_ROOM_FOR_FILES: Final = 131_072


def main(argv: Sequence[str] | None = None, make_app: MakeApp | None = None) -> int:
    """Run a broker until it is told to stop; the process's exit code. Tests make it with a clock and disk of theirs."""
    try:
        return _main(argv, make_app)
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None, make_app: MakeApp | None) -> int:
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        config = configure(
            config_file=arguments.config,
            data_dir=arguments.data_dir,
            host=arguments.host,
            port=arguments.port,
            options=arguments.option,
        )
    except ConfigError as fault:
        print(f"ottla: {fault}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        users = _first_users(arguments.add_scram)
    except ConfigError as fault:
        print(f"ottla: {fault}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        run(config, make_app, users)
    except (OttlaError, OSError) as fault:
        print(f"ottla: {_reason(fault)}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def configure(
    *,
    config_file: Path | None = None,
    data_dir: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    options: Sequence[str] = (),
) -> BrokerConfig:
    """The configuration from all sources: file, then environment, then options, then the command's own arguments.

    Raises ConfigError. The log names the keys that were set but have no effect.
    """
    given: dict[str, object] = {}
    if config_file is not None:
        given |= from_file(config_file)
        if host is not None or port is not None:
            given.pop("advertised.listeners", None)  # it belongs to the listener in the file, which is replaced
    given |= from_environment(os.environ)
    given |= from_options(options)
    if data_dir is not None:
        given["log.dirs"] = (str(data_dir),)
    if host is not None or port is not None:
        _check_replaceable(BrokerConfig(given).listeners)
        given["listeners"] = (f"PLAINTEXT://{host or '127.0.0.1'}:{9092 if port is None else port}",)
    config = BrokerConfig(given)
    ignored = config.without_effect()
    if ignored:
        logging.getLogger(__name__).warning(
            "accepted, without effect (docs/config.md says why): %s", ", ".join(ignored)
        )
    return config


def _check_replaceable(listeners: Sequence[Listener]) -> None:
    """TLS, SASL or a second listener must not be dropped in silence."""
    if len(listeners) > 1 or listeners[0].protocol is not SecurityProtocol.PLAINTEXT:
        told = ", ".join(f"{each.name} ({each.protocol.value})" for each in listeners)
        raise ConfigError(f"--host and --port stand for one listener of plain text; listeners has {told}: set it there")


def _first_users(given: Sequence[str]) -> dict[str, Secret]:
    """`--add-scram NAME=FILE`: the password is the first line of the file."""
    users = {}
    for each in given:
        name, _, file = each.partition("=")
        if not name or not file:
            raise ConfigError(f"--add-scram {each!r}: expected NAME=FILE, a file whose first line is the password")
        try:
            password = Path(file).read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as fault:
            reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
            raise ConfigError(f"--add-scram {name}: cannot read {file}: {reason}") from None
        if not password:
            raise ConfigError(f"--add-scram {name}: the first line of {file} is empty; it must be the password")
        users[name] = Secret(password)
    return users


def run(config: BrokerConfig, make_app: MakeApp | None = None, first_users: Mapping[str, Secret] | None = None) -> None:
    """Serve until a signal stops it (see the module). Raises what `BrokerApp.start` raises."""
    _allow_many_files()
    with _auditing(config):
        try:
            import uvloop
        except ImportError:
            asyncio.run(_serve(config, make_app, first_users))
        else:
            uvloop.run(_serve(config, make_app, first_users))


def _auditing(config: BrokerConfig) -> contextlib.AbstractContextManager[None]:
    """Meanwhile the audit log goes where the configuration says."""
    path = config.text("audit.log.path")
    if path is None:
        return contextlib.nullcontext()
    from ottla.broker.audit_file import audit_to

    return audit_to(path)


async def _serve(config: BrokerConfig, make_app: MakeApp | None, first_users: Mapping[str, Secret] | None) -> None:
    from ottla.broker.app import BrokerApp
    from ottla.broker.garbage import keep_out_of_the_way

    await asyncio.sleep(0)  # Ctrl-C while these were imported ends it here
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    app = (make_app or BrokerApp)(config)
    app.first_users = first_users or {}
    first = await app.start()
    keep_out_of_the_way(app.clock, lambda: app.quiet_since_ms)
    others = "".join(f" {name}://{at}" for name, at in app.bound.items()) if len(app.bound) > 1 else ""
    print(f"ottla ready {first}{others}", flush=True)  # noqa: T201
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), _SETTLED_S)
    if not stop.is_set():
        await app.import_handlers()
    await stop.wait()
    await app.stop()


def _allow_many_files() -> None:
    """Raise the limit of open files to what the system allows: a partition needs several, a connection one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _make_room_for_files()


def _make_room_for_files() -> None:
    """Have the system's table of our open files grow now, while there is one thread: that costs nothing.

    With several threads Linux waits each time it doubles the table, 10 to 20 ms, and so would the loop: at the 257th
    file, the 513th, and so on.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = (_ROOM_FOR_FILES if most == resource.RLIM_INFINITY else min(most, _ROOM_FOR_FILES)) - 1
    with contextlib.suppress(ValueError, OSError), Path(os.devnull).open("rb") as nothing:
        os.close(fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, last))


def _reason(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.filename is not None:
        return f"{fault.filename}: {fault.strerror}"
    return str(fault)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="ottla serve", description="Run one Ottla broker.")
    parser.add_argument("--config", type=Path, help="a Kafka server.properties file")
    parser.add_argument("--data-dir", type=_directory, help="where the data is (log.dirs)")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any free one")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="any Kafka key")
    parser.add_argument(
        "--add-scram", action="append", default=[], metavar="NAME=FILE", help="a first user; the password is in FILE"
    )
    parser.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    return parser


def _directory(text: str) -> Path:
    if not text:
        raise ArgumentTypeError("it is empty; `.` is the current directory")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
