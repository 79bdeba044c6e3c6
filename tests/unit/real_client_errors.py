"""Errors of the clients of databases and clouds, raised for real without an engine, and the category that each should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import botocore.config
import botocore.session
import psycopg
import pymongo
import redis
import sqlalchemy
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.unit.error_cases import Case, F, N, P, R, T, V, at
from tests.unit.places import Place


def once(port: int) -> redis.Redis:
    return redis.Redis(port=port, socket_timeout=0.05, retry=Retry(NoBackoff(), 0))


def by_aws(target: Callable[[Place], str], *, seconds: float = 30, **arguments: Any) -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        client = botocore.session.Session().create_client(
            "dynamodb",
            region_name="eu-west-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            endpoint_url=target(place),
            config=botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=seconds),
        )
        try:
            client.list_tables(**arguments)
        finally:
            client.close()

    return fail


def by_mongo(place: Place) -> None:
    with pymongo.MongoClient[dict[str, Any]]("127.0.0.1", place.refusing, serverSelectionTimeoutMS=50) as client:
        client.shop.orders.find_one()


def by_alchemy(place: Place) -> None:
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://x@127.0.0.1:{place.refusing}/x")
    with engine.connect():
        pass


def alchemy_on_sqlite(statement: str) -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        engine = sqlalchemy.create_engine("sqlite://")
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql("create table one (id integer primary key)")
                connection.exec_driver_sql("insert into one values (1)")
                connection.exec_driver_sql(statement)
        finally:
            engine.dispose()

    return fail


def alchemy_pool(place: Place) -> None:
    engine = sqlalchemy.create_engine(
        f"sqlite:///{place.folder}/pool.db", poolclass=sqlalchemy.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    try:
        with engine.connect(), engine.connect():
            pass
    finally:
        engine.dispose()


REAL = [
    *(
        Case(f"aws {status} {code}", category, by_aws(at(f"{status}/{code}")))
        for status, code, category in (
            (400, "ThrottlingException", T), (400, "ProvisionedThroughputExceededException", T),
            (400, "RequestLimitExceeded", T), (400, "AccessDeniedException", P), (400, "UnrecognizedClientException", P),
            (400, "ExpiredTokenException", P), (400, "ValidationException", V), (400, "ResourceNotFoundException", F),
            (400, "ConditionalCheckFailedException", F), (400, "LimitExceededException", R),
            (400, "TransactionConflictException", T), (500, "InternalServerError", T), (503, "NeverHeardOf", T),
            (400, "NeverHeardOf", V),
        )
    ),
    Case("aws refused", N, by_aws(lambda place: f"http://127.0.0.1:{place.refusing}")),
    Case("aws timeout", N, by_aws(lambda place: f"http://127.0.0.1:{place.silent}", seconds=0.2)),
    Case("aws parameters", V, by_aws(at("200"), Nonsense=1)),
    Case("aws endpoint", V, by_aws(lambda place: "nonsense")),
    Case("aws service", V, lambda place: botocore.session.Session().create_client("nonsense", region_name="eu-west-1")),
    Case("aws region", F, lambda place: botocore.session.Session().create_client("dynamodb")),
    Case("redis refused", N, lambda place: once(place.refusing).ping()),
    Case("redis timeout", N, lambda place: once(place.silent).ping()),
    Case("redis nonsense", N, lambda place: once(place.babbling).ping()),
    Case("mongo refused", N, by_mongo),
    Case("mongo url", V, lambda place: pymongo.MongoClient("mongodb://[")),
    Case("psycopg refused", N, lambda place: psycopg.connect(f"host=127.0.0.1 port={place.refusing} user=x")),
    Case("psycopg dsn", F, lambda place: psycopg.connect("nonsense")),
    Case("sqlalchemy refused", N, by_alchemy),
    Case("sqlalchemy url", V, lambda place: sqlalchemy.create_engine("nonsense")),
    Case("sqlalchemy unique", V, alchemy_on_sqlite("insert into one values (1)")),
    Case("sqlalchemy no such table", F, alchemy_on_sqlite("select * from connection")),
    Case("sqlalchemy pool", R, alchemy_pool),
]  # fmt: skip
