"""Letters whole: with their bodies, wherever they lie, and a digest that is the same in every store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, TypeVar

from msgspec import NODEFAULT, Struct, msgpack
from msgspec.structs import fields, replace

from redrive.engine.hold import body_refs
from redrive.model.errors import StoreError
from redrive.model.letter import BodyRef, Letter
from redrive.model.query import Order
from redrive.ports.bodies import Bodies
from redrive.ports.letters import LetterStore

_canonical = msgpack.Encoder(order="deterministic").encode
"""The stored form, with the keys of metadata in order: a store may give them back in another."""

_LOAD_BYTES = 8 * 1024 * 1024
"""What is carried at a time, so that memory stays flat however large the bodies are."""
_FIRST_PAGE = 10

S = TypeVar("S", bound=Struct)


class Side(Struct, frozen=True, kw_only=True):
    """A store that letters are copied from or to."""

    letters: LetterStore
    bodies: Bodies | None = None
    """Where its large bodies lie; without, all of them are in the letters themselves."""
    body_limit: int = 1_048_576


class Whole(Struct, frozen=True, kw_only=True):
    """A letter, its body and the body it first came with."""

    letter: Letter
    body: bytes
    original: bytes | None
    digest: int


async def loads(store: LetterStore, batch: int) -> AsyncIterator[list[Letter]]:
    """All letters of a store, oldest first, in lists that are small enough to carry."""
    after: str | None = None
    limit = min(batch, _FIRST_PAGE)
    while True:
        page = await store.find(order=Order.OLDEST, limit=limit, after=after)
        load: list[Letter] = []
        weight = heaviest = 0
        for letter in page.letters:
            size = _weight(letter)
            if load and weight + size > _LOAD_BYTES:
                yield load
                load, weight = [], 0
            load.append(letter)
            weight += size
            heaviest = max(heaviest, size)
        if load:
            yield load
        if (after := page.next) is None:
            return
        limit = max(1, min(batch, _LOAD_BYTES // heaviest))


def _weight(letter: Letter) -> int:
    """About how many bytes it takes to carry a letter, with the bodies that lie beside it."""
    beside = sum(ref.size for ref in body_refs(letter))
    return (
        1000 + len(letter.failure.traceback) + len(letter.body) + len(letter.original.body if letter.original else b"") + beside
    )


async def whole(letter: Letter, side: Side) -> Whole:
    """The letter with what lies beside it; `StoreError` when that is missing or damaged."""
    body = await _loaded(letter.body, letter.body_ref, side)
    original = letter.original
    first = None if original is None else await _loaded(original.body, original.body_ref, side)
    bare = replace(
        letter, body=b"", body_ref=None, original=None if original is None else replace(original, body=b"", body_ref=None)
    )
    digest = hashlib.sha256(_canonical(_spare(bare)))
    digest.update(hashlib.sha256(body).digest())
    if first is not None:
        digest.update(hashlib.sha256(first).digest())
    return Whole(letter=letter, body=body, original=first, digest=int.from_bytes(digest.digest(), "big"))


def _spare(value: S) -> S:
    """The same value with every default left out: the encoder leaves out only what is the default itself, not its equal."""
    given = {name: getattr(value, name) for name in value.__struct_fields__}
    defaults = _defaults(type(value))
    return type(value)(**{name: _spare_part(part) for name, part in given.items() if part != defaults[name]})


def _spare_part(part: Any) -> Any:
    if isinstance(part, Struct):
        return _spare(part)
    if isinstance(part, tuple):
        return tuple(map(_spare_part, part))
    return part


@cache
def _defaults(kind: type[Struct]) -> dict[str, Any]:
    return {one.name: one.default if one.default_factory is NODEFAULT else one.default_factory() for one in fields(kind)}


async def placed(one: Whole, side: Side) -> Letter:
    """The letter as a store takes it: large bodies beside it where there is a place for them, else inside."""
    letter = one.letter
    # The same name each time: whoever copies again after a kill finds the file that is there, and leaves no other.
    name = f"{letter.id}-{letter.history[-1].occurrence}" if letter.history else str(letter.id)
    body, ref = await _kept(name, one.body, side)
    original = letter.original
    if original is not None and one.original is not None:
        first, first_ref = await _kept(name, one.original, side)
        original = replace(original, body=first, body_ref=first_ref)
    return replace(letter, body=body, body_ref=ref, original=original)


async def _loaded(body: bytes, ref: BodyRef | None, side: Side) -> bytes:
    if ref is None:
        return body
    if side.bodies is None:
        raise StoreError(f"its body is in a file ({ref.name}), and this store has no folder for bodies")
    return await side.bodies.load(ref)


async def _kept(name: str, body: bytes, side: Side) -> tuple[bytes, BodyRef | None]:
    if side.bodies is None or len(body) <= side.body_limit:
        return body, None
    return b"", await side.bodies.keep(name, body)
