"""The types of well-known libraries that tell what a failure was.

Not here: whatever carries a status or a code of its own (`httpx.HTTPStatusError`, PostgreSQL's errors, most of AWS):
that tells more than the type.
"""

from __future__ import annotations

from collections.abc import Mapping

from redrive.model.category import Category


def _in(package: str, names: str) -> str:
    return " ".join(f"{package}.{name}" for name in names.split())


def _everywhere(packages: str, names: str) -> str:
    return " ".join(_in(package, names) for package in packages.split())


_REQUESTS, _AIOHTTP, _URLLIB3 = "requests.exceptions", "aiohttp.client_exceptions", "urllib3.exceptions"
_REDIS, _MONGO, _BOTO, _SQLALCHEMY = "redis.exceptions", "pymongo.errors", "botocore.exceptions", "sqlalchemy.exc"
_HTTPX = "httpx httpcore httpx2 httpcore2"
_KAFKA = "kafka.errors aiokafka.errors"
_API_CLIENTS = "openai anthropic groq together cerebras.cloud.sdk"
"""Clients made by the same generator, with the same names in them."""

FIRM: Mapping[Category, str] = {
    Category.TRANSIENT: " ".join(
        (
            _in(_REQUESTS, "RetryError"),
            _in(
                _REDIS,
                "AskError BusyLoadingError ChildDeadlockedError ClusterDownError LockError MasterDownError ReadOnlyError "
                "SlotNotCoveredError TryAgainError WatchError",
            ),
            _in(_MONGO, "NotPrimaryError ExecutionTimeout WTimeoutError CursorNotFound"),
            _in(_SQLALCHEMY, "InvalidatePoolError PendingRollbackError"),
            "sqlalchemy.orm.exc.StaleDataError asyncpg.exceptions._base.OutdatedSchemaCacheError",
            "asyncpg.exceptions._base.TargetServerAttributeNotMatched",
            _in(_BOTO, "CapacityNotAvailableError"),
            _everywhere(
                _KAFKA,
                "RetriableError BrokerNotAvailableError Cancelled CommitFailedError CoordinatorLoadInProgressError "
                "CoordinatorNotAvailableError GroupCoordinatorNotAvailableError GroupLoadInProgressError "
                "IllegalGenerationError KafkaStorageError LeaderNotAvailableError MetadataEmptyBrokerList NewLeaderElectedError "
                "NotControllerError NotCoordinatorError NotCoordinatorForGroupError NotEnoughReplicasAfterAppendError "
                "NotEnoughReplicasError NotLeaderForPartitionError RebalanceInProgressError ReplicaNotAvailableError "
                "StaleMetadata ThrottlingQuotaExceededError TooManyInFlightRequests UnknownMemberIdError "
                "UnknownTopicOrPartitionError ConcurrentTransactions ConcurrentTransactionsError",
            ),
        )
    ),
    Category.NETWORK: " ".join(
        (
            _everywhere(_HTTPX, "TransportError TimeoutException NetworkError ProxyError ProtocolError"),
            _in(_REQUESTS, "ConnectionError Timeout ChunkedEncodingError"),
            _in(_AIOHTTP, "ClientConnectionError ClientPayloadError"),
            _in(
                _URLLIB3,
                "TimeoutError NewConnectionError ProtocolError ProxyError SSLError IncompleteRead InvalidChunkLength",
            ),
            _in(_REDIS, "ConnectionError TimeoutError InvalidResponse"),
            _in(_MONGO, "ConnectionFailure ProtocolError"),
            _in(_BOTO, "ConnectionError ConnectionClosedError HTTPClientError IncompleteReadError ResponseStreamingError"),
            _in(_SQLALCHEMY, "DisconnectionError"),
            "psycopg.errors.ConnectionTimeout asyncpg.exceptions._base.ProtocolError grpc.FutureTimeoutError",
            "websockets.exceptions.ConnectionClosed anyio.BrokenResourceError anyio.EndOfStream",
            _everywhere(_API_CLIENTS, "APIConnectionError WebSocketConnectionClosedError"),
            _everywhere(
                _KAFKA,
                "KafkaConnectionError KafkaTimeoutError KafkaUnavailableError NetworkExceptionError NoBrokersAvailable "
                "NodeNotReadyError RequestTimedOutError CorrelationIdError",
            ),
        )
    ),
    Category.RESOURCE: " ".join(
        (
            # No free connection in one's own pool: nothing is wrong with the network.
            _everywhere(_HTTPX, "PoolTimeout"),
            _in(_URLLIB3, "EmptyPoolError FullPoolError"),
            _in(_REDIS, "MaxConnectionsError OutOfMemoryError"),
            _in(_MONGO, "WaitQueueTimeoutError"),
            _in(_SQLALCHEMY, "TimeoutError"),
            "psycopg_pool.PoolTimeout psycopg_pool.TooManyRequests",
            _everywhere(_API_CLIENTS, "WebSocketQueueFullError"),
            _everywhere(_KAFKA, "QuotaViolationError GroupMaxSizeReachedError"),
        )
    ),
    Category.PERMISSION: " ".join(
        (
            _in(_REDIS, "AuthenticationError AuthenticationWrongNumberOfArgsError AuthorizationError NoPermissionError"),
            _in(_REDIS, "ExternalAuthProviderError"),
            _in(
                _BOTO,
                "CredentialRetrievalError LoginError NoAuthTokenError NoCredentialsError PartialCredentialsError SSOError "
                "TokenRetrievalError UnknownCredentialError",
            ),
            "django.core.exceptions.PermissionDenied openai.InvalidWebhookSignatureError",
            _everywhere(
                _KAFKA,
                "AuthorizationError AuthenticationFailedError AuthenticationMethodNotSupported ClusterAuthorizationFailedError "
                "DelegationTokenAuthorizationFailedError GroupAuthorizationFailedError IllegalSaslStateError "
                "SaslAuthenticationFailedError TopicAuthorizationFailedError TransactionalIdAuthorizationFailed "
                "TransactionalIdAuthorizationFailedError UnacceptableCredentialError UnsupportedSaslMechanismError",
            ),
        )
    ),
    Category.VALIDATION: " ".join(
        (
            _everywhere(_HTTPX, "CookieConflict DecodingError InvalidURL LocalProtocolError UnsupportedProtocol"),
            _in(
                _REQUESTS,
                "ContentDecodingError InvalidHeader InvalidJSONError InvalidSchema InvalidURL MissingSchema URLRequired",
            ),
            _in(_AIOHTTP, "InvalidURL NonHttpUrlClientError WSMessageTypeError"),
            _in(_URLLIB3, "BodyNotHttplibCompatible DecodeError HeaderParsingError InvalidHeader LocationValueError"),
            _in(_REDIS, "ClusterCrossSlotError CrossSlotTransactionError DataError"),
            _in(_MONGO, "CollectionInvalid ConfigurationError DuplicateKeyError InvalidName"),
            "bson.errors.BSONError psycopg.DataError psycopg.IntegrityError",
            _in(_SQLALCHEMY, "ArgumentError"),
            _in(
                _BOTO,
                "EndpointProviderError InvalidConfigError InvalidDNSNameError InvalidHostLabelError MissingParametersError "
                "ParamValidationError UnknownServiceError ValidationError",
            ),
            "msgspec.MsgspecError jsonschema.exceptions.ValidationError marshmallow.exceptions.ValidationError",
            "django.core.exceptions.ValidationError google.protobuf.message.DecodeError google.protobuf.message.EncodeError",
            _everywhere(_API_CLIENTS, "APIResponseValidationError ContentFilterFinishReasonError LengthFinishReasonError"),
            _everywhere(
                _KAFKA,
                "CorruptRecordError CorruptRecordException IllegalArgumentError InvalidConfigurationError InvalidMessageError "
                "InvalidRecordError InvalidRequestError InvalidTimestampError InvalidTopicError KafkaConfigurationError "
                "MessageSizeTooLargeError OffsetMetadataTooLargeError PolicyViolationError RecordListTooLargeError "
                "RecordTooLargeError UnsupportedCodecError UnsupportedCompressionTypeError",
            ),
        )
    ),
    Category.PERMANENT: " ".join(
        (
            _everywhere(_HTTPX, "StreamError TooManyRedirects"),
            _in(_REQUESTS, "StreamConsumedError TooManyRedirects UnrewindableBodyError"),
            _in(_AIOHTTP, "TooManyRedirects"),
            _in(_URLLIB3, "ClosedPoolError UnrewindableBodyError"),
            _in(_REDIS, "ExecAbortError InvalidPipelineStack ModuleError NoScriptError PubSubError"),
            _in(_MONGO, "InvalidOperation"),
            _in(_SQLALCHEMY, "CircularDependencyError CompileError InvalidRequestError NotSupportedError"),
            _in(_BOTO, "BaseEndpointResolverError ProfileNotFound"),
            "django.core.exceptions.ObjectDoesNotExist django.core.exceptions.ImproperlyConfigured",
            _everywhere(
                _KAFKA,
                "IllegalStateError IncompatibleBrokerVersion OffsetOutOfRangeError ProducerFenced ProducerFencedError "
                "TopicAlreadyExistsError UnrecognizedBrokerVersion UnsupportedVersionError",
            ),
        )
    ),
}

VAGUE: Mapping[Category, str] = {
    Category.TRANSIENT: _everywhere(_API_CLIENTS, "RateLimitError InternalServerError ConflictError"),
    Category.NETWORK: " ".join(
        (
            _everywhere(_HTTPX, "RequestError"),
            _in(_REQUESTS, "RequestException"),
            _in(_URLLIB3, "PoolError"),
        )
    ),
    Category.PERMISSION: _everywhere(_API_CLIENTS, "AuthenticationError PermissionDeniedError"),
    Category.VALIDATION: " ".join(
        (
            _in(_AIOHTTP, "ContentTypeError"),
            _in(_SQLALCHEMY, "DataError IntegrityError"),
            _everywhere(_API_CLIENTS, "BadRequestError UnprocessableEntityError"),
        )
    ),
    Category.PERMANENT: " ".join(
        (
            _in(_SQLALCHEMY, "ProgrammingError"),
            _everywhere(_API_CLIENTS, "NotFoundError"),
            "psycopg.ProgrammingError psycopg.NotSupportedError",
        )
    ),
}
