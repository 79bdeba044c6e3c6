"""The kit for what people change: `amend` and `purge`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.errors import BadSettings
from redrive.model.letter import BodyRef, Original, RetryPlan, original_of
from redrive.model.query import EVERYTHING, And, Field, Is, Not, Op, Or, Text
from redrive.model.settlement import Completed, Settled
from redrive.model.status import TRANSITIONS, Act, Status
from redrive.model.texts import Where
from redrive.testing.kit.clerk import Clerk, Kit
from redrive.testing.kit.samples import START, STORED, failure, letter

_HOUR = timedelta(hours=1)

_ACTS = {
    Act.CONFIRM: Status.COMPLETED,
    Act.REQUEUE: Status.PENDING,
    Act.QUARANTINE: Status.QUARANTINED,
    Act.ARCHIVE: Status.ARCHIVED,
    Act.RESTORE: Status.PENDING,
    Act.DISCARD: Status.DISCARDED,
}
_LEGAL = [(act, status) for act in _ACTS for status in STORED if status in TRANSITIONS[act][0]]
_ILLEGAL = [(act, status) for act in Act for status in STORED if (act, status) not in _LEGAL]


class Mending(Kit):
    """Amending what nobody holds, and removing what nobody needs."""

    @pytest.mark.parametrize(("act", "status"), _LEGAL)
    def test_a_legal_act_moves_the_letter(self, store: Clerk, act: Act, status: Status) -> None:
        store.put(letter(status=status, due=START))
        store.wait(minutes=1)
        assert store.amend(Amendment(id=letter().id, act=act, reason="so be it")) == [Amended.DONE]
        held = store.one(letter().id)
        assert held.status is _ACTS[act]
        assert held.updated_at == store.now
        assert held.metadata == {f"{act}_reason": "so be it"}
        assert store.tally(Field.STATUS) == {_ACTS[act].value: 1}
        assert held.retry.next_retry_at == (START if act is Act.REQUEUE else None)
        assert len(store.claim()) == (act is Act.REQUEUE)

    @pytest.mark.parametrize(("act", "status"), _ILLEGAL)
    def test_an_illegal_act_changes_nothing_at_all(self, store: Clerk, act: Act, status: Status) -> None:
        before = letter(status=status, due=START)
        store.put(before)
        store.wait(minutes=1)
        hopeful = Amendment(id=before.id, act=act, body=b"new", priority=9, tags=("t",), next_retry_at=None, reason="why")
        assert store.amend(hopeful) == [Amended.ILLEGAL]
        assert store.one(before.id) == before
        assert store.count(Is(Field.PRIORITY, 9)) == 0

    @pytest.mark.parametrize(
        ("change", "query"),
        [
            ({"priority": 9}, Is(Field.PRIORITY, 9)),
            ({"tags": ("x", "y")}, And((Is(Field.TAG, "x"), Is(Field.TAG, "y"), Not(Is(Field.TAG, "old"))))),
            ({"tags": ()}, Not(Is(Field.TAG, "", Op.GE))),
            ({"metadata": {"deep": {"list": [1, None, "x"]}}}, EVERYTHING),
            ({"metadata": {}}, EVERYTHING),
            ({"expires_at": START + _HOUR}, Is(Field.EXPIRES_AT, START + _HOUR)),
            ({"expires_at": None}, Not(Is(Field.EXPIRES_AT, START, Op.GE))),
        ],
    )
    def test_what_is_given_changes_and_the_rest_stays(self, store: Clerk, change: dict[str, Any], query: Any) -> None:
        before = letter(tags=("old",), expires_at=START, metadata={"a": 1}, due=START)
        store.put(before)
        store.wait(minutes=1)
        assert store.amend(Amendment(id=before.id, **change)) == [Amended.DONE]
        assert store.one(before.id) == replace(before, updated_at=store.now, **change)
        assert store.count(query) == 1
        assert store.count(Is(Field.UPDATED_AT, store.now)) == 1

    @pytest.mark.parametrize("moved", [START, START + _HOUR, None])
    def test_a_retry_can_be_moved(self, store: Clerk, moved: Any) -> None:
        store.put(letter(retry=RetryPlan(policy="p", retry_count=2, next_retry_at=START + 5 * _HOUR)))
        assert store.amend(Amendment(id=letter().id, next_retry_at=moved)) == [Amended.DONE]
        assert store.one(letter().id).retry == RetryPlan(policy="p", retry_count=2, next_retry_at=moved)
        assert len(store.claim(lease=timedelta(minutes=1))) == (moved == START)
        store.wait(hours=1)
        assert len(store.claim()) == (moved is not None)

    def test_a_new_priority_counts_in_the_next_claim(self, store: Clerk) -> None:
        store.put(letter("low", due=START - _HOUR), letter("high", due=START))
        store.amend(Amendment(id=letter("high").id, priority=5))
        assert [one.letter.source_id for one in store.claim(limit=1)] == ["high"]

    def test_a_restored_letter_can_be_scheduled_in_the_same_act(self, store: Clerk) -> None:
        store.put(letter(status=Status.ARCHIVED))
        store.amend(Amendment(id=letter().id, act=Act.RESTORE, next_retry_at=START))
        assert len(store.claim()) == 1

    def test_the_content_as_it_first_came_is_kept_for_ever(self, store: Clerk) -> None:
        ref = BodyRef(name="b", size=3, sha256="0" * 64)
        before = letter(content_type="text/plain", headers=(("h", b"\xff\0"),), body_ref=ref, target="py:a:b")
        store.put(before)
        original = Original(body=before.body, body_ref=ref, content_type="text/plain", headers=before.headers, target="py:a:b")
        store.amend(Amendment(id=before.id, body=b"second"))
        held = store.one(before.id)
        assert (held.body, held.body_ref, held.original) == (b"second", None, original)
        store.amend(Amendment(id=before.id, content_type="text/x", headers=()), Amendment(id=before.id, body=b""))
        held = store.one(before.id)
        assert (held.body, held.content_type, held.headers, held.original) == (b"", "text/x", (), original)

    def test_a_target_is_kept_and_the_one_before_it_remembered(self, store: Clerk) -> None:
        before = letter(body=b"first")
        store.put(before)
        store.amend(Amendment(id=before.id, target="https://shop.example.com/orders"))
        store.amend(Amendment(id=before.id, target="py:shop:ödd"))
        held = store.one(before.id)
        assert (held.target, held.body, held.original) == ("py:shop:ödd", b"first", original_of(before))
        store.amend(Amendment(id=before.id, target=""))
        held = store.one(before.id)
        assert (held.target, held.original) == ("", original_of(before))

    def test_what_is_not_content_leaves_no_original(self, store: Clerk) -> None:
        store.put(letter())
        store.amend(Amendment(id=letter().id, priority=3, act=Act.QUARANTINE))
        assert store.one(letter().id).original is None

    def test_a_letter_that_somebody_holds_is_left_alone(self, store: Clerk) -> None:
        store.put(letter())
        lease = store.take(letter().id, lease=_HOUR)
        change = Amendment(id=letter().id, priority=9, act=Act.DISCARD)
        assert store.amend(change) == [Amended.LEASED]
        assert store.amend(replace(change, generation=9)) == [Amended.LEASED]
        assert store.end(lease, Completed()) is Settled.DONE
        assert store.one(letter().id).priority == 0

    def test_an_expired_lease_protects_nothing_and_its_owner_cannot_undo_the_change(self, store: Clerk) -> None:
        store.put(letter(due=START))
        lease = store.take(letter().id, lease=_HOUR)
        store.wait(hours=1)
        assert store.amend(Amendment(id=letter().id, act=Act.DISCARD)) == [Amended.DONE]
        assert store.extend(lease, by=_HOUR) == [None]
        assert store.end(lease, Completed()) is Settled.LEASE_LOST
        assert store.one(letter().id).status is Status.DISCARDED
        assert store.claim() == []

    @pytest.mark.parametrize("times", [1, 2])
    def test_an_amended_letter_keeps_its_place_among_those_that_could_have_been_claimed(self, store: Clerk, times: int) -> None:
        store.put(letter("let go", due=START - _HOUR), letter("waits", due=START))
        lease = store.take(letter("let go").id, lease=_HOUR)
        store.wait(hours=1)
        for number in range(times):
            store.amend(Amendment(id=letter("let go").id, tags=(str(number),)))
        assert store.extend(lease, by=_HOUR) == [None]
        assert [one.letter.source_id for one in store.claim()] == ["waits", "let go"]

    def test_a_whole_letter_stands_in_the_place_of_another(self, store: Clerk) -> None:
        other = letter(
            failed=3,
            generation=4,
            body=b"another heron",
            failure=failure("acme.Other", "otherwise", fingerprint="others"),
            due=START + _HOUR,
            priority=3,
            tags=("moved",),
            metadata={"from": "elsewhere"},
        )
        store.put(letter(due=START), letter("beside"), letter("held", due=START))
        store.tidy_all()
        lease = store.take(letter("held").id)
        held = letter("held", tags=("never",))
        answers = store.amend(
            Amendment(id=other.id, instead=other, tags=("not looked at",)),
            Amendment(id=held.id, instead=held),
            Amendment(id=letter("nobody").id, instead=letter("nobody")),
            Amendment(id=letter("beside").id, instead=letter("beside", tags=("never",)), generation=7),
        )
        assert answers == [Amended.DONE, Amended.LEASED, Amended.MISSING, Amended.STALE]
        assert store.one(other.id) == other
        assert store.one(letter("beside").id) == letter("beside")
        assert store.end(lease, Completed()) is Settled.DONE
        assert (
            store.count(Is(Field.GROUP, "others")) == store.count(Is(Field.ERROR, "Other")) == store.count(Text("otherwise")) == 1
        )
        store.tidy_all()
        assert store.count(Text("another heron", Where.BODY)) == 1
        if store.capabilities.groups:
            assert {group.fingerprint: group.count for group in store.all_groups()} == {"others": 1, failure().fingerprint: 2}
        assert store.claim() == []
        store.wait(hours=1)
        assert [one.letter for one in store.claim()] == [replace(other, status=Status.RETRYING)]

    def test_a_letter_stands_in_the_place_of_no_other(self) -> None:
        with pytest.raises(BadSettings, match="cannot stand in the place"):
            Amendment(id=letter("a").id, instead=letter("b"))

    def test_a_letter_that_was_reopened_meanwhile_is_left_alone(self, store: Clerk) -> None:
        store.put(letter())
        store.put(letter(failed=2, generation=2))
        before = store.one(letter().id)
        stale = Amendment(id=letter().id, generation=1, act=Act.DISCARD, priority=9)
        assert store.amend(stale) == [Amended.STALE]
        assert store.one(letter().id) == before
        assert store.amend(replace(stale, generation=2)) == [Amended.DONE]

    def test_a_batch_is_answered_one_by_one_and_applied_in_order(self, store: Clerk) -> None:
        store.put(letter("a"), letter("b"), letter("held"))
        store.take(letter("held").id)
        a = letter("a").id
        answers = store.amend(
            Amendment(id=UUID(int=0), priority=1),
            Amendment(id=letter("held").id, priority=1),
            Amendment(id=a, act=Act.ARCHIVE),
            Amendment(id=a, act=Act.ARCHIVE),
            Amendment(id=a, act=Act.RESTORE, priority=4),
            Amendment(id=letter("b").id, generation=3),
            Amendment(id=a, tags=("last",)),
        )
        done, illegal = Amended.DONE, Amended.ILLEGAL
        assert answers == [Amended.MISSING, Amended.LEASED, done, illegal, done, Amended.STALE, done]
        held = store.one(a)
        assert (held.status, held.priority, held.tags) == (Status.PENDING, 4, ("last",))
        assert store.amend() == []

    def test_a_purge_takes_the_oldest_up_to_its_limit_and_says_what_it_took(self, store: Clerk) -> None:
        letters = [letter(str(number), at=START + number * _HOUR) for number in range(6)]
        store.put(*reversed(letters))
        assert store.purge(limit=2) == letters[:2]
        assert store.purge(Is(Field.SOURCE_ID, "4")) == [letters[4]]
        assert store.purge(limit=0) == []
        assert store.purge(Or()) == []
        assert store.purge() == [letters[2], letters[3], letters[5]]
        assert store.purge() == []
        assert store.count() == 0

    def test_letters_of_the_same_age_are_purged_by_id(self, store: Clerk) -> None:
        letters = [letter(str(number)) for number in range(9)]
        store.put(*letters)
        assert store.purge(limit=5) == sorted(letters, key=lambda one: one.id)[:5]

    def test_a_letter_that_somebody_holds_is_never_purged(self, store: Clerk) -> None:
        store.put(letter("held", at=START - _HOUR), letter("free"))
        lease = store.take(letter("held").id, lease=_HOUR)
        assert [one.source_id for one in store.purge(limit=1)] == ["free"]
        assert store.purge(Is(Field.STATUS, "retrying")) == []
        assert store.end(lease, Completed()) is Settled.DONE
        assert [one.source_id for one in store.purge()] == ["held"]

    def test_a_letter_whose_lease_ran_out_can_be_purged_as_it_was_stored(self, store: Clerk) -> None:
        store.put(letter(due=START))
        lease = store.take(letter().id, lease=_HOUR)
        store.wait(hours=1)
        assert store.purge() == [letter(due=START)]
        assert store.end(lease, Completed()) is Settled.MISSING
        assert store.extend(lease, by=_HOUR) == [None]
        assert store.claim() == []

    def test_a_purged_letter_leaves_nothing_behind(self, store: Clerk) -> None:
        store.put(letter(due=START, tags=("t",)))
        store.purge()
        assert store.get(letter().id) == [None]
        assert store.claim() == []
        assert store.claim(what=(letter().id,)) == []
        assert store.amend(Amendment(id=letter().id, priority=1)) == [Amended.MISSING]
        for by in (Field.STATUS, Field.GROUP, Field.SOURCE):
            assert store.tally(by) == {}

    def test_a_message_that_fails_again_after_its_letter_was_purged_is_new(self, store: Clerk) -> None:
        store.put(letter(due=START))
        store.take(letter().id, lease=_HOUR)
        store.wait(hours=2)
        store.purge()
        assert store.put(letter()) == [Held.NEW]
        assert store.one(letter().id) == letter()
        assert store.claim() == []
