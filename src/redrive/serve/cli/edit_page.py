"""What `redrive edit` shows: how many letters change, how, and which are left alone; and the same as JSON."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from redrive import blocking
from redrive.engine.foresee import Repaired, RepairPlan, Sample
from redrive.model.difference import difference
from redrive.model.letter import Original, original_of
from redrive.serve.cli.acts import letters, say

_LINES_SHOWN = 60
_WIDTH_SHOWN = 400
_STYLE = {"+": "green", "-": "red", "@": "cyan"}
_HIDDEN = "  what differs is hidden by the rules"


def show_plan(dlq: blocking.DeadLetters, plan: RepairPlan) -> None:
    """How many letters match and what would become of them, with the differences of some."""
    foreseen = plan.foreseen
    if not foreseen.matched:
        return say("No letters match.")
    parts = [f"{foreseen.done:,} would be {_done(plan)}"]
    parts += [f"{foreseen.unchanged:,} would stay as {_it(foreseen.unchanged)}"] if foreseen.unchanged else []
    parts += [f"{foreseen.already:,} went through this very repair before"] if foreseen.already else []
    say(f"{letters(foreseen.matched)} {'match' if foreseen.matched != 1 else 'matches'}: {', '.join(parts)}")
    _show_refusals(foreseen)
    for sample in plan.samples:
        _show_sample(dlq, sample)
    if 0 < len(plan.samples) < foreseen.done:
        say(f"and {letters(foreseen.done - len(plan.samples))} more", "bright_black")
    return None


def show_what_became(plan: RepairPlan, repaired: Repaired | None, *, dry_run: bool) -> None:
    if repaired is None:
        if plan.foreseen.matched:
            say(
                f"Would have {_done(plan)} {letters(plan.foreseen.done)}."
                if dry_run and plan.foreseen.done
                else "Nothing was changed."
            )
        return
    say(f"{_done(plan).capitalize()} {letters(repaired.done)}.", "green" if repaired.done else "")
    if repaired.refused > plan.foreseen.refused:
        _show_refusals(repaired)
    if repaired.changed:
        say(f"Left alone {letters(repaired.changed)} that changed meanwhile.", "yellow")


def told_shape(dlq: blocking.DeadLetters, plan: RepairPlan, repaired: Repaired | None, *, dry_run: bool) -> dict[str, Any]:
    """What would be done, or was, as one object."""
    became = repaired or plan.foreseen
    return {
        "act": "undo" if plan.mending.puts_back else "edit",
        "by": plan.mending.name,
        "dry_run": dry_run,
        "matched": plan.foreseen.matched,
        "to_change": plan.foreseen.done,
        "done": repaired.done if repaired else 0,
        "unchanged": became.unchanged,
        "already": became.already,
        "changed": became.changed,
        "refused": [{"reason": one.reason, "number": one.number, "example": str(one.example)} for one in became.refusals],
        "samples": [{"id": str(one.letter.id), "difference": _lines(dlq, one)} for one in plan.samples],
    }


def status_of(repaired: Repaired) -> int:
    """1 where a letter could not be repaired that should have been; who is held or closed counts when nothing else was done."""
    is_idle = not (repaired.done or repaired.unchanged or repaired.already)
    return int(any(one.is_fault for one in repaired.refusals) or (bool(repaired.refusals) and is_idle))


def _show_refusals(repaired: Repaired) -> None:
    for one in repaired.refusals:
        are = "is" if one.number == 1 else "are"
        say(f"{letters(one.number)} {are} left alone: {one.reason} ({str(one.example)[:8]})", "red" if one.is_fault else "yellow")


def _show_sample(dlq: blocking.DeadLetters, sample: Sample) -> None:
    say(f"\n{str(sample.letter.id)[:8]}  {sample.letter.source} / {dlq.shown(sample.letter).source_id}", "bold")
    lines = _lines(dlq, sample)
    for line in lines[:_LINES_SHOWN]:
        style = "bold" if line.startswith(("---", "+++")) else _STYLE.get(line[:1], "")
        say("  " + line[:_WIDTH_SHOWN] + (" …" if len(line) > _WIDTH_SHOWN else ""), style)
    if len(lines) > _LINES_SHOWN:
        say(f"  … and {len(lines) - _LINES_SHOWN:,} more lines", "bright_black")


def _lines(dlq: blocking.DeadLetters, sample: Sample) -> list[str]:
    """The differences, as far as people may see them."""
    return difference(_shown(dlq, sample, sample.before), _shown(dlq, sample, sample.after)) or [_HIDDEN]


def _shown(dlq: blocking.DeadLetters, sample: Sample, content: Original) -> Original:
    letter = replace(sample.letter, body=content.body, body_ref=None, original=None)
    letter = replace(letter, content_type=content.content_type, headers=content.headers, target=content.target)
    return original_of(dlq.shown(letter))


def _done(plan: RepairPlan) -> str:
    return "put back" if plan.mending.puts_back else "changed"


def _it(number: int) -> str:
    return "it is" if number == 1 else "they are"
