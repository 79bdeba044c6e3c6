"""Letters on OpenSearch: an index of a cluster."""

from functools import partial

from redrive.backends.opensearch.address import parsed
from redrive.model.errors import MissingExtra
from redrive.ports.opening import Deskless

try:
    from redrive.backends.opensearch.connections import own
    from redrive.backends.opensearch.examine import examine
    from redrive.backends.opensearch.letters import OpenSearchLetters
    from redrive.backends.opensearch.over import over
except ImportError as error:
    raise MissingExtra("opensearch: needs opensearch-py; install it with: pip install 'redrive[opensearch]'") from error

__all__ = ["OpenSearchLetters", "opened", "opened_tls", "over"]


def opened(location: str) -> Deskless:
    """`opensearch://[user:password@]host[:port][,host2…][/index][?timeout=…&shards=…&replicas=…]`."""
    return _opened(location, is_tls=False)


def opened_tls(location: str) -> Deskless:
    """`opensearchs://…`: the same over TLS, with `ca=` for a file of certificates to trust."""
    return _opened(location, is_tls=True)


def _opened(location: str, *, is_tls: bool) -> Deskless:
    address = parsed(location, is_tls=is_tls)
    letters = OpenSearchLetters(address, own(address))
    return Deskless(letters=letters, examine=partial(examine, letters), bind=letters.bind)
