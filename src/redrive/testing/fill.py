"""Made-up letters by the million, as real ones are: few failures make most of them, most words are rare, some hours are bad.

```python
from redrive.testing.fill import fill, letters

for letter in letters(10, groups=5, seed=7):
    print(letter.source, letter.failure.message)
```

A letter follows from the seed and its number (and from how many there are, of which groups, in which days), so that any two
machines make the same million, and two fillings of one store make one. They come in the order of their time, as real ones do.
"""

from __future__ import annotations

import math
import random
import struct
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import accumulate, islice
from statistics import NormalDist

from msgspec import Struct

from redrive.model.category import Category
from redrive.model.errors import BadSettings
from redrive.model.fingerprint import VERSION, Trace, fingerprint_of
from redrive.model.ids import uuid_of
from redrive.model.letter import Attempt, Failure, Letter, Origin, RetryPlan, letter_id
from redrive.model.status import Status
from redrive.ports.letters import LetterStore

BATCH = 500
END = datetime(2026, 1, 1, tzinfo=UTC)
"""Before this the letters died, unless another end is given."""

_SMALLEST, _MEDIAN, _LARGEST = 200, 1300, 20_000
"""Bytes of a body: log-normal, cut off at both ends."""
_SPREAD = 0.9
_ZIPF = 1.07
_SENTENCES = 20_000
_COMMON_WORDS = 4_000
_RARE_WORDS = 200_000
"""Words that one letter each has: in a million letters each of them is in about five."""
_OUTAGE = 0.08
"""The part of all letters that outages are to blame for."""
_SLOTS = 1 << 14
"""Parts of the whole time; how busy each is, differs."""
_NEVER = "never"
_VERSION = 4 << 76 | 2 << 62
_FREE = ~(0xF << 76 | 3 << 62)


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_AREAS = _listed("orders payments invoices shipping stock mails search users pricing fraud refunds catalog carts coupons reviews loyalty ledger tax audit imports")  # fmt: skip
_SOURCES = tuple(f"{area}{kind}" for kind in ("", "-events") for area in _AREAS)
_TAGS = ((), ("eu",), ("us",), ("eu", "vip"), ("us", "batch"), ("canary",), ("eu", "night"), ("apac",))
_VERBS = _listed("handle load store send charge reserve confirm render parse validate publish settle fetch update merge")
_FIRST = _listed("Ada Alan Amir Anna Ben Carla Chen Dana David Elena Emil Fatima Felix Grace Hana Hugo Ines Ivan Jana Jin Joana Karim Kofi Lena Leo Lucia Marco Maria Mei Mila Nadia Noah Olga Omar Paula Pedro Priya Ravi Rosa Sara Sven Tariq Theo Uma Vera Wei Yara Yusuf Zoe Zora")  # fmt: skip
_LAST = _listed("Adler Baker Becker Brandt Castro Cohen Costa Diaz Fischer Fontana Garcia Gruber Haddad Hansen Huber Ito Jansen Kaya Keller Khan Kim Kovac Lang Lopez Mann Meyer Moreau Nagy Nakamura Novak Okafor Olsen Patel Petrov Popescu Rossi Russo Sato Schmidt Silva Singh Smith Tanaka Torres Vogel Wagner Weber Wolf Yilmaz Zhang")  # fmt: skip
_SYLLABLES = _listed("ba be bi bo da de do fa fe ga go ha he ja ka ke ki la le li lo ma me mi mo na ne no pa pe po ra re ri ro sa se so ta te ti to va ve za zo")  # fmt: skip
_PLAIN = _listed("the order was not found after a customer changed address and payment failed because of an unknown error in this service please try again later with another card we have sent it to your warehouse but nobody answered there until today for more than two days")  # fmt: skip
_ERRORS: tuple[tuple[Category, Mapping[str, str]], ...] = (
    (Category.TRANSIENT, {
        "builtins.TimeoutError": "{place} did not answer within {number} ms",
        "httpx.ReadTimeout": "no answer from {place} after {number} ms",
        "asyncio.exceptions.IncompleteReadError": "{place} ended its answer after {number} bytes",
        "redis.exceptions.BusyLoadingError": "{place} is loading its data: {number} keys to go",
        "sqlalchemy.exc.OperationalError": "database is locked: statement {number} on {place}",
        "psycopg.errors.DeadlockDetected": "deadlock detected: process {number} waits for a row of {place}",
        "kafka.errors.RequestTimedOutError": "request {number} to the topic {place} timed out",
        "grpc.aio.AioRpcError": "{place} is unavailable: deadline of call {number} exceeded",
        "shop.errors.TryAgain": "{place} asks to send order {number} again later",
        "shop.errors.Overloaded": "{place} is overloaded: {number} calls wait",
    }),
    (Category.NETWORK, {
        "builtins.ConnectionError": "lost the connection to {place}.internal:{number}",
        "builtins.ConnectionRefusedError": "cannot connect to {place}.internal:{number}: connection refused",
        "builtins.ConnectionResetError": "connection reset by {place}.internal:{number}",
        "httpx.ConnectTimeout": "connecting to {place}.internal:{number} timed out",
        "httpx.ConnectError": "all attempts to connect to {place}.internal:{number} failed",
        "requests.exceptions.ConnectionError": "no connection to {place}.internal:{number} after all retries",
        "aiohttp.client_exceptions.ClientConnectorError": "cannot connect to host {place}.internal:{number}",
        "socket.gaierror": "{place}-{number}.internal: name or service not known",
        "urllib3.exceptions.NewConnectionError": "failed to establish a new connection to {place}.internal:{number}",
        "ssl.SSLError": "handshake with {place}.internal:{number} failed: certificate has expired",
    }),
    (Category.RESOURCE, {
        "builtins.MemoryError": "out of memory: {number} kB for {place}",
        "builtins.OSError": "no space left on device: /srv/{place}/{number}.spool",
        "shop.errors.QuotaExceeded": "{place} has used up its quota of {number} calls",
        "botocore.exceptions.ClientError": "slow down: {place} sent {number} requests in one minute",
        "openai.RateLimitError": "rate limit reached for {place}: {number} tokens in one minute",
        "stripe.RateLimitError": "too many requests for {place}: {number} in one minute",
        "redis.exceptions.OutOfMemoryError": "{place} may not use more memory than {number} kB",
        "psycopg.errors.DiskFull": "could not extend {place} by {number} blocks: disk full",
        "shop.errors.TooManyRequests": "too many requests to {place}: {number} in one minute",
        "asyncpg.exceptions.TooManyConnectionsError": "too many clients: {place} has {number} already",
    }),
    (Category.PERMISSION, {
        "builtins.PermissionError": "permission denied: /srv/{place}/{number}.csv",
        "shop.errors.Forbidden": "{place} refused us: user {number} may not do this",
        "httpx.HTTPStatusError": "403 Forbidden for https://{place}.internal/users/{number}",
        "jwt.exceptions.ExpiredSignatureError": "the token of user {number} for {place} has expired",
        "botocore.exceptions.NoCredentialsError": "no credentials for bucket {place}-{number}",
        "psycopg.errors.InsufficientPrivilege": "permission denied for table {place}, asked by user {number}",
        "stripe.AuthenticationError": "the key that {place} sent for user {number} is not valid",
        "kafka.errors.TopicAuthorizationFailedError": "user {number} is not authorized to write to the topic {place}",
        "shop.errors.NotAllowed": "user {number} is not allowed to change {place}",
        "ldap.INVALID_CREDENTIALS": "invalid credentials of user {number} for {place}",
    }),
    (Category.VALIDATION, {
        "builtins.ValueError": "order {number} has no valid {place} address",
        "builtins.KeyError": "'{place}' of order {number}",
        "builtins.TypeError": "order {number}: {place} must be a number, not None",
        "builtins.UnicodeDecodeError": "'utf-8' codec can't decode order {number} of {place}",
        "json.decoder.JSONDecodeError": "expecting value: order {number} of {place}",
        "pydantic.ValidationError": "1 validation error for order {number}: {place} is required",
        "msgspec.ValidationError": "order {number} lacks the field {place}",
        "shop.errors.BadAddress": "order {number} has no street in its {place} address",
        "shop.errors.UnknownCurrency": "order {number} is in a currency that {place} does not know",
        "decimal.InvalidOperation": "the total of order {number} is no number for {place}",
    }),
    (Category.PERMANENT, {
        "builtins.AttributeError": "order {number}: 'NoneType' object has no attribute '{place}'",
        "builtins.RuntimeError": "order {number} was changed by {place} meanwhile",
        "builtins.ZeroDivisionError": "division by zero: order {number} has no {place}",
        "builtins.IndexError": "order {number} has no first item for {place}",
        "builtins.AssertionError": "order {number} is in state {place}, which cannot be",
        "builtins.NotImplementedError": "{place} cannot take order {number}: not implemented yet",
        "sqlalchemy.exc.IntegrityError": "duplicate key: order {number} is among {place} already",
        "shop.errors.OrderGone": "order {number} does not exist in {place}",
        "shop.errors.DuplicateInvoice": "order {number} has an invoice from {place} already",
        "shop.errors.Inconsistent": "order {number} does not agree with {place}",
    }),
)  # fmt: skip
"""What fails, and what it says then."""
_STATUSES = (
    (0.44, Status.EXHAUSTED), (0.30, Status.PENDING), (0.12, Status.COMPLETED), (0.08, Status.ARCHIVED), (0.04, Status.DISCARDED),
    (0.02, Status.QUARANTINED),
)  # fmt: skip
_HOURS = (2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 13, 11, 12, 13, 13, 12, 11, 10, 10, 9, 7, 5, 3)
"""How busy the hours of a day are."""


