"""What is asked: values and words that the letters of this store have."""

from __future__ import annotations

from collections import Counter

from bench.million.grounds import PAGE
from redrive.model.query import And, Field, Is, Order, Query, last_name
from redrive.model.texts import body_words, message_words
from redrive.ports.letters import LetterStore

NAMESPACE = "default"


async def common(store: LetterStore, field: Field) -> list[str]:
    """The two values that most letters have."""
    tally = await store.tally(field)
    return sorted(tally, key=lambda value: (-tally[value], value))[:2]


async def four_fields(store: LetterStore) -> tuple[list[str], Query]:
    """Common values of namespace, status, source and error, and the question that asks for them."""
    query: Query = Is(Field.NAMESPACE, NAMESPACE)
    values = [NAMESPACE]
    for field in (Field.STATUS, Field.SOURCE, Field.ERROR):
        tally = await store.tally(field, query)
        best = max(tally, key=lambda value: (tally[value], value))
        values.append(last_name(best) if field is Field.ERROR else best)
        query = And((*(query.parts if isinstance(query, And) else (query,)), Is(field, values[-1])))
    return values, query


async def words_of_messages(store: LetterStore, query: Query) -> tuple[str, str]:
    """A word that many letters have, and one that few have; those of this question among them."""
    newest = (await store.find(limit=1000)).letters
    found = Counter(word for letter in newest for word in set(message_words(letter).split()))
    matching = [set(message_words(letter).split()) for letter in (await store.find(query, limit=PAGE)).letters]
    shared = Counter(word for words in matching for word in words)
    several = [word for word in shared if shared[word] * 10 >= len(matching) and len(word) > 3 and not word.isdigit()]
    # One that not all of them have, if there is one: else it would say nothing that the question does not say already.
    many = max(several, key=lambda word: (shared[word] < 0.95 * len(matching), found[word], word))
    # A number, as most words are that few messages have.
    few = max(matching[-1], key=lambda word: (word.isdigit(), -found[word]))
    return many, few


async def words_of_bodies(store: LetterStore) -> tuple[str, str]:
    """A word that many bodies have, and one that few have."""
    # The oldest are indexed first.
    page = await store.find(order=Order.OLDEST, limit=300)
    found = Counter(word for letter in page.letters for word in set(body_words(letter).split()) if word.isalpha())
    many = max((word for word in found if found[word] <= 0.6 * len(page.letters)), key=found.__getitem__)
    few = max(found, key=lambda word: (-found[word], len(word), word))
    return many, few
