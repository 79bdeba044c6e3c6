"""The stored form of a letter: one byte that numbers the form, then msgpack. The previous form is always readable."""

from __future__ import annotations

from msgspec import DecodeError, ValidationError, msgpack

from redrive.model.errors import NotHeld, SchemaTooNew, StoreCorrupt
from redrive.model.letter import Letter

SCHEMA = 1

_MARK = bytes([SCHEMA])
_encode = msgpack.Encoder(uuid_format="bytes").encode
_decoders = {1: msgpack.Decoder(Letter).decode}


def stored(letter: Letter) -> bytes:
    """The letter as bytes for a store or a journal; `NotHeld` when it holds what cannot be written."""
    try:
        return _MARK + _encode(letter)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotHeld(f"letter {letter.id} holds a value that cannot be stored: {error}") from error


def restored(data: bytes) -> Letter:
    """The letter in these bytes, whichever known form they have."""
    decode = _decoders.get(data[0]) if data else None
    if decode is None:
        if data and data[0] > SCHEMA:
            raise SchemaTooNew(f"a letter has stored form {data[0]}, this redrive knows {SCHEMA}; upgrade redrive")
        raise StoreCorrupt("a stored letter is empty or has no known form")
    try:
        return decode(memoryview(data)[1:])
    except (DecodeError, ValidationError, ValueError) as error:
        raise StoreCorrupt(f"a stored letter cannot be read: {error}") from error
