"""The way from a figure to the page."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tuning.report.figure import escaped, script_json


@given(st.text(alphabet=st.sampled_from('<>&/!-script"\\u003 é')))
def test_json_cannot_leave_its_element(text: str) -> None:
    """Whatever a text holds, nothing in it can end the script element, and it reads back as it was."""
    safe = script_json(json.dumps(text))
    assert not set("<>&") & set(safe)
    assert json.loads(safe) == text


def test_markup_in_a_label_is_text() -> None:
    """plotly would make a link of it."""
    assert escaped("<a href='x'>") == "&lt;a href='x'&gt;"
