"""What Kafka says when it does not take a message, and what that means for the message."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from redrive.backends.kafka.address import Address
from redrive.model.category import Category
from redrive.model.errors import BadSettings, RedriveError, StoreUnavailable
from redrive.model.known_codes import by_code
from redrive.model.operation import Delivery, Refused, Unknown
from redrive.model.told import failure

_SAID_LIMIT = 500
_UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_FORBIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})
_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"})
_NOT_TAKEN = frozenset({"INVALID_MSG", "INVALID_RECORD", "INVALID_TIMESTAMP", "POLICY_VIOLATION", "UNSUPPORTED_COMPRESSION_TYPE"})
_NOT_SENT = frozenset({"_QUEUE_FULL", "_PURGE_QUEUE", "_INVALID_ARG", "TOPIC_EXCEPTION"})
_NO_LOGIN = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "_SSL"})
_WHY = re.compile(r"(?:.*failed: )?(.*?)(?: \((?:after|install) .*)?", re.DOTALL)


def is_about_login(error: KafkaError) -> bool:
    """Will it not get better by waiting, because the brokers do not let us in?"""
    return error.name() in _NO_LOGIN


def is_too_large(error: KafkaError) -> bool:
    """Is it the message's size, or that of the others it went with?"""
    return error.name() in _TOO_LARGE


def delivery_of(error: KafkaError, address: Address) -> Delivery:
    """What became of a message for which this was reported. Where that is not certain, nobody knows."""
    code = error.name()
    if code in _UNKNOWN_TOPIC | _FORBIDDEN | _NOT_SENT:
        return refused(error, sentence_of(error, address))
    if code in _TOO_LARGE | _NOT_TAKEN:
        return refused(error, sentence_of(error, address), was_reached=True)
    return Unknown(reason=f"{sentence_of(error, address)}; it may have arrived")


def sentence_of(error: KafkaError, address: Address) -> str:
    """What was wrong, and what to do."""
    code, name = error.name(), address.name
    if code in _UNKNOWN_TOPIC:
        return f"there is no topic {address.topic} at {address.brokers}; create it first, for redrive makes none"
    if code in _FORBIDDEN:
        return f"{name} may not be used with this login: {legible(error, address)}"
    if code in _TOO_LARGE:
        return f"{name} takes no message of this size; raise its max.message.bytes, or repair the body"
    if code in _NOT_SENT:
        return f"it was not sent to {name}: {legible(error, address)}"
    if code == "_MSG_TIMED_OUT":
        return f"{name} did not acknowledge it within {address.timeout.total_seconds():g} s"
    return f"{name} did not take it: {legible(error, address)}"


def refused(error: KafkaError, sentence: str, *, was_reached: bool = False) -> Refused:
    """The topic did not take it. Where the message itself is not the reason, nothing is counted against it."""
    code = error.name()
    return Refused(
        failure=failure(f"kafka.{code}", sentence, by_code(code, "kafka") or Category.PERMANENT), was_reached=was_reached
    )


def unreachable(error: KafkaError, address: Address) -> RedriveError:
    """What to raise when no broker lets itself be spoken to, so that nothing was sent."""
    why = legible(error, address)
    if is_about_login(error):
        return BadSettings(
            f"no Kafka broker at {address.brokers} lets redrive in: {why}; mend [kafka] in the settings; nothing was sent"
        )
    return StoreUnavailable(f"no Kafka broker can be reached at {address.brokers}: {why}; nothing was sent")


def misconfigured(error: KafkaError, address: Address) -> BadSettings:
    """What to raise when librdkafka does not take its options."""
    return BadSettings(f"[kafka] in the settings cannot be used: {legible(error, address)}")


def legible(error: KafkaError, address: Address) -> str:
    """What was said, on one line, short, and without what it may have repeated."""
    said = address.hidden(" ".join(error.str().split()))
    found = _WHY.fullmatch(said)
    line = "".join(sign if sign.isprintable() else "�" for sign in (found[1] if found else said) or said)
    line = line.removeprefix("Local: ").removeprefix("Broker: ")
    return line if len(line) <= _SAID_LIMIT else line[: _SAID_LIMIT - 1] + "…"