class _Group(Struct, frozen=True, gc=False):
    """A failure that happens again and again."""

    source: str
    message: str
    failure: Failure
    """But for the message, which differs a little each time."""
    policy: str
    max_retries: int
    kind: str


def letters(
    count: int,
    *,
    groups: int = 10_000,
    seed: int = 7,
    days: float = 30,
    end: datetime = END,
    namespace: str = "default",
    start: int = 0,
    of: int | None = None,
) -> Iterator[Letter]:
    """So many letters, made as they are taken, from the number `start` on, in the order in which they died.

    The first `of` of them (without: all that are made) died in so many days before `end`; those beyond go on from there.
    """
    if count < 0 or groups < 1 or days <= 0:
        raise BadSettings(f"letters are made by count (not {count}), from 1 group (not {groups}) and over some days (not {days})")
    maker = _Maker(of or start + count, groups=groups, seed=seed, days=days, end=end, namespace=namespace)
    made = maker.made
    return (made(number) for number in range(start, start + count))


async def fill(
    store: LetterStore, made: Iterator[Letter], *, batch: int = BATCH, progress: Callable[[int], None] | None = None
) -> int:
    """Put letters into a store, some at a time; how many were put. `progress` hears it after each batch."""
    done = 0
    while some := list(islice(made, batch)):
        await store.put(some)
        done += len(some)
        if progress is not None:
            progress(done)
    return done


