"""JSON Patch as RFC 6902 has it, and a clear sentence for everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.model import plain
from redrive.model.difference import bodies, difference
from redrive.model.errors import BadSettings
from redrive.model.letter import Original
from redrive.model.patch import OPS, Patch, spelled

APPENDIX = [
    ("A.1 adding an object member", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ("A.2 adding an array element", {"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ("A.3 removing an object member", {"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ("A.4 removing an array element", {"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ("A.5 replacing a value", {"baz": "qux", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo", "foo": "bar"}),
    (
        "A.6 moving a value",
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        "A.7 moving an array element",
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        "A.8 testing a value: success",
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ("A.9 testing a value: error", {"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], "step 1 of the patch (test /baz): the value there is another"),
    ("A.10 adding a nested member object", {"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"grandchild": {}}}], {"foo": "bar", "child": {"grandchild": {}}}),
    ("A.11 ignoring unrecognized elements", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}),
    ("A.12 adding to a nonexistent target", {"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], "step 1 of the patch (add /baz/bat): there is no /baz"),
    ("A.14 ~ escape ordering", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ("A.15 comparing strings and numbers", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], "step 1 of the patch (test /~01): the value there is another"),
    ("A.16 adding an array value", {"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}], {"foo": ["bar", ["abc", "def"]]}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "patch", "expected"), [row[1:] for row in APPENDIX], ids=[row[0] for row in APPENDIX])
def test_the_examples_of_the_rfc(value: Any, patch: list[Any], expected: Any) -> None:
    before = deepcopy(value)
    if isinstance(expected, str):
        with pytest.raises(BadSettings) as refused:
            Patch.read(json.dumps(patch)).applied(value)
        assert str(refused.value) == expected
    else:
        assert Patch.read(json.dumps(patch)).applied(value) == expected
    assert value == before, "what is given stays as it is"


def test_a_13_an_invalid_patch_document_is_refused() -> None:
    with pytest.raises(BadSettings, match="the patch has 'op' twice in one object"):
        Patch.read('[{"op": "add", "path": "/baz", "value": "qux", "op": "remove"}]')


MISTAKES = [
    ("[{", "the patch is not JSON: Expecting property name enclosed in double quotes (line 1, column 3)"),
    ("{}", 'a patch is a list of steps, such as [{"op": "replace", "path": "/currency", "value": "EUR"}]'),
    ("[5]", 'step 1 of the patch is not an object such as {"op": "replace", "path": "/currency", "value": "EUR"}'),
    ('[{"path": "/a"}]', "step 1 of the patch has no 'op'; there are add, remove, replace, move, copy, test"),
    ('[{"op": "repalce", "path": "/a"}]', "step 1 of the patch: there is no op 'repalce'; did you mean replace?"),
    ('[{"op": ["add"], "path": "/a"}]', "step 1 of the patch: there is no op ['add']; did you mean add?"),
    ('[{"op": "test", "path": "", "value": 1}, {"op": "add", "path": "/a"}]', "step 2 of the patch (add) has no 'value'"),
    ('[{"op": "move", "path": "/a"}]', "step 1 of the patch (move) has no 'from'"),
    ('[{"op": "remove"}]', "step 1 of the patch (remove) has no 'path'"),
    ('[{"op": "remove", "path": "a/b"}]', "step 1 of the patch (remove): path 'a/b' must begin with /"),
    ('[{"op": "remove", "path": 7}]', "step 1 of the patch (remove): path must be a text such as /items/0/price"),
    ('[{"op": "remove", "path": "/a~2"}]', "path '/a~2' has a ~ of its own; write ~0 for ~ and ~1 for /"),
    ('[{"op": "copy", "from": "x", "path": "/a"}]', "step 1 of the patch (copy): from 'x' must begin with /"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_patch_that_cannot_be_read_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Patch.read(text)
    assert sentence in str(refused.value)


REFUSALS = [
    ({"op": "remove", "path": "/a/9"}, "there is no /a/9; the list has 2"),
    ({"op": "remove", "path": "/a/-"}, "/a is a list, and '-' is no place in it"),
    ({"op": "replace", "path": "/a/01", "value": 1}, "/a is a list, and '01' is no place in it"),
    ({"op": "replace", "path": "/x", "value": 1}, "there is no /x"),
    ({"op": "add", "path": "/b/c", "value": 1}, "/b is neither an object nor a list"),
    ({"op": "add", "path": "/a/" + "9" * 5000, "value": 1}, "is no place in it"),
    ({"op": "remove", "path": ""}, "the whole cannot be removed; replace it"),
    ({"op": "move", "from": "/a", "path": "/a/0"}, "/a cannot be moved into itself"),
    ({"op": "copy", "from": "/a/2", "path": "/c"}, "there is no /a/2; the list has 2"),
    ({"op": "test", "path": "/b", "value": True}, "the value there is another"),
]


@pytest.mark.parametrize(("step", "sentence"), REFUSALS)
def test_a_patch_that_does_not_apply_says_where_and_changes_nothing(step: dict[str, Any], sentence: str) -> None:
    value = {"a": [1, 2], "b": 1}
    with pytest.raises(BadSettings) as refused:
        Patch.read([{"op": "add", "path": "/new", "value": 1}, step]).applied(value)
    assert str(refused.value).startswith(f"step 2 of the patch ({step['op']} ")
    assert sentence in str(refused.value)
    assert value == {"a": [1, 2], "b": 1}


def test_the_whole_can_be_replaced_copied_and_moved_out_of() -> None:
    assert Patch.read([{"op": "replace", "path": "", "value": [1]}]).applied({"a": 1}) == [1]
    assert Patch.read([{"op": "copy", "from": "", "path": "/a"}]).applied({"b": 1}) == {"b": 1, "a": {"b": 1}}
    assert Patch.read([{"op": "move", "from": "/a", "path": ""}]).applied({"a": 5}) == 5
    assert Patch.read([{"op": "move", "from": "/a", "path": "/a"}]).applied({"a": 5}) == {"a": 5}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def steps_between(before: Any, after: Any, path: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A tiny differ: members and the ends of lists come and go, all else is replaced."""
    if isinstance(before, dict) and isinstance(after, dict):
        steps = [{"op": "remove", "path": spelled((*path, name))} for name in before.keys() - after.keys()]
        steps += [
            {"op": "add", "path": spelled((*path, name)), "value": after[name]} for name in sorted(after.keys() - before.keys())
        ]
        for name in before.keys() & after.keys():
            steps += steps_between(before[name], after[name], (*path, name))
        return steps
    if isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        steps = [{"op": "remove", "path": spelled((*path, str(place)))} for place in range(len(before) - 1, shared - 1, -1)]
        steps += [{"op": "add", "path": spelled((*path, "-")), "value": value} for value in after[shared:]]
        for place in range(shared):
            steps += steps_between(before[place], after[place], (*path, str(place)))
        return steps
    same = plain.is_same(before, after)
    return [] if same else [{"op": "replace", "path": spelled(path), "value": after}]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(json_values, json_values)
