"""The address of a topic: `kafka:TOPIC` on the brokers of the settings, or `kafka://host[:port][,host…]/TOPIC`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import parse_qsl

from msgspec import Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.secret_options import is_secret

EXAMPLE = "kafka://127.0.0.1:9092/orders"
BROKERS = "brokers"
TIMEOUT = timedelta(seconds=30)
_MOST_SECONDS = 3_600
_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)
_BROKER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?", re.ASCII)
_LOGIN = "sasl.username"
"""No secret, but brokers repeat it where it is of no use to anybody."""

_OPTION = re.compile(r"[a-z0-9]+(?:[._][a-z0-9]+)*", re.ASCII)
_OF_PYTHON = frozenset({"default.topic.config", "logger", "on_delivery"})
_OURS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "group.id",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.send.max.retries",
        "message.timeout.ms",
        "metadata.broker.list",
        "request.required.acks",
        "retries",
        "transactional.id",
    }
)
"""With another value of these, what is told of a message could not be believed."""


class Address(Struct, frozen=True, kw_only=True):
    """A topic, and how its brokers are spoken to."""

    topic: str
    brokers: str
    """`host:port`, with commas between them."""
    name: str
    """The URL as people may see it: there is no secret in it."""
    timeout: timedelta = TIMEOUT
    """For a message, from its sending to the broker's answer."""
    options: Mapping[str, str] = {}
    """Of librdkafka."""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def hidden(self, text: str) -> str:
        """What somebody said, without what must not be told."""
        secrets = {value for name, value in self.options.items() if value and (is_secret(name) or name == _LOGIN)}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def parsed(location: str, settings: Mapping[str, str]) -> Address:
    """The address behind `kafka:`. A topic on brokers of its own goes without the options, for they are meant for the others."""
    place, _, query = location.partition("?")
    if place.startswith("//"):
        brokers, _, topic = place.removeprefix("//").partition("/")
        if "@" in place:
            # It is not repeated: there may be a password in it.
            raise BadSettings(
                "a topic's URL has no login; name brokers and login under [kafka] in the settings, and write kafka:TOPIC"
            )
        options: dict[str, str] = {}
    else:
        topic, brokers = place, settings.get(BROKERS, "")
        options = {name: value for name, value in settings.items() if name != BROKERS}
        _ensure_usable(options)
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise BadSettings(
            f"'{topic[:80]}' is no topic: its name has 1 to 249 letters, digits, dots, dashes or underscores, as in {EXAMPLE}"
        )
    if not brokers:
        raise BadSettings(
            f'no brokers are known for kafka:{topic}; write brokers = "host:9092" under [kafka] in the settings, or {EXAMPLE}'
        )
    if not all(_BROKER.fullmatch(broker) for broker in brokers.split(",")):
        raise BadSettings(f"'{brokers[:80]}' does not name brokers; write host:9092, or several with commas between them")
    return Address(topic=topic, brokers=brokers, name=f"kafka:{location}", timeout=_timeout(query), options=options)


def _ensure_usable(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        # What is no text to C ends the whole process there, and functions cannot be written in a file.
        if not _OPTION.fullmatch(name) or name.endswith("_cb") or name in _OF_PYTHON:
            raise BadSettings(f"{name[:80]!a} under [kafka] is no option of librdkafka")
        if "\0" in value or not _is_text(value):
            raise BadSettings(f"the value of {name} under [kafka] is no text")
        if name in _OURS:
            raise BadSettings(
                f"{name} under [kafka] is not free to choose: with another value, messages could be lost; leave it out"
            )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timeout(query: str) -> timedelta:
    found = TIMEOUT
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name != "timeout":
            raise BadSettings(f"a topic's URL has no option '{name[:40]}'; {hint(name, ['timeout'])}")
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= _MOST_SECONDS:
            raise BadSettings(f"timeout={text[:40]} must be a number of seconds from 1 to {_MOST_SECONDS}, e.g. timeout=30")
        found = timedelta(seconds=seconds)
    return found
