"""Errors of real libraries made by hand, because only an engine in trouble would raise them, and their categories."""

from __future__ import annotations

import errno
import smtplib
import ssl
import warnings
from typing import Any

import asyncpg
import botocore.exceptions
import grpc
import grpc.aio
import psycopg.errors
import pymongo.errors
import redis.exceptions
import requests
import sqlalchemy.exc
import urllib3.exceptions

from redrive import Category
from tests.unit.error_cases import F, N, P, R, T, V

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 had deprecated for a while.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors


def rpc(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="told")


class KafkaException(Exception):
    """As confluent-kafka has it: the code's name stands only in the text."""

    __module__ = "cimpl"


def confluent(code: str, text: str) -> KafkaException:
    return KafkaException(f'KafkaError{{code={code},val=-1,str="{text}"}}')


class Carries(Exception):
    """An error of somebody's own that carries what the libraries' errors carry."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("told")
        vars(self).update(attributes)


class ApiRefused(ValueError):
    status_code = 503


MADE: list[tuple[BaseException, Category]] = [
    (OSError(errno.ECONNABORTED, "x"), N), (OSError(errno.EHOSTUNREACH, "x"), N), (OSError(errno.ENETUNREACH, "x"), N),
    (OSError(errno.EDQUOT, "x"), R), (OSError(errno.ENOMEM, "x"), R), (OSError(errno.ENFILE, "x"), R),
    (OSError(errno.EROFS, "x"), P), (OSError(errno.EACCES, "x"), P), (OSError(errno.EBUSY, "x"), T), (OSError("x"), F),
    (InterruptedError(), T), (KeyboardInterrupt(), T),
    (ssl.SSLCertVerificationError(1, "certificate verify failed"), N),
    (smtplib.SMTPDataError(450, b"try again"), T), (smtplib.SMTPDataError(550, b"no such user"), F),
    (smtplib.SMTPAuthenticationError(535, b"no"), P), (smtplib.SMTPServerDisconnected("gone"), N),
    (smtplib.SMTPRecipientsRefused({}), V), (smtplib.SMTPSenderRefused(421, b"busy", "a"), T),
    *(
        (rpc(getattr(grpc.StatusCode, name)), category)
        for name, category in {
            "UNAVAILABLE": T, "ABORTED": T, "INTERNAL": T, "CANCELLED": T, "DEADLINE_EXCEEDED": N, "RESOURCE_EXHAUSTED": R,
            "PERMISSION_DENIED": P, "UNAUTHENTICATED": P, "INVALID_ARGUMENT": V, "OUT_OF_RANGE": V, "NOT_FOUND": F,
            "ALREADY_EXISTS": F, "FAILED_PRECONDITION": F, "UNIMPLEMENTED": F, "DATA_LOSS": F, "UNKNOWN": F,
        }.items()
    ),
    (grpc.RpcError("the socket was closed"), N), (grpc.FutureTimeoutError(), N),
    (redis.exceptions.BusyLoadingError("LOADING"), T), (redis.exceptions.ReadOnlyError("READONLY"), T),
    (redis.exceptions.TryAgainError("TRYAGAIN"), T), (redis.exceptions.ClusterDownError("CLUSTERDOWN"), T),
    (redis.exceptions.MasterDownError("MASTERDOWN"), T), (redis.exceptions.OutOfMemoryError("OOM"), R),
    (redis.exceptions.MaxConnectionsError("no"), R), (redis.exceptions.SlotNotCoveredError("no"), T),
    (redis.exceptions.ResponseError("BUSY Redis is busy running a script"), T),
    (redis.exceptions.ResponseError("MISCONF unable to persist to disk"), R),
    (redis.exceptions.ResponseError("ERR unknown command"), F), (redis.exceptions.ClusterCrossSlotError("CROSSSLOT"), V),
    (pymongo.errors.AutoReconnect("x"), N), (pymongo.errors.NetworkTimeout("x"), N), (pymongo.errors.NotPrimaryError("x"), T),
    (pymongo.errors.WaitQueueTimeoutError("x"), R), (pymongo.errors.DuplicateKeyError("x", 11000), V),
    (pymongo.errors.ExecutionTimeout("x", 50), T), (pymongo.errors.CursorNotFound("x", 43), T),
    (pymongo.errors.DocumentTooLarge("x"), V), (pymongo.errors.InvalidName("x"), V), (pymongo.errors.InvalidOperation("x"), F),
    (pymongo.errors.OperationFailure("x", 13), P), (pymongo.errors.OperationFailure("x", 18), P),
    (pymongo.errors.OperationFailure("x", 112), T), (pymongo.errors.OperationFailure("x", 121), V),
    (pymongo.errors.OperationFailure("x", 189), T), (pymongo.errors.OperationFailure("x", 14031), R),
    (pymongo.errors.OperationFailure("x", 59), F), (pymongo.errors.OperationFailure("x", 500), F),
    (pymongo.errors.WriteError("x", 9001), N), (pymongo.errors.PyMongoError("x"), F),
    (kafka.errors.KafkaTimeoutError(), N), (kafka.errors.KafkaConnectionError("x"), N), (kafka.errors.NodeNotReadyError("x"), N), (kafka.errors.RequestTimedOutError(), N),
    (kafka.errors.LeaderNotAvailableError(), T), (kafka.errors.NotLeaderForPartitionError(), T),
    (kafka.errors.RebalanceInProgressError(), T), (kafka.errors.NotEnoughReplicasError(), T),
    (kafka.errors.ThrottlingQuotaExceededError(), T), (kafka.errors.CommitFailedError("x"), T),
    (kafka.errors.FencedLeaderEpochError(), T), (kafka.errors.TopicAuthorizationFailedError(), P),
    (kafka.errors.SaslAuthenticationFailedError(), P), (kafka.errors.MessageSizeTooLargeError(), V),
    (kafka.errors.InvalidTopicError(), V), (kafka.errors.CorruptRecordError(), V), (kafka.errors.KafkaConfigurationError("x"), V),
    (kafka.errors.OffsetOutOfRangeError(), F), (kafka.errors.ProducerFencedError(), F),
    (confluent("_TRANSPORT", "Local: Broker transport failure"), N), (confluent("_ALL_BROKERS_DOWN", "down"), N),
    (confluent("TOPIC_AUTHORIZATION_FAILED", "x"), P), (confluent("MSG_SIZE_TOO_LARGE", "x"), V),
    (confluent("_QUEUE_FULL", "Local: Queue full"), R), (confluent("REBALANCE_IN_PROGRESS", "x"), T), (confluent("_FATAL", "x"), F),
    (asyncpg.DeadlockDetectedError("x"), T), (asyncpg.SerializationError("x"), T), (asyncpg.CannotConnectNowError("x"), T),
    (asyncpg.AdminShutdownError("x"), T), (asyncpg.TooManyConnectionsError("x"), R), (asyncpg.DiskFullError("x"), R),
    (asyncpg.OutOfMemoryError("x"), R), (asyncpg.ConnectionDoesNotExistError("x"), N), (asyncpg.ConnectionFailureError("x"), N),
    (asyncpg.InvalidPasswordError("x"), P), (asyncpg.InvalidAuthorizationSpecificationError("x"), P),
    (asyncpg.InterfaceError("connection is closed"), N), (asyncpg.ClientConfigurationError("x"), V),
    (asyncpg.CheckViolationError("x"), V), (asyncpg.RaiseError("no stock"), F), (asyncpg.DataCorruptedError("x"), F),
    (psycopg.errors.DeadlockDetected("x"), T), (psycopg.errors.AdminShutdown("x"), T), (psycopg.errors.DiskFull("x"), R),
    (psycopg.errors.TooManyConnections("x"), R), (psycopg.errors.InvalidPassword("x"), P), (psycopg.errors.ForeignKeyViolation("x"), V),
    (psycopg.errors.ConnectionTimeout("x"), N), (psycopg.errors.UndefinedColumn("x"), F), (psycopg.errors.IoError("x"), R),
    (psycopg.OperationalError('connection failed: FATAL:  password authentication failed for user "x"'), P),
    (psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already"), R),
    (psycopg.OperationalError("connection failed: FATAL:  the database system is starting up"), T),
    (psycopg.OperationalError("the connection is lost"), N), (psycopg.InterfaceError("the cursor is closed"), F),
    (sqlalchemy.exc.OperationalError("select 1", {}, psycopg.errors.SerializationFailure("x")), T),
    (sqlalchemy.exc.ProgrammingError("select 1", {}, psycopg.errors.InsufficientPrivilege("x")), P),
    (sqlalchemy.exc.ProgrammingError("select connection", {}, psycopg.errors.UndefinedTable("x")), F),
    (sqlalchemy.exc.DBAPIError("select 1", {}, ConnectionResetError()), N), (sqlalchemy.exc.NoResultFound("x"), F),
    (botocore.exceptions.NoCredentialsError(), P), (botocore.exceptions.SSLError(endpoint_url="x", error="y"), N),
    (botocore.exceptions.ClientError({"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "PutObject"), T),
    (botocore.exceptions.ClientError({"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "GetObject"), F),
    (botocore.exceptions.ClientError({"ResponseMetadata": {"HTTPStatusCode": 403}}, "HeadObject"), P),
    (botocore.exceptions.ClientError({}, "HeadObject"), F),
    (requests.exceptions.ProxyError("x"), N), (requests.exceptions.RetryError("x"), T), (requests.exceptions.RequestException(), N),
    (urllib3.exceptions.ReadTimeoutError(None, "x", "y"), N), (urllib3.exceptions.EmptyPoolError(None, "x"), R),  # type: ignore[arg-type]  # no pool is needed to tell
    (Carries(status=503), T), (Carries(status_code=422), V), (Carries(http_status=429), T), (Carries(code=404), F), (Carries(code=7), F),
    (Carries(status=True), F), (Carries(status="503"), F), (Carries(response=Carries(status_code=507)), R), (Carries(pgcode="40P01"), T),
    (Carries(resp=Carries(status=401)), P), (Carries(code="ThrottlingException", status_code=400), T), (Carries(sqlstate="08006"), N),
    (Carries(grpc_status_code=grpc.StatusCode.ABORTED), T), (Carries(orig=TimeoutError()), N), (ApiRefused("x"), T),
]  # fmt: skip
