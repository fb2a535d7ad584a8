"""The root of every error this project raises on purpose, and those of scenarios.

HicacheTuneError
├── ConfigError             a flag, key or file is wrong: exit code 1
│   └── ScenarioError
└── (harness.errors)        what can go wrong around one trial

The message of each error is one sentence that says what is wrong, where, and what to do.
"""


class HicacheTuneError(Exception):
    """Raised for anything a user can act on; the command line prints its text and no traceback."""


class ConfigError(HicacheTuneError):
    """Raised when a flag, a configuration key or a file is wrong; the user corrects it and runs again."""


class ScenarioError(ConfigError):
    """Raised when a scenario cannot be read or cannot be played; the user corrects the named key or line."""
