"""What the numbers and codes that an error carries tell: HTTP, gRPC, the operating system, SQLSTATE, AWS, MongoDB, Kafka …"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping

from redrive.model.category import Category

_T, _N, _R = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
_P, _V, _F = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT


def _by_name(table: Mapping[Category, str]) -> dict[str, Category]:
    return {name: category for category, names in table.items() for name in names.split()}


HTTP: Mapping[int, Category] = {
    int(status): category
    for status, category in _by_name(
        {
            _T: "409 420 423 425 429 500 503 520 529",
            _N: "408 499 502 504 521 522 523 524 525 526 530 598 599",
            _R: "507 509",
            _P: "401 402 403 407 440 451 498 511",
            _V: "400 411 413 414 415 416 417 422 428 431",
            _F: "501 505 506 508 510",
        }
    ).items()
}


def by_http(status: int) -> Category | None:
    """What an HTTP status tells; one that is not listed: of the server transient, of the client permanent, else nothing."""
    if (listed := HTTP.get(status)) is not None:
        return listed
    if 500 <= status <= 599:
        return _T
    return _F if 400 <= status <= 499 else None


GRPC: Mapping[str, Category] = _by_name(
    {
        _T: "UNAVAILABLE ABORTED INTERNAL CANCELLED",
        _N: "DEADLINE_EXCEEDED",
        _R: "RESOURCE_EXHAUSTED",
        _P: "PERMISSION_DENIED UNAUTHENTICATED",
        _V: "INVALID_ARGUMENT OUT_OF_RANGE",
        _F: "NOT_FOUND ALREADY_EXISTS FAILED_PRECONDITION UNIMPLEMENTED DATA_LOSS",
    }
)

ERRNO: Mapping[int, Category] = {
    number: category
    for name, category in _by_name(
        {
            _T: "EAGAIN EWOULDBLOCK EINTR EBUSY ETXTBSY EDEADLK ENOLCK EALREADY EINPROGRESS EADDRINUSE ESTALE",
            _N: "ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ESHUTDOWN ENETUNREACH ENETDOWN ENETRESET EHOSTUNREACH EHOSTDOWN "
            "ETIMEDOUT ENOTCONN EADDRNOTAVAIL EPROTO ECOMM ENOLINK",
            _R: "ENOSPC EDQUOT EMFILE ENFILE ENOMEM ENOBUFS EFBIG EUSERS",
            _P: "EACCES EPERM EROFS EKEYREJECTED EKEYEXPIRED",
            _V: "EINVAL ENAMETOOLONG EILSEQ EMSGSIZE EDOM ERANGE EBADMSG E2BIG EDESTADDRREQ",
        }
    ).items()
    # Not every system has every name.
    if (number := getattr(errno, name, None)) is not None
}

_SQLSTATE = re.compile(r"[0-9A-Z]{5}")

_SQL: Mapping[str, Category] = _by_name(
    {
        # Two characters stand for a whole class, five for one state.
        _T: "40 57 25006 25P03 25P04 55006 55P03 72000",
        _N: "08 57014 HV00N",
        _R: "53 58030",
        _P: "0L 0P 28 42501",
        _V: "21 22 23 27 44 54 P0004",
        _F: "0A 24 25 26 2D 34 3B 3D 3F 42 55 57P04 58 F0 P0 XX",
    }
)

_AWS: Mapping[str, Category] = _by_name(
    {
        _T: "BandwidthLimitExceeded ConflictException EC2ThrottledException InternalError InternalFailure InternalServerError "
        "InternalServerException KMSThrottlingException OperationAborted PriorRequestNotComplete "
        "ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled RequestThrottledException "
        "ServiceException ServiceUnavailable ServiceUnavailableException SlowDown Throttling ThrottledException "
        "ThrottlingException TooManyRequestsException TransactionConflictException TransactionInProgressException",
        _N: "RequestTimeout RequestTimeoutException",
        _R: "InsufficientCapacity InsufficientInstanceCapacity LimitExceeded LimitExceededException QuotaExceeded "
        "ServiceQuotaExceeded ServiceQuotaExceededException OverLimit KMS.LimitExceededException",
        _P: "AccessDenied AccessDeniedException AuthFailure AuthorizationError ExpiredToken ExpiredTokenException "
        "IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException KMSAccessDeniedException "
        "KMS.AccessDeniedException MissingAuthenticationToken NotAuthorized NotAuthorizedException OptInRequired "
        "RequestTimeTooSkewed SignatureDoesNotMatch UnauthorizedOperation UnrecognizedClientException",
        _V: "BatchRequestTooLong EntityTooLarge IdempotentParameterMismatch InvalidAddress InvalidAttributeValue InvalidInput "
        "InvalidMessageContents InvalidParameter InvalidParameterCombination InvalidParameterException "
        "InvalidParameterValue InvalidParameterValueException InvalidRequest InvalidRequestException "
        "ItemCollectionSizeLimitExceededException MalformedQueryString MalformedXML MessageTooLong MissingParameter "
        "ParamValidationError SerializationException ValidationError ValidationException",
        _F: "AWS.SimpleQueueService.NonExistentQueue BucketAlreadyExists BucketAlreadyOwnedByYou "
        "ConditionalCheckFailedException EntityAlreadyExists InvalidAction NoSuchBucket NoSuchEntity NoSuchKey NoSuchUpload "
        "NotFound NotFoundException PreconditionFailed QueueDoesNotExist ResourceInUseException ResourceNotFoundException",
    }
)

_API: Mapping[str, Category] = _by_name(
    {
        _T: "rate_limit_exceeded server_error overloaded_error engine_overloaded",
        _R: "insufficient_quota billing_hard_limit_reached",
        _P: "invalid_api_key account_deactivated unsupported_country_region_territory missing_scope",
        _V: "context_length_exceeded content_policy_violation content_filter invalid_request_error string_above_max_length "
        "invalid_type invalid_value missing_required_parameter unsupported_value unsupported_parameter",
        _F: "model_not_found",
    }
)

_SQLITE: Mapping[str, Category] = _by_name(
    {
        _T: "SQLITE_BUSY SQLITE_LOCKED SQLITE_INTERRUPT SQLITE_PROTOCOL SQLITE_SCHEMA SQLITE_ABORT",
        _R: "SQLITE_FULL SQLITE_NOMEM SQLITE_IOERR",
        _P: "SQLITE_READONLY SQLITE_PERM SQLITE_AUTH",
        _V: "SQLITE_CONSTRAINT SQLITE_MISMATCH SQLITE_RANGE SQLITE_TOOBIG",
        _F: "SQLITE_ERROR SQLITE_CORRUPT SQLITE_NOTADB SQLITE_CANTOPEN SQLITE_MISUSE SQLITE_INTERNAL SQLITE_NOTFOUND",
    }
)

_MONGO: Mapping[str, Category] = _by_name(
    {
        _T: "24 43 46 50 64 91 112 117 189 234 251 262 10107 11600 11602 13435 13436",
        _N: "6 7 89 9001",
        _R: "146 14031 292 12501",
        _P: "11 13 18 8000",
        _V: "2 4 9 14 17 40 66 121 10334 11000 11001",
        _F: "20 26 27 59 67 73 85 86 115 263",
    }
)

_KAFKA: Mapping[str, Category] = _by_name(
    {
        _T: "BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE "
        "ILLEGAL_GENERATION KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NOT_CONTROLLER NOT_COORDINATOR NOT_ENOUGH_REPLICAS "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE "
        "REBALANCE_IN_PROGRESS REPLICA_NOT_AVAILABLE THROTTLING_QUOTA_EXCEEDED TRANSACTION_ABORTABLE UNKNOWN_MEMBER_ID "
        "UNKNOWN_TOPIC_OR_PART UNSTABLE_OFFSET_COMMIT _ASSIGNMENT_LOST _INTR _ISR_INSUFF _RETRY _WAIT_CACHE _WAIT_COORD",
        _N: "NETWORK_EXCEPTION REQUEST_TIMED_OUT _ALL_BROKERS_DOWN _DESTROY_BROKER _MSG_TIMED_OUT _RESOLVE _SSL _TIMED_OUT "
        "_TIMED_OUT_QUEUE _TRANSPORT",
        _R: "GROUP_MAX_SIZE_REACHED _CRIT_SYS_RESOURCE _QUEUE_FULL",
        _P: "CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED "
        "GROUP_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED SECURITY_DISABLED TOPIC_AUTHORIZATION_FAILED "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNACCEPTABLE_CREDENTIAL UNSUPPORTED_SASL_MECHANISM _AUTHENTICATION",
        _V: "INVALID_CONFIG INVALID_MSG INVALID_MSG_SIZE INVALID_RECORD INVALID_REQUEST INVALID_TIMESTAMP MSG_SIZE_TOO_LARGE "
        "OFFSET_METADATA_TOO_LARGE POLICY_VIOLATION RECORD_LIST_TOO_LARGE TOPIC_EXCEPTION UNSUPPORTED_COMPRESSION_TYPE "
        "_BAD_COMPRESSION _BAD_MSG _INVALID_ARG _KEY_DESERIALIZATION _KEY_SERIALIZATION _VALUE_DESERIALIZATION "
        "_VALUE_SERIALIZATION",
        _F: "OFFSET_OUT_OF_RANGE PRODUCER_FENCED TOPIC_ALREADY_EXISTS UNSUPPORTED_VERSION _FATAL _FENCED _NOT_IMPLEMENTED "
        "_UNKNOWN_PARTITION _UNKNOWN_TOPIC _UNSUPPORTED_FEATURE",
    }
)

_NAMED: Mapping[str, Category] = {**_AWS, **_API, **_SQLITE, **_KAFKA}
"""Codes that are words: no two libraries use the same one for different things."""


def by_code(code: str, error_type: str) -> Category | None:
    """What a library's own code tells; bare numbers mean something only together with the library they come from."""
    if (named := _NAMED.get(code)) is not None:
        return named
    if error_type.startswith("pymongo."):
        return _MONGO.get(code)
    if error_type.startswith("smtplib."):
        return {"4": _T, "5": _F}.get(code[:1])
    if code.startswith("SQLITE_"):
        return _SQLITE.get("_".join(code.split("_")[:2]))
    if _SQLSTATE.fullmatch(code):
        return _SQL.get(code) or _SQL.get(code[:2])
    return None
