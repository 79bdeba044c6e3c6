"""Pages that follow from the code are up to date."""

from __future__ import annotations

import pytest

from dev.generate import DOCS, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_generated_page_says_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run: .venv/bin/python -m dev.generate"


def test_the_picture_shows_no_place_on_anybodys_machine() -> None:
    picture = (DOCS / "demo.svg").read_text()
    assert "dead&#160;letter&#160;held" in picture
    assert str(DOCS.parent) not in picture
    assert "url(http" not in picture