def test_a_patch_made_from_two_values_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    kept = deepcopy(before)
    patch = Patch.read(plain.written(steps_between(before, after)))
    assert plain.is_same(patch.applied(before), after)
    assert plain.is_same(before, kept)


pointers = st.lists(st.sampled_from(["a", "0", "1", "-", "", "~0", "~1", "é"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
anything = st.lists(
    st.fixed_dictionaries({"op": st.sampled_from(OPS), "path": pointers, "from": pointers, "value": json_values}), max_size=4
)  # fmt: skip


def outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    """The sentence of the clear error, or what came of it; any other error is one of ours."""
    try:
        return "", work()
    except BadSettings as error:
        return str(error), None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(anything, json_values)
def test_any_patch_on_any_value_applies_or_says_why_not(steps: list[Any], value: Any) -> None:
    told, after = outcome(lambda: Patch.read(steps).applied(value))
    assert told.startswith("step ") or plain.is_same(plain.read(plain.written(after)), after)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(json_values)
def test_what_is_no_patch_is_refused_with_a_sentence(value: Any) -> None:
    told, patch = outcome(lambda: Patch.read(plain.written(value)))
    assert "patch" in told or (value == [] and patch == Patch(()))


LOSSES = [
    (b'{"a": 0.1234567890123456789}', "it has a number that would lose digits"),
    (b'{"a": 1, "a": 2}', "it has 'a' twice in one object"),
    (b'{"a": NaN}', "it is not JSON: it has NaN"),
    (b"1e999", "it has a number that would lose digits"),
    (b"[" * 100_000, "it is nested too deeply"),
    (b"\xff", "it is not JSON: it is no text in UTF-8"),
    (b"9" * 5000, "it has a number that is too long"),
]


@pytest.mark.parametrize(("text", "sentence"), LOSSES, ids=[sentence for _, sentence in LOSSES])
def test_json_that_would_not_come_back_as_it_was_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        plain.read(text)
    assert str(refused.value) == sentence


def test_json_comes_back_as_it_was() -> None:
    for text in (b'{"a":1.5,"b":[1e+16,123456789012345678901234567890,null,true]}', '"é"'.encode(), b'"\\ud800"'):
        assert plain.written(plain.read(text)) == text
    assert plain.read(b"\xef\xbb\xbf[1]") == [1]


def test_differences_are_lines_of_pretty_json() -> None:
    assert bodies(b'{"id":7,"currency":"ATS"}', b'{"id": 7, "currency": "EUR"}') == [
        "--- body",
        "+++ body",
        "@@ -1,4 +1,4 @@",
        " {",
        '   "id": 7,',
        '-  "currency": "ATS"',
        '+  "currency": "EUR"',
        " }",
    ]
    assert bodies(b'{"a":1}', b'{"a": 1}') == ["--- body", "+++ body", "  only its spacing differs"]
    assert bodies(b"one\ntwo", b"one\nthree")[-2:] == ["-two", "+three"]
    assert bodies(b"same", b"same") == []


def test_differences_of_bytes_are_told_by_size_and_beginning() -> None:
    *_, was, becomes = bodies(b"\0\xff" * 20, b"text")
    assert was.startswith("-40 bytes, 00 ff 00 ff 00 ff 00 ff 00 ff 00 ff 00 ff 00 ff … (sha256 ")
    assert becomes.startswith("+4 bytes, 74 65 78 74 (sha256 ")


def test_differences_name_headers_and_content_type() -> None:
    before = Original(body=b"x", content_type="text/plain", headers=(("a", b"1"), ("b", b"2")))
    after = Original(body=b"x", content_type="application/json", headers=(("a", b"1"), ("b", b"\xff")))
    lines = difference(before, after)
    assert {"-text/plain", "+application/json", "-b: 2", "+b: \\xff"} <= set(lines)
    assert difference(before, before) == []
