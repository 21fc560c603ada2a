"""Answers that wait. Handlers chain futures instead of being coroutines: a ready answer then goes out at once."""

import asyncio
from collections.abc import Callable
from typing import Any


def ready(result: Any) -> "asyncio.Future[Any]":
    """A future that is done."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def then(future: "asyncio.Future[Any]", finish: Callable[[Any], Any]) -> Any:
    """`finish` of the future's result: at once if the future is done, else as another future.

    `finish` may return a future itself; then that future's result counts.
    """
    if future.done():
        return finish(future.result())
    later: asyncio.Future[Any] = future.get_loop().create_future()
    _pass_on(future, later, finish)
    later.add_done_callback(lambda gone: future.cancel() if gone.cancelled() else None)
    return later


def gather(futures: "list[asyncio.Future[Any]]", finish: Callable[[list[Any]], Any]) -> Any:
    """Like `then` for several futures, which are usually all done already."""
    if all(future.done() for future in futures):
        return finish([future.result() for future in futures])
    return then(asyncio.gather(*futures), finish)


def _pass_on(first: "asyncio.Future[Any]", later: "asyncio.Future[Any]", finish: Callable[[Any], Any]) -> None:
    def done(gone: "asyncio.Future[Any]") -> None:
        if later.done():
            if not gone.cancelled():
                gone.exception()  # nobody waits any more; asyncio would complain that nobody has asked for it
            return
        if gone.cancelled():
            later.cancel()
            return
        try:
            answer = finish(gone.result())
        except Exception as fault:  # noqa: BLE001 - whoever waits gets it
            later.set_exception(fault)
            return
        if isinstance(answer, asyncio.Future):
            _pass_on(answer, later, lambda result: result)
        else:
            later.set_result(answer)

    first.add_done_callback(done)
