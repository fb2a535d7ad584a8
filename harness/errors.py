"""What can go wrong around one trial. The root is in `scenarios.errors`, the lowest room.

HicacheTuneError
├── EngineError
│   ├── EngineMissing       no engine to launch: exit code 1
│   ├── EngineUnreachable   a control call was not answered
│   ├── InstallError        the CPU engine could not be installed: exit code 1
│   ├── LaunchFailed        the engine did not get ready (harness.engine.failure)
│   └── EngineLost          the engine died or hung while it was measured (harness.engine.failure)
├── Interrupted             the user asked to stop: exit code 130, resumable
├── LoadError               the load process itself failed
├── TelemetryError          a source of telemetry that was asked for cannot be read
└── StoreError              a result file cannot be read or written
"""

from scenarios.errors import ConfigError, HicacheTuneError, ScenarioError


class EngineError(HicacheTuneError):
    """Raised when the engine under test is the problem."""


class EngineMissing(EngineError):
    """Raised when there is no engine to launch; the user installs one or names its Python."""


class EngineUnreachable(EngineError):
    """Raised when a running engine does not answer a control call; the trial finds out why."""


class InstallError(EngineError):
    """Raised when the CPU engine cannot be installed; the message says what to free or to configure."""


class Interrupted(HicacheTuneError):
    """Raised when the user asked to stop; what was measured is kept and the study can be resumed."""


class LoadError(HicacheTuneError):
    """Raised when the load process itself failed; its last lines are in the message."""


class TelemetryError(HicacheTuneError):
    """Raised when telemetry that a constraint needs cannot be read; the user drops the constraint or mends it."""


class StoreError(HicacheTuneError):
    """Raised when a result file is damaged or of a newer version; the user upgrades or removes it."""


__all__ = [
    "ConfigError",
    "EngineError",
    "EngineMissing",
    "EngineUnreachable",
    "HicacheTuneError",
    "InstallError",
    "Interrupted",
    "LoadError",
    "ScenarioError",
    "StoreError",
    "TelemetryError",
]
