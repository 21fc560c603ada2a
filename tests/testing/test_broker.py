"""The embedded broker: in a process, in the loop, by fixture."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from ottla.testing import AsyncBroker, Broker, BrokerError

pytest_plugins = ["pytester"]


def _answers(broker: Broker | AsyncBroker) -> bool:
    async def ask() -> bool:
        reader, writer = await asyncio.open_connection(broker.host, broker.port)
        writer.write(bytes.fromhex("0000000a" + "0012" + "0000" + "00000007" + "ffff"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(size)
        writer.close()
        return answer[:6] == bytes.fromhex("000000070000")

    return asyncio.run(ask())


def test_a_broker_comes_and_goes() -> None:
    with Broker() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert _answers(broker)
        pid, data_dir = broker.pid, broker.data_dir
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not data_dir.exists()


def test_restart_keeps_port_and_directory_and_kill_leaves_the_data() -> None:
    with Broker() as broker:
        port = broker.port
        broker.kill()
        assert broker.pid is None
        assert (broker.data_dir / "meta.properties").exists()
        broker.start()
        assert broker.port == port
        broker.restart()
        assert _answers(broker)


def test_a_directory_of_ones_own_is_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        pass
    assert (tmp_path / "meta.properties").exists()


def test_a_wrong_configuration_is_told() -> None:
    with pytest.raises(BrokerError, match=r"did you mean num\.partitions"):
        Broker({"num.partition": 1}).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_in_order(number: signal.Signals, tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path).start()
    assert broker.pid is not None
    os.kill(broker.pid, number)
    broker.stop()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_a_broker_in_the_loop() -> None:
    async with AsyncBroker() as broker:
        assert await asyncio.to_thread(_answers, broker)
        assert broker.node.image.topics == {}


def test_the_plugin_offers_a_fixture_and_costs_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_lazy():
            assert "ottla.broker.app" not in sys.modules

        def test_fixture(ottla_broker):
            assert ottla_broker.bootstrap_servers.startswith("127.0.0.1:")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)


def test_importing_it_imports_no_heavy_library() -> None:
    import subprocess

    code = "import ottla.broker.app, ottla.testing.broker, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyarrow", "typer", "rich", "hypothesis", "kio", "pyspark"} & set(modules)
