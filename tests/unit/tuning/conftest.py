"""What the tests of this room share."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _machine_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side; the lock that keeps searches of one machine apart must not keep tests apart."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