class _Maker:
    """Everything that letters have in common, made once; then a letter is put together from pieces."""

    def __init__(self, of: int, *, groups: int, seed: int, days: float, end: datetime, namespace: str) -> None:
        self._of = max(of, 1)
        self._seed = str(seed).encode()[:64]
        dice = random.Random(seed)
        self._prefix = f"{seed}-"
        self._namespace = namespace
        self._end = end
        self._groups = [_group(dice, number) for number in range(groups)]
        self._shares = list(accumulate((number + 1) ** -_ZIPF for number in range(groups)))
        self._words = _vocabulary(dice)
        self._text, self._breaks = _sentences(dice, self._words)
        self._sizes = _sizes()
        self._statuses = [status for share, status in _STATUSES for _ in range(round(share * 256))][:256]
        self._statuses += [Status.EXHAUSTED] * (256 - len(self._statuses))
        self._span = timedelta(days=days)
        self._times = _Times(dice, days, outages=[dice.randrange(min(groups, 40)) for _ in range(2)])

    def made(self, number: int) -> Letter:
        """The letter with this number."""
        dice = blake2b(number.to_bytes(8, "big"), key=self._seed, digest_size=64).digest()
        a, b, c, d, e, f, g, h, i, j = struct.unpack_from("<10I", dice)
        when, outage = self._times.at((number + c / 2**32) / self._of, a / 2**32)
        picked = bisect(self._shares, d / 2**32 * self._shares[-1]) if outage is None else outage + (b & 1)
        group = self._groups[min(picked, len(self._groups) - 1)]
        died = self._end - self._span + when * self._span
        status = self._statuses[e & 255]
        told = group.message.replace("{number}", str(f % 90_000 + 10_000))
        known = group.failure
        failure = Failure(
            type=known.type,
            message=told,
            category=known.category,
            traceback=f"{known.traceback}{known.type}: {told}\n",
            fingerprint=known.fingerprint,
            fingerprint_version=VERSION,
            fingerprint_reason=known.fingerprint_reason,
        )
        tries = e >> 8 & 3 or 1
        pause = timedelta(seconds=1 + (e >> 10 & 255))
        took = timedelta(microseconds=1000 + (e >> 18) * 100)
        bits = int.from_bytes(dice[40:56], "big")
        history = tuple(
            Attempt(
                at=died - pause * (tries - 1 - nth),
                occurrence=uuid_of((bits + nth) & _FREE | _VERSION),
                error=known.type,
                message=told,
                took=took,
            )
            for nth in range(tries)
        )
        source_id = f"{self._prefix}{number}"
        return Letter(
            id=letter_id(self._namespace, group.source, source_id),
            namespace=self._namespace,
            source=group.source,
            source_id=source_id,
            failure=failure,
            first_received_at=died - pause * (tries - 1) - took,
            dead_lettered_at=died,
            updated_at=died,
            body=self._body(number, g, h, i, j),
            content_type="application/json",
            headers=((("traceparent", b"00-" + dice[40:56].hex().encode() + b"-00f067aa0ba902b7-01"),) if g & 1 else ()),
            key=b"customer-%d" % (h % 50_000),
            kind=group.kind,
            origin=Origin(topic=group.source, partition=i & 15, offset=number),
            history=history,
            retry=self._plan(group, status, died, pause),
            status=status,
            priority=(0, 0, 0, 0, 0, 0, 1, 5)[j & 7],
            tags=_TAGS[j >> 3 & 7],
            metadata={"region": ("eu-west-1", "us-east-1")[j >> 6 & 1], "build": j >> 7 & 63},
        )

    def _body(self, number: int, g: int, h: int, i: int, j: int) -> bytes:
        """A JSON document: some fields, and as many sentences as it takes to reach its size."""
        rare = _word(h % _RARE_WORDS)
        name = f"{_FIRST[(h >> 4) % len(_FIRST)]} {_LAST[(g >> 8) % len(_LAST)]}"
        head = (
            f'{{"id":{number},"customer":"{name}","channel":"{"web" if g & 2 else "app"}","code":"{rare}",'
            f'"total":{i % 100_000 / 100},"items":{j % 7 + 1},"note":"'
        ).encode()
        wanted = self._sizes[g >> 20] - len(head) - 2
        first = i % _SENTENCES
        begin = self._breaks[first]
        # The nearest end of a sentence behind what is wanted.
        last = bisect(self._breaks, begin + max(wanted, 20), first)
        return b'%b%b"}' % (head, self._text[begin : self._breaks[last] - 1])

    def _plan(self, group: _Group, status: Status, died: datetime, pause: timedelta) -> RetryPlan:
        if group.policy == _NEVER:
            return RetryPlan()
        is_waiting = status is Status.PENDING
        return RetryPlan(
            policy=group.policy,
            retry_count=0 if is_waiting else group.max_retries,
            max_retries=group.max_retries,
            next_retry_at=self._end + pause * 60 if is_waiting else None,
        )


