"""Topics of Kafka as targets of letters: `kafka:orders`, `kafka://127.0.0.1:9092/orders`."""

from collections.abc import Mapping

from redrive.backends.kafka.address import parsed
from redrive.model.errors import MissingExtra

try:
    from redrive.backends.kafka.transport import KafkaTransport
except ImportError as error:
    raise MissingExtra("kafka: needs confluent-kafka; install it with: pip install 'redrive[kafka]'") from error

__all__ = ["KafkaTransport", "opened"]


def opened(location: str, settings: Mapping[str, str]) -> KafkaTransport:
    """`kafka:TOPIC[?timeout=30]` on the brokers of the settings, or `kafka://host[:port][,…]/TOPIC` on those that it names."""
    return KafkaTransport(parsed(location, settings))
