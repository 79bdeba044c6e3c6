"""The messages as protobuf: their descriptors are made from the classes, so that each field is written down once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from redrive.model.errors import MissingExtra
from redrive.queues.wire.messages import Message
from redrive.queues.wire.schema import STAMP, fields, wire_name
from redrive.queues.wire.stamps import BadStamp, micros, seconds_and_nanos, stamped

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise MissingExtra("the queues' interface speaks protobuf; install it with: pip install 'redrive[http]'") from error

M = TypeVar("M", bound=Message)

_PACKAGE = "redrive.queues"
_F = descriptor_pb2.FieldDescriptorProto
_KINDS: dict[Any, int] = {
    str: _F.TYPE_STRING, bytes: _F.TYPE_BYTES, bool: _F.TYPE_BOOL, "int32": _F.TYPE_INT32, "double": _F.TYPE_DOUBLE,
}  # fmt: skip
_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)


class NotProtobuf(ValueError):
    """These bytes are no such message."""


def parsed(kind: type[Message], body: bytes) -> Any:
    """The message in these bytes as protobuf's own class has it; fields that are not known are passed over."""
    try:
        return _class_of(kind).FromString(body)
    except DecodeError:
        raise NotProtobuf("proto: cannot parse invalid wire-format data") from None


def instant_us(found: Any) -> int:
    """The instant that a Timestamp means, in microseconds."""
    return micros(_stamp(found))


def _stamp(found: Any) -> str:
    return stamped(found.seconds, found.nanos)


def read(kind: type[M], body: bytes) -> M:
    """The message in these bytes."""
    try:
        message: M = _reader(kind)(parsed(kind, body))
    except BadStamp as error:
        raise NotProtobuf(f"proto: invalid google.protobuf.Timestamp value: {error}") from None
    return message


def write(message: Message) -> bytes:
    made = _class_of(type(message))()
    _fill(made, message)
    written: bytes = made.SerializeToString()
    return written


@cache
def _class_of(kind: type[Message]) -> Any:
    for element, _ in fields(kind).values():
        if isinstance(element, type) and issubclass(element, Message):
            _class_of(element)
    file = descriptor_pb2.FileDescriptorProto(name=f"redrive/{kind.__name__}.proto", package=_PACKAGE, syntax="proto3")
    described = file.message_type.add(name=kind.__name__)
    for name, (element, is_many) in fields(kind).items():
        added = described.field.add(name=wire_name(name), number=kind.numbers[name])
        added.label = _F.LABEL_REPEATED if is_many else _F.LABEL_OPTIONAL
        if element is dict:
            _add_map(file, described, added)
        elif element == STAMP:
            added.type, added.type_name = _F.TYPE_MESSAGE, ".google.protobuf.Timestamp"
            _depend(file, "google/protobuf/timestamp.proto")
        elif element in _KINDS:
            added.type = _KINDS[element]
        else:
            added.type, added.type_name = _F.TYPE_MESSAGE, f".{_PACKAGE}.{element.__name__}"
            _depend(file, f"redrive/{element.__name__}.proto")
    _pool.Add(file)
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{kind.__name__}"))


def _depend(file: Any, name: str) -> None:
    if name not in file.dependency:
        file.dependency.append(name)


def _add_map(file: Any, described: Any, added: Any) -> None:
    entry = described.nested_type.add(name="DetailsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    added.type, added.type_name = _F.TYPE_MESSAGE, f".{_PACKAGE}.{described.name}.DetailsEntry"


@cache
def _reader(kind: type[M]) -> Callable[[Any], M]:
    """Makes a message of the class from one of protobuf's.

    Scalars that come first in the class are taken over in one go: a produce has a thousand items.
    """
    known = fields(kind)
    scalars: list[str] = []
    for name, (element, is_many) in known.items():
        if is_many or element not in _KINDS:
            break
        scalars.append(wire_name(name))
    taken = (
        attrgetter(*scalars) if len(scalars) > 1 else (lambda found: (getattr(found, scalars[0]),)) if scalars else (lambda _: ())
    )
    rest = [(name, wire_name(name), element, is_many) for name, (element, is_many) in list(known.items())[len(scalars) :]]

    def read(found: Any) -> M:
        made = kind(*taken(found))
        for name, wired, element, is_many in rest:
            if is_many:
                many = getattr(found, wired)
                if many:
                    setattr(made, name, dict(many) if element is dict else _many(element, many))
            elif element in _KINDS:
                setattr(made, name, getattr(found, wired))
            elif found.HasField(wired):
                one = getattr(found, wired)
                setattr(made, name, _stamp(one) if element == STAMP else _reader(element)(one))
        return made

    return read


def _many(element: Any, many: Any) -> list[Any]:
    return list(many) if element in _KINDS else list(map(_reader(element), many))


def _fill(made: Any, message: Message) -> None:
    for name, (element, is_many) in fields(type(message)).items():
        value = getattr(message, name)
        if not value:
            continue
        wired = wire_name(name)
        if element is dict:
            getattr(made, wired).update(value)
        elif is_many and element in _KINDS:
            getattr(made, wired).extend(value)
        elif is_many:
            target = getattr(made, wired)
            for one in value:
                _fill(target.add(), one)
        elif element == STAMP:
            stamp = getattr(made, wired)
            stamp.seconds, stamp.nanos = seconds_and_nanos(value)
        elif element in _KINDS:
            setattr(made, wired, value)
        else:
            getattr(made, wired).SetInParent()
            _fill(getattr(made, wired), value)