def _group(dice: random.Random, number: int) -> _Group:
    category, messages = _ERRORS[dice.randrange(len(_ERRORS))]
    type, message = list(messages.items())[dice.randrange(len(messages))]
    source = _SOURCES[min(int(dice.expovariate(0.12)), len(_SOURCES) - 1)]
    verb, module = dice.choice(_VERBS), dice.choice(_AREAS)
    places = tuple(f"shop.{module}:{dice.choice(_VERBS)}_{dice.choice(_AREAS)}" for _ in range(dice.randint(5, 20)))
    mark = fingerprint_of(Trace(type=type, places=(*places, f"case {number}"), where=f"shop.{module}:{verb}"))
    retry = category.default_retry
    return _Group(
        source=source,
        message=message.replace("{place}", dice.choice(_AREAS)),
        failure=Failure(
            type=type,
            category=category,
            traceback=_traceback(dice, places),
            fingerprint=mark.digest,
            fingerprint_reason=mark.reason,
        ),
        policy=retry.policy,
        max_retries=retry.max_retries,
        kind=f"{source.removesuffix('-events')}.{verb}",
    )


def _traceback(dice: random.Random, places: Sequence[str]) -> str:
    lines = ["Traceback (most recent call last):\n"]
    for place in places:
        module, _, function = place.partition(":")
        path = module.replace(".", "/")
        lines.append(
            f'  File "/srv/{path}.py", line {dice.randint(10, 900)}, in {function}\n    return await self.{function}(order)\n'
        )
    return "".join(lines)


