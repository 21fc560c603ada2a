"""What is still open may be asked in any thread, at any moment: also while the loop seals the batch that is counted."""

import asyncio
import subprocess
import sys
from types import FrameType
from typing import Any

from ottla import AsyncProducer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.testing import Broker
from tests.client.conftest import Watchdog
from tests.client.journeys import make_topic, read_all
from tests.client.scripted_broker import ScriptedBroker


class Preempted:
    """Calls something as if another thread had its turn before the n-th step that the client takes here."""

    def __init__(self, step: int, other: Any) -> None:
        self.reached = False
        self._left = step
        self._other = other

    def call(self, function: Any) -> None:
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            function()
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, argument: object) -> Any:
        if "/ottla/client/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and not self.reached:
            self._left -= 1
            if self._left < 0:
                self.reached = True
                sys.settrace(None)
                self._other()
                return None
        return self._stepped


def every_preemption_is_survived(config: dict[str, object]) -> None:
    """Ask what is unfinished, again and again; each time its batch is sent one step later."""
    thread = LoopThread("producer")
    producer = AsyncProducer({**config, "linger.ms": 60_000})
    try:
        thread.run(producer.start())
        for step in range(1_000):
            thread.run(producer.send("t", b"v"))
            preempted = Preempted(step, lambda: thread.run(producer.flush()))
            preempted.call(producer.unfinished)
            if not preempted.reached:
                return
            assert producer.unfinished() == ""
        raise AssertionError("it takes more than a thousand steps")
    finally:
        thread.run(producer.close(0))
        thread.stop()


async def test_what_is_unfinished_can_be_asked_while_batches_are_sent(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        await asyncio.to_thread(every_preemption_is_survived, broker.config())


def test_a_client_that_cannot_say_what_it_loses_keeps_no_other_from_its_ending() -> None:
    program = """
import sys
from ottla import Producer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.unclosed import Unclosed
class CannotSay:
    def unfinished(self):
        raise AttributeError("record_count")
    async def abandon(self):
        return ""
client = CannotSay()
unclosed = Unclosed(client, client, LoopThread("cannot say"))
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
producer.send(sys.argv[2], b"v")
"""
    with Broker() as broker:
        topic = make_topic(broker.bootstrap_servers)
        command = [sys.executable, "-c", program, broker.bootstrap_servers, topic]
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert [record.value for record in read_all(broker.bootstrap_servers, topic)] == [b"v"]
