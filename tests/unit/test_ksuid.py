"""Position ids strictly increase, whatever the clock does, and tell their second."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.model.ksuid import LENGTH, positions, what_is_wrong

SECOND_US = 1_000_000
NOW_US = 1_735_732_800 * SECOND_US
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
KSUID_EPOCH = 1_400_000_000


def decoded(id: str) -> int:
    number = 0
    for digit in id:
        number = number * 62 + DIGITS.index(digit)
    return number


def second(id: str) -> int:
    """When it says that it was minted."""
    return (decoded(id) >> 128) + KSUID_EPOCH


def test_an_id_is_27_characters_of_base_62() -> None:
    (id,) = positions("", 1, NOW_US)
    assert len(id) == LENGTH == 27
    assert set(id) <= set(DIGITS)
    assert what_is_wrong(id) is None


def test_an_id_tells_the_second_of_its_minting() -> None:
    for now_us in (NOW_US, NOW_US + SECOND_US - 1, NOW_US + 86_400 * SECOND_US):
        assert {second(id) for id in positions("", 5000, now_us)} == {now_us // SECOND_US}


def test_a_run_counts_on_from_the_last() -> None:
    ids = positions("", 10_000, NOW_US)
    assert [decoded(id) - decoded(ids[0]) for id in ids] == list(range(10_000))
    assert ids == sorted(ids)
    following = positions(ids[-1], 3, NOW_US)
    assert decoded(following[0]) == decoded(ids[-1]) + 1


def test_none_are_minted_when_none_are_wanted() -> None:
    assert positions("", 0, NOW_US) == []


def test_a_new_second_begins_where_nobody_can_guess() -> None:
    (first,) = positions("", 1, NOW_US)
    (later,) = positions(first, 1, NOW_US + SECOND_US)
    assert later > first
    assert second(later) == second(first) + 1
    assert decoded(later) - decoded(first) not in (1, 1 << 128)


def test_two_partitions_do_not_meet() -> None:
    assert not set(positions("", 5000, NOW_US)) & set(positions("", 5000, NOW_US))


def test_ids_increase_though_the_clock_goes_back() -> None:
    (first,) = positions("", 1, NOW_US)
    (second_id,) = positions(first, 1, NOW_US - 3600 * SECOND_US)
    assert decoded(second_id) == decoded(first) + 1
    (third,) = positions(second_id, 1, NOW_US)
    assert decoded(third) == decoded(first) + 2


def test_an_instant_before_the_epoch_of_ksuids_is_taken_for_it() -> None:
    (id,) = positions("", 1, 0)
    assert second(id) == KSUID_EPOCH
    assert what_is_wrong(id) is None


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 200)), min_size=2, max_size=20))
@settings(derandomize=True, database=None, deadline=None, max_examples=50)
def test_ids_increase_for_ever(steps: list[tuple[int, int]]) -> None:
    last, now_us, ids = "", NOW_US, list[str]()
    for seconds, count in steps:
        now_us += seconds * SECOND_US // 2
        ids += positions(last, count, now_us)
        last = ids[-1] if ids else ""
    assert ids == sorted(set(ids))
    assert len(ids) == sum(count for _, count in steps)


@pytest.mark.parametrize(
    ("end", "following"), [("zz", "0"), ("zy", "z"), ("00", "1"), ("0z", "0")], ids=["carries", "last", "first", "turns"]
)
def test_the_next_of_an_id_is_one_higher_wherever_it_ends(end: str, following: str) -> None:
    last = positions("", 1, NOW_US)[0][:-2] + end
    (id,) = positions(last, 1, NOW_US)
    assert decoded(id) == decoded(last) + 1
    assert id.endswith(following)


@pytest.mark.parametrize("id", ["0" * 27, "aWgEPTl1tmebfsQzFP4bxwgy80V"])
def test_the_bounds_are_ids(id: str) -> None:
    assert what_is_wrong(id) is None


@pytest.mark.parametrize("id", ["", "0" * 26, "0" * 28])
def test_the_length_of_a_bad_id_is_told(id: str) -> None:
    assert what_is_wrong(id) == "Valid encoded KSUIDs are 27 characters"


@pytest.mark.parametrize(
    "id", ["aWgEPTl1tmebfsQzFP4bxwgy80W", "z" * 27, "0" * 26 + "-", " " + "0" * 26, "0" * 26 + "é", "!" * 27]
)
def test_a_bad_id_is_told_the_bounds(id: str) -> None:
    bounds = f"bounded by {'0' * 27} and aWgEPTl1tmebfsQzFP4bxwgy80V"
    assert what_is_wrong(id) == f"Valid encoded KSUIDs are {bounds}"
