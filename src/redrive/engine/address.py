"""Address: where letters go. One target for all, one for each source, or back to where each came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from redrive.engine.call import FunctionTransport
from redrive.engine.run import KIND
from redrive.model.errors import BadSettings
from redrive.model.letter import Letter
from redrive.ports.transport import Transport

SOURCE = "source"
"""Back to where each letter came from."""
ELSE = "*"
"""The source that stands for all that are not named."""
_COMMAND = "command:"
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
        home = self._homes.get(_COMMAND) if letter.kind == KIND else None
        home = home or self._homes.get(letter.source) or self._homes.get(ELSE)
        return None if home is None else self._at(home)

    def why_not(self, letter: Letter) -> str:
        """What to tell of a letter that goes nowhere."""
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
