"""Address: where letters go. One target for all, one for each source, or back to where each came from.

A letter that goes back may have a target of its own, which is stronger than its source's. When that one leads nowhere, it is
told of this letter, and the others go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from redrive.engine.bounded import clean
from redrive.engine.call import FunctionTransport
from redrive.engine.describe import describe
from redrive.engine.run import KIND
from redrive.model.errors import BadSettings, RedriveError
from redrive.model.letter import Letter
from redrive.model.message import Message
from redrive.model.operation import Delivery, Refused
from redrive.model.redaction import MARK
from redrive.model.target import HIDDEN, SOURCE
from redrive.ports.transport import Parcel, Transport

ELSE = "*"
"""The source that stands for all that are not named."""
_COMMAND = "command:"
_HOMES = ("queue:", "mailbox:", "kafka:")
"""How a source begins that is a target."""
_OWN_KEPT = 100
"""Letters' own targets that are kept at a time, each with its connections: there may be one a letter."""
_PAIR = re.compile(r"([^\s=:/]+)=(\S+)")

To = str | Transport | Callable[..., Any]
Resolve = Callable[[str], Transport]
"""Makes the transport that a URL names."""


class Addresses:
    """Says of each letter which transport it goes to."""

    def __init__(self, to: To | Mapping[str, To], resolve: Resolve, homes: Mapping[str, str]) -> None:
        """`homes` are the targets of sources, for letters that go back to where they came from."""
        self._resolve = resolve
        self._known: dict[str, Transport] = {}
        self._homes: Mapping[str, str] = {}
        self._own = _Own(resolve, homes)
        by_source = to if isinstance(to, Mapping) else _pairs(to)
        if by_source is not None:
            self.text = " ".join(f"{source}={self._target(target).name}" for source, target in by_source.items())
            self._homes = {source: self._name(target) for source, target in by_source.items()}
        elif to == SOURCE:
            self.text = SOURCE
            self._homes = {_COMMAND: _COMMAND, **homes}
        else:
            assert not isinstance(to, Mapping)
            # What is written down is the target's name: a URL may hold a login.
            self.text = self._target(to).name
            self._homes = {ELSE: self._name(to)}

    def of(self, letter: Letter) -> Transport | None:
        """Where it goes; None: that is not known."""
        if self.is_own(letter):
            target = self._own.of(letter.target)
            return None if isinstance(target, str) else target
        home = self._homes.get(_COMMAND) if letter.kind == KIND else None
        home = home or self._homes.get(letter.source) or self._own_home(letter) or self._homes.get(ELSE)
        return None if home is None else self._at(home)

    def _own_home(self, letter: Letter) -> str | None:
        """The letters of a queue, a mailbox or a topic go back there without being told: their source is a target."""
        return letter.source if self.text == SOURCE and letter.source.startswith(_HOMES) else None

    def is_own(self, letter: Letter) -> bool:
        """Does it go to a target of its own? Only back: what is said of an operation is said later, and stronger."""
        return self.text == SOURCE and bool(letter.target)

    def why_not(self, letter: Letter) -> str:
        """What to tell of a letter that goes nowhere."""
        if self.is_own(letter):
            return f"its own target leads nowhere: {self._own.of(letter.target)}"
        if self.text == SOURCE:
            return f"no target is known for source '{letter.source}': name it under [targets] in the settings, or say where to"
        return f"no target is given for source '{letter.source}'"

    def _name(self, to: To) -> str:
        return to if isinstance(to, str) else self._target(to).name

    def _target(self, to: To) -> Transport:
        if isinstance(to, str):
            return self._at(to)
        transport = FunctionTransport(to) if callable(to) else to
        return self._known.setdefault(transport.name, transport)

    def _at(self, name: str) -> Transport:
        if name not in self._known:
            self._known[name] = self._resolve(name)
        return self._known[name]


def own_target(target: str, resolve: Resolve, homes: Mapping[str, str]) -> Transport:
    """The transport that a letter's own target names, by its URL or as that of a source in `homes`; `BadSettings` when it names
    none, or tells a secret."""
    is_home = target in homes and target != ELSE
    if MARK.search(target):
        raise BadSettings("it was redacted; give the letter another with redrive edit --target")
    if not is_home and ":" not in target:
        raise BadSettings(
            f"'{target}' is no target: give a URL such as py:shop:handle or https://shop.example.com/orders,"
            " or a source that [targets] in the settings names"
        )
    try:
        transport = resolve(homes[target] if is_home else target)
    except BadSettings:
        raise
    except RedriveError as error:
        raise BadSettings(str(error)) from error
    if not is_home and HIDDEN in transport.name:
        raise BadSettings(
            "a target is written down with its letter, so it must hold no login and no key: name it under [targets] in the"
            " settings, and give that name"
        )
    return transport


class _Own:
    """The targets that letters have of their own, each looked for once."""

    def __init__(self, resolve: Resolve, homes: Mapping[str, str]) -> None:
        self._resolve = resolve
        self._homes = homes
        self._known: dict[str, Transport | str] = {}

    def of(self, target: str) -> Transport | str:
        """Where it leads, or why it leads nowhere."""
        if target not in self._known:
            if len(self._known) >= _OWN_KEPT:
                del self._known[next(iter(self._known))]
            try:
                self._known[target] = _Apart(own_target(target, self._resolve, self._homes))
            except BadSettings as error:
                self._known[target] = clean(str(error))
        return self._known[target]


class _Apart:
    """A target of few letters among many: when it cannot be sent to at all, that is the answer to these, and ends nothing."""

    def __init__(self, target: Transport) -> None:
        self._target = target
        self.name = target.name

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        try:
            return await self._target.send(messages)
        except Exception as error:
            return [Refused(failure=describe(error), was_reached=False)] * len(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        return await self._target.receive(limit=limit, lease=lease)

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        return await self._target.settle(handles, done=done)

    async def peek(self, *, limit: int = 10) -> list[Message]:
        return await self._target.peek(limit=limit)


def _pairs(to: To) -> dict[str, To] | None:
    """`orders=py:shop:handle stock=py:shop:stock`, read as a mapping; None when it is none."""
    if not isinstance(to, str):
        return None
    parts = to.split()
    found = [match for part in parts if (match := _PAIR.fullmatch(part))]
    if not found or not parts:
        return None
    if len(found) < len(parts):
        raise BadSettings(
            f"'{to}' names targets for some sources only; write source=target for each, and *=target for all others"
        )
    return {match[1]: match[2] for match in found}