def _word(number: int) -> str:
    """A word that no other number has."""
    size, word = len(_SYLLABLES), ""
    for _ in range(4):
        number, part = divmod(number, size)
        word += _SYLLABLES[part]
    return word


def _vocabulary(dice: random.Random) -> list[str]:
    """Words by how common they are: plain ones first."""
    rest = [_word(dice.randrange(len(_SYLLABLES) ** 4)) for _ in range(_COMMON_WORDS - len(_PLAIN))]
    return [*dict.fromkeys(_PLAIN), *rest]


def _sentences(dice: random.Random, words: Sequence[str]) -> tuple[bytes, list[int]]:
    """A long text, and where its sentences begin; it is long enough behind the last one for the largest body."""
    shares = list(accumulate((number + 3) ** -1.0 for number in range(len(words))))
    drawn = iter(dice.choices(words, cum_weights=shares, k=_SENTENCES * 15))
    sentences = [" ".join(islice(drawn, dice.randint(6, 14))).capitalize() + ". " for _ in range(_SENTENCES)]
    sentences += sentences[: 1 + 2 * _LARGEST // 40]
    breaks = [0, *accumulate(map(len, sentences))]
    return "".join(sentences).encode(), breaks


def _sizes() -> list[int]:
    """Sizes of bodies, by how often they come: as many of each as there are."""
    normal = NormalDist(math.log(_MEDIAN), _SPREAD)
    return [min(_LARGEST, max(_SMALLEST, int(math.exp(normal.inv_cdf((step + 0.5) / 4096))))) for step in range(4096)]


class _Times:
    """When letters die: by the hours of people, and in outages, each of which has a failure of its own."""

    def __init__(self, dice: random.Random, days: float, outages: Sequence[int]) -> None:
        hours = days * 24 / _SLOTS
        usual = [_HOURS[int(slot * hours) % 24] * dice.uniform(0.7, 1.3) for slot in range(_SLOTS)]
        length = max(1, round(_SLOTS * min(3 / (days * 24), 0.05)))
        self._outages: dict[int, int] = {}
        for failure in outages:
            first = int(dice.uniform(0.1, 0.9) * _SLOTS)
            self._outages |= dict.fromkeys(range(first, min(first + length, _SLOTS)), failure)
        worse = sum(usual) * _OUTAGE / (1 - _OUTAGE) / len(self._outages)
        """What an outage adds to a slot."""
        self._ends = list(accumulate(weight + worse * (slot in self._outages) for slot, weight in enumerate(usual)))
        self._worse = worse

    def at(self, part: float, luck: float) -> tuple[float, int | None]:
        """When, as a part of the whole time, a letter dies before which this part of all letters did; and of which outage."""
        if part >= 1:
            return part, None
        place = part * self._ends[-1]
        slot = min(bisect(self._ends, place), _SLOTS - 1)
        start = self._ends[slot - 1] if slot else 0.0
        weight = self._ends[slot] - start
        is_outage = slot in self._outages and luck < self._worse / weight
        return (slot + (place - start) / weight) / _SLOTS, self._outages[slot] if is_outage else None
