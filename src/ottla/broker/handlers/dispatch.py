"""From a frame to an answer, by the table."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ottla.base.errors import CorruptDataError
from ottla.base.limits import FRAME_BYTES_AT_ONCE
from ottla.base.words import shown
from ottla.broker.answers import Answer, Frame, Later
from ottla.broker.handlers.bad_input import bad_input
from ottla.broker.handlers.encoding import as_it_is, encoded, is_deep, is_heavy, is_wide
from ottla.broker.handlers.herd import Herd
from ottla.broker.handlers.large import in_its_turn, slowly
from ottla.broker.handlers.parts import Names, Part, joined, parts_of
from ottla.broker.handlers.table import (
    TABLE,
    UNSTABLE_VERSIONS,
    Entry,
    RequestContext,
    decode_message,
)
from ottla.broker.node import Node
from ottla.broker.runtime.encoding import AnswerTooLargeError
from ottla.broker.session import Session
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import Buffer
from ottla.wire.frames import UnsupportedVersionError, client_id_of, decode_request

_log = logging.getLogger(__name__)


class Dispatcher:
    """Calls handlers for one broker; the listener's `dispatch`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._quotas = node.quotas
        self._herd = Herd(node.slices)
        self._handlers: dict[int, Callable[..., Any]] = {}
        unstable = node.config.flag(UNSTABLE_VERSIONS)
        self._newest = {key: entry.newest(unstable=unstable) for key, entry in TABLE.items()}

    def load(self) -> Iterator[None]:
        """Import every handler, one in each step. One that cannot be imported is tried again at its first use."""
        for key, entry in TABLE.items():
            try:
                self._handlers.setdefault(key, entry.load())
            except (ImportError, OSError, SyntaxError):
                _log.exception("the code for %s cannot be imported: is the installation damaged?", API[key].name)
            yield

    def __call__(self, frame: Frame, session: Session) -> Answer:
        try:
            header, offset = decode_request(frame)
        except UnsupportedVersionError as unsupported:
            if unsupported.api_key != ApiKey.API_VERSIONS:
                client_id = client_id_of(frame)
                raise CorruptDataError(f"{unsupported} (client id {shown(client_id)})") from None
            from ottla.broker.handlers.api_versions import unsupported_version

            return unsupported_version(unsupported.correlation_id)
        key, version, correlation_id, sent_id = header
        client_id = sent_id or ""
        entry = TABLE[key]
        if version > self._newest[key]:
            raise CorruptDataError(f"{API[key].name} version {version} is not offered (client id {shown(client_id)})")
        handle = self._handlers.get(key)
        if handle is None:
            handle = self._handlers[key] = entry.load()
        context = RequestContext(key, version, correlation_id, client_id, session, None)
        if entry.in_herds:
            return self._herd.carry_out(partial(self._serve, entry, handle, frame, offset, context))
        return self._serve(entry, handle, frame, offset, context)

    def _serve(
        self, entry: Entry, handle: Callable[..., Any], frame: Frame, offset: int, context: RequestContext
    ) -> Answer:
        charge = None
        if self._quotas.is_on and entry.key != ApiKey.WRITE_TXN_MARKERS:
            charge = self._quotas.charge(context.session, context.client_id)
            context = context._replace(charge=charge)
        answer: Answer
        if entry.raw:
            answer = handle(self._node, frame, offset, context)
        elif len(frame) > FRAME_BYTES_AT_ONCE and not (entry.in_herds and self._herd.is_at_work):
            slices = self._node.slices
            carry_out = partial(self._carry_out, entry, handle, size_bytes=len(frame), context=context)
            work = slowly(slices, context, frame, offset, carry_out)
            answer = Later(slices.start(work, f"a large {API[entry.key].name}"), as_it_is)
        else:
            answer = self._carry_out(entry, handle, decode_message(context, frame, offset), len(frame), context)
        return answer if charge is None else charge.carried(answer)

    def _carry_out(
        self, entry: Entry, handle: Callable[..., Any], message: Any, size_bytes: int, context: RequestContext
    ) -> Answer:
        if entry.in_parts or entry.names:
            message = message if entry.names is None else entry.names.distinct(message)
            parts = parts_of(message, size_bytes) if entry.names is None else entry.names.parts_of(message)
            if parts:
                join = partial(joined, parts) if entry.names is None else entry.names.joined
                work = self._in_parts(handle, parts, join, entry.names, context)
                whole = self._node.slices.start(work, f"a large {API[entry.key].name}")
                return Later(whole, partial(self._encode, context, may_be_deep=True))
        response = handle(self._node, message, context)
        if isinstance(response, asyncio.Future):
            if not response.done():
                return Later(response, partial(self._encode, context, may_be_deep=True))
            response = response.result()
        return self._encode(context, response)

    async def _in_parts(
        self,
        handle: Callable[..., Any],
        parts: Sequence[Part],
        join: Callable[[Sequence[Any]], Any],
        names: Names | None,
        context: RequestContext,
    ) -> Any:
        """While others are served. A part begins when the one before is answered. What is told of names is encoded."""
        answers: list[Any] = []
        made = self._node.answers.begin(context.api_key, context.api_version, context.client_id)

        try:
            for part in parts:
                answer = await in_its_turn(
                    self._node.slices, context, partial(handle, self._node, part.request, context)
                )
                answers.append(await answer if isinstance(answer, asyncio.Future) else answer)
                if names is not None:
                    told: list[list[Buffer]] = []
                    await self._node.slices.run(made.elements(names.told, getattr(answers[-1], names.told), told))
                    answers[-1] = answers[-1]._replace(**{names.told: tuple(told)})
        except AnswerTooLargeError as fault:
            return fault
        finally:
            made.end()
        return join(answers)

    def _encode(
        self,
        context: RequestContext,
        message: tuple[Any, ...],
        may_be_deep: bool = False,
    ) -> Answer:
        if context.charge is not None:
            message = context.charge.charged(message)
        key = context.api_key
        bad = bad_input(key, message)
        if bad is not None:
            self._node.refusals.tell(context.session.client_host, context.client_id, bad)
        is_long = is_wide(message, TABLE[key].names) or (may_be_deep and is_deep(message))
        is_long = is_long or is_heavy(key, message, may_be_deep=may_be_deep)
        return encoded(self._node.answers, self._node.slices, context, message, is_long=is_long)
