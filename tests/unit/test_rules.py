"""A user's own rules: when they hold, that they come before all, and how wrong ones are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive import Category
from redrive.model.classify import Classified, Evidence, Rule, classify, rules_from
from redrive.model.errors import BadSettings

RULED = Evidence(
    names=("requests.exceptions.ConnectTimeout", "requests.exceptions.ConnectionError", "builtins.OSError"),
    message="Pool of shop-7 is exhausted",
    http_status=404,
    code="E_POOL",
    grpc_status="UNKNOWN",
)


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"error": "requests.exceptions.ConnectTimeout"}, True),
        ({"error": "ConnectTimeout"}, True),
        ({"error": "requests.ConnectTimeout"}, True),
        ({"error": "exceptions.ConnectTimeout"}, True),
        ({"error": "requests.ConnectionError"}, True),
        ({"error": "OSError"}, True),
        ({"error": "Timeout"}, False),
        ({"error": "connecttimeout"}, False),
        ({"error": "request.ConnectTimeout"}, False),
        ({"error": "builtins.ConnectionError"}, False),
        ({"message": "pool exhausted"}, True),
        ({"message": "POOL of SHOP"}, True),
        ({"message": "exhausted pool"}, False),
        ({"message": "pool pool"}, False),
        ({"message": "exhaust"}, False),
        ({"http_status": 404}, True),
        ({"http_status": 405}, False),
        ({"code": "E_POOL"}, True),
        ({"code": "UNKNOWN"}, True),
        ({"code": "E_POOLS"}, False),
        ({"error": "OSError", "message": "pool", "http_status": 404, "code": "E_POOL"}, True),
        ({"error": "OSError", "message": "pool", "http_status": 404, "code": "E"}, False),
        ({"error": "OSError", "http_status": 500}, False),
    ],
)
def test_a_rule_holds_when_all_that_it_asks_for_does(conditions: dict[str, Any], holds: bool) -> None:
    rule = Rule(category=Category.RESOURCE, **conditions)
    assert rule.matches(RULED) is holds
    assert (classify(RULED, [rule]).category is Category.RESOURCE) is holds


def test_rules_come_before_all_and_the_first_that_holds_decides() -> None:
    rules = rules_from(
        [
            {"category": "permanent", "error": "nobody.Error"},
            {"category": "transient", "error": "ConnectTimeout", "message": "pool exhausted"},
            {"category": "resource", "error": "ConnectTimeout"},
        ]
    )
    assert classify(RULED, rules) == Classified(Category.TRANSIENT, "rule 2: error 'ConnectTimeout', message 'pool exhausted'")
    assert classify(Evidence(names=("builtins.ExceptionGroup",), cause=RULED), rules).why.startswith("its cause: rule 2:")


def test_a_rule_about_what_was_being_handled_does_not_outdo_the_error_itself() -> None:
    rules = [Rule(category=Category.VALIDATION, error="KeyError")]
    timeout = Evidence(names=("builtins.TimeoutError",), cause=Evidence(names=("builtins.KeyError",)))
    assert classify(timeout, rules).category is Category.NETWORK


def test_rules_are_values_that_a_file_can_hold() -> None:
    rule = Rule(category=Category.NETWORK, error="shop.Away", http_status=418)
    table = msgspec.to_builtins(rule)
    assert table == {"category": "network", "error": "shop.Away", "http_status": 418}
    assert rules_from([table]) == (rule,)
    toml = '[[rules]]\ncategory = "network"\nerror = "shop.Away"\nhttp_status = 418\n'
    assert rules_from(msgspec.toml.decode(toml)["rules"]) == (rule,)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            {"category": "network"},
            "rule 1: a rule for 'network' has no condition; give it one of error, message, http_status, code",
        ),
        ({"category": "network", "message": " !? "}, "a rule's message is ' !? ', which holds no word"),
        ({"category": "network", "error": ""}, "a rule's error is '', which holds no word"),
        ({"category": "netwerk", "error": "X"}, "Invalid enum value 'netwerk' - at `$.category`; there are transient, network"),
        ({"category": "network", "http_status": "503"}, "rule 1 cannot be read: Expected `int | null`, got `str`"),
        ({"category": "network", "mesage": "x"}, "rule 1 has an unknown key 'mesage'; did you mean message?"),
        ({"category": "network", "zzz": "x"}, "rule 1 has an unknown key 'zzz'; there are category, error, message"),
        ({"error": "X"}, "rule 1 has no category; give it one of transient, network, resource"),
    ],
)
def test_a_wrong_rule_is_refused_with_one_sentence(table: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSettings) as refusal:
        rules_from([table])
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_rule_without_a_condition_is_refused_in_code_too() -> None:
    with pytest.raises(BadSettings, match="has no condition"):
        Rule(category=Category.NETWORK)
    with pytest.raises(BadSettings, match="'netwerk' is no category; there are transient, network"):
        Rule(category="netwerk", error="X")  # type: ignore[arg-type]  # what people write
    assert Rule(category="network", error="X").category is Category.NETWORK  # type: ignore[arg-type]  # as above
