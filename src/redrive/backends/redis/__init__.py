"""Letters and queues on Redis: one server, or a cluster."""

from functools import partial

from redrive.backends.redis.address import parsed
from redrive.model.errors import MissingExtra
from redrive.ports.opening import Deskless

try:
    from redrive.backends.redis.examine import examine
    from redrive.backends.redis.letters import RedisLetters
    from redrive.backends.redis.queues import RedisQueues
except ImportError as error:
    raise MissingExtra("redis: needs redis-py; install it with: pip install 'redrive[redis]'") from error

__all__ = ["RedisLetters", "RedisQueues", "opened", "opened_tls"]


def opened(location: str) -> Deskless:
    """`redis://[user[:password]@]host[:port][/db][?prefix=…&durability=…&timeout=…]`."""
    return _opened(location, is_tls=False)


def opened_tls(location: str) -> Deskless:
    """`rediss://…`: the same over TLS, with `ca=` for a file of certificates to trust."""
    return _opened(location, is_tls=True)


def _opened(location: str, *, is_tls: bool) -> Deskless:
    address = parsed(location, is_tls=is_tls)
    letters = RedisLetters(address)
    return Deskless(letters=letters, examine=partial(examine, letters), bind=letters.bind, queues=RedisQueues(address))
