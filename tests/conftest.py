"""What all tests share."""

import pytest
from hypothesis import settings

# A deadline would assert a time, which depends on the machine and on what else it does.
settings.register_profile("hicache-tune", deadline=None, print_blob=True)
settings.load_profile("hicache-tune")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how long chaos is made."""
    parser.addoption("--rounds", type=int, help="kills of each chaos test, in place of its own number")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of chaos tests."""
    config.addinivalue_line("markers", "chaos: kills processes at random moments (`--rounds N` says how many)")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int | None:
    """How many kills were asked for; None leaves it to the test."""
    found: int | None = request.config.getoption("--rounds")
    return found
