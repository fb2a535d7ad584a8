"""The flags that `search` and `find-limit` share: what is measured, over which settings, and where it is kept."""

# No postponed annotations here: the classes that inherit these flags have other names around them.
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from harness.engine.attach import Attachment, running_setting
from harness.engine.flags import split_arguments
from harness.engine.hang import HANG_AFTER_S
from harness.load.job import check_header_name
from scenarios import Api, PromptTokenizer, load_scenario, sized
from scenarios.errors import ConfigError
from tuning.budget import parse_duration
from tuning.cli.server import checked_url
from tuning.config import Search
from tuning.engines import ask_running, default_model
from tuning.objective import Constraint
from tuning.space import Asked, Dimension, Engine, Ranges, Space, flag_of, only

WHAT = Group("What is measured", sort_key=1)
SPACE = Group(
    "What is searched (LOW:HIGH[:STEP], LOW:HIGH:log, a comma list, one value, or `default` for SGLang's own)",
    sort_key=2,
)
EFFORT = Group("How much is spent", sort_key=3)
STUDY = Group("Where it is kept and how it is shown", sort_key=4)

AT_LEAST_0, AT_LEAST_1, AT_LEAST_2, ABOVE_0 = Number(gte=0), Number(gte=1), Number(gte=2), Number(gt=0)
PORT = Number(gte=0, lte=65535)
ENGINE_PORT = Number(gte=1, lte=65535)

DEFAULT_CONSTRAINTS = ("errors <= 1%", "headroom.host >= 1GiB")
DEFAULT_SCENARIO: dict[Engine, str] = {
    "local": "support-chat",
    "docker": "support-chat",
    "attach": "support-chat",
    "cpu": "cpu-chat",
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Every flag of a study, whatever is asked of it."""

    model: Annotated[
        str | None, Parameter(group=WHAT, help="Model folder or hub name; the CPU engine brings its own.")
    ] = None
    scenario: Annotated[str | None, Parameter(group=WHAT, help="Built-in scenario or YAML file.")] = None
    engine: Annotated[
        Engine,
        Parameter(
            group=WHAT,
            help="`local`: SGLang on this machine's GPUs. `docker`: in a container of --image. `attach`: the server at "
            "--url, as it is or restarted by --restart-hook. `cpu`: the real SGLang on CPU.",
        ),
    ] = "local"
    engine_python: Annotated[
        Path | None, Parameter(group=WHAT, help="Python that has SGLang; by default this one.")
    ] = None
    image: Annotated[str | None, Parameter(group=WHAT, help="Docker image that has SGLang.")] = None
    url: Annotated[
        str | None, Parameter(group=WHAT, help="Address of the server to attach to, as http://127.0.0.1:30000.")
    ] = None
    restart_hook: Annotated[
        tuple[str, ...],
        Parameter(
            group=WHAT,
            negative="",
            help="Your command that restarts the server at --url with other flags, one word each time: the program, "
            "then --restart-hook=WORD for each of its words.",
        ),
    ] = ()
    restart_input: Annotated[
        Literal["append", "json"],
        Parameter(group=WHAT, help="How the hook gets the flags: after its own words, or as JSON on its stdin."),
    ] = "append"
    api_key_env: Annotated[
        str | None, Parameter(group=WHAT, help="Environment variable that holds the key of the server at --url.")
    ] = None
    engine_port: Annotated[
        int | None,
        Parameter(group=WHAT, validator=ENGINE_PORT, help="Port of every launch; by default one that is free."),
    ] = None
    engine_arg: Annotated[
        tuple[str, ...],
        Parameter(
            group=WHAT,
            negative="",
            help="Further engine flag for every launch, as --engine-arg=--flag=value; may be repeated.",
        ),
    ] = ()
    tp_size: Annotated[int, Parameter(group=WHAT, validator=AT_LEAST_1, help="GPUs that the model is split over.")] = 1
    dp_size: Annotated[
        int, Parameter(group=WHAT, validator=AT_LEAST_1, help="Copies of the model, each on --tp-size GPUs.")
    ] = 1
    copy_limit: Annotated[
        float | None,
        Parameter(
            group=WHAT,
            validator=ABOVE_0,
            help="CPU engine: limit of host copies in GB/s, to make a setting transfer-bound.",
        ),
    ] = None
    api: Annotated[Api | None, Parameter(group=WHAT, help="Endpoint that is played; by default the scenario's.")] = None
    concurrency: Annotated[
        int | None, Parameter(group=WHAT, validator=AT_LEAST_1, help="Sessions at a time, in place of the scenario's.")
    ] = None
    sessions: Annotated[
        int | None, Parameter(group=WHAT, validator=AT_LEAST_1, help="Counted sessions, in place of the scenario's.")
    ] = None
    device_kv_tokens: Annotated[
        int | None,
        Parameter(
            group=WHAT,
            validator=AT_LEAST_1,
            help="The engine's KV pool, for a scenario with a `working_set`; by default one launch tells it.",
        ),
    ] = None
    session_header: Annotated[
        str | None,
        Parameter(group=WHAT, help="Header that carries the session's id, by which a router keeps it on one engine."),
    ] = None
    keep_storage: Annotated[
        bool,
        Parameter(group=WHAT, negative="", help="Let trials find what earlier ones left in the `file` storage tier."),
    ] = False
    seed: Annotated[int, Parameter(group=WHAT, validator=AT_LEAST_0, help="Seed of sessions and sampler.")] = 1
    load_limit: Annotated[str, Parameter(group=WHAT, help="A load that takes longer is not sustainable.")] = "10m"
    constraint: Annotated[
        tuple[str, ...],
        Parameter(
            group=WHAT,
            negative="",
            help="Bound on the winner, as `headroom.device >= 4GiB`; may be repeated; replaces the defaults.",
        ),
    ] = DEFAULT_CONSTRAINTS

    hicache: Annotated[str, Parameter(group=SPACE, help="`off,on`, or one of them.")] = "off,on"
    mem_fraction_static: Annotated[str | None, Parameter(group=SPACE, help="--mem-fraction-static.")] = None
    hicache_ratio: Annotated[str | None, Parameter(group=SPACE, help="Host pool as a multiple of the device pool.")] = (
        None
    )
    hicache_size: Annotated[
        str | None, Parameter(group=SPACE, help="Host pool in GB for each rank, in place of the ratio.")
    ] = None
    hicache_write_policy: Annotated[
        str | None, Parameter(group=SPACE, help="write_through, write_through_selective, write_back.")
    ] = None
    transfer: Annotated[
        str | None, Parameter(group=SPACE, help="Pairs IO_BACKEND/MEM_LAYOUT, such as kernel/page_first.")
    ] = None
    page_size: Annotated[str | None, Parameter(group=SPACE, help="--page-size.")] = None
    search_flag: Annotated[
        tuple[str, ...],
        Parameter(
            group=SPACE,
            name="--search",
            negative="",
            help="Further engine flag to search, as --search schedule-policy=fcfs,lpm; may be repeated.",
        ),
    ] = ()

    load_processes: Annotated[
        int,
        Parameter(group=EFFORT, validator=AT_LEAST_1, help="Processes that play the load, each on a core of its own."),
    ] = 1
    ready_timeout: Annotated[str, Parameter(group=EFFORT, help="How long a launch may stay in one phase.")] = "10m"
    hang_after: Annotated[
        str, Parameter(group=EFFORT, help="How long an engine under load may be silent before it counts as hung.")
    ] = f"{HANG_AFTER_S:g}s"

    study: Annotated[
        str | None, Parameter(group=STUDY, help="Name of the study; by default the scenario's with the time.")
    ] = None
    results: Annotated[Path, Parameter(group=STUDY, help="Folder of all studies.")] = Path("results")
    resume: Annotated[bool, Parameter(group=STUDY, negative="", help="Go on with a study that was stopped.")] = False
    dry_run: Annotated[
        bool, Parameter(group=STUDY, negative="", help="Print the plan and the launch commands; launch nothing.")
    ] = False
    json: Annotated[bool, Parameter(group=STUDY, negative="", help="Print the result as JSON on stdout.")] = False
    metrics_port: Annotated[
        int | None,
        Parameter(group=STUDY, validator=PORT, help="Serve hicache_tune_* metrics for Prometheus on this port."),
    ] = None

    def search_under(
        self,
        constraints: Sequence[str],
        *,
        preset: Sequence[Dimension] = (),
        own: Sequence[Dimension] = (),
        space: Space | None = None,
    ) -> Search:
        """Resolve the flags to what is searched, or to what else is measured over `space`.

        `preset` is searched as far as no flag says otherwise, and `own` are the tables of the user's file. Raise
        ConfigError or ScenarioError that names the flag at fault.
        """
        scenario = load_scenario(self.scenario or DEFAULT_SCENARIO[self.engine])
        scenario = scenario.scaled(concurrency=self.concurrency, counted_sessions=self.sessions)
        for text in constraints:
            Constraint.parse(text)
        self.hang_after_s()
        running = self._running()
        space = self._space(running, preset, own) if space is None else space
        for argument in self.engine_arg:
            _refuse_secret(argument)
            _refuse_fixed_and_searched(argument, space)
        _refuse_too_many(self.load_processes)
        _refuse_header(self.session_header)
        model = self.model or default_model(self.engine) or running.get("model_path")
        if model is None:
            raise ConfigError("--model is missing; name a model folder or a hub name, or use --engine cpu")
        if self.device_kv_tokens is not None:
            scenario = sized(scenario, self.device_kv_tokens, PromptTokenizer.load(model))
        return Search.parse(
            {
                "engine": self.engine,
                "engine_python": self.engine_python,
                "model": model,
                "tp_size": self.tp_size,
                "dp_size": self.dp_size,
                "image": self.image,
                "url": self.url,
                "restart_hook": self.restart_hook,
                "restart_input": self.restart_input,
                "api_key_env": self.api_key_env,
                "engine_port": self.engine_port,
                "keep_storage": self.keep_storage,
                "engine_args": self.engine_arg,
                "copy_gb_per_s": self.copy_limit,
                "scenario": scenario,
                "api": self.api or scenario.api,
                "seed": self.seed,
                "space": space,
                "constraints": self._watched(constraints),
                "load_limit_s": parse_duration(self.load_limit, "--load-limit"),
            },
            where="the flags",
        )

    def study_name(self, search: Search, *, suffix: str = "") -> str:
        """Name the study; raise ConfigError for a name that is no folder, or a resume of nothing in particular."""
        if self.study is None and self.resume:
            raise ConfigError("--resume needs --study NAME, the study to go on with; see the folders in --results")
        name = self.study or f"{search.scenario.name}{suffix}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise ConfigError(
                f"--study {name}: use letters, digits, dots, dashes and underscores, as it names a folder"
            )
        return name

    def ready_timeout_s(self) -> float:
        """Read how long a launch may stay in one phase."""
        return parse_duration(self.ready_timeout, "--ready-timeout")

    def hang_after_s(self) -> float:
        """Read how long an engine under load may be silent."""
        return parse_duration(self.hang_after, "--hang-after")

    def _running(self) -> dict[str, Any]:
        """Ask the server to attach to what it runs; empty for an engine that is launched."""
        if self.engine != "attach":
            return {}
        if self.url is None:
            raise ConfigError("--url is missing; give the address of the server to attach to")
        return ask_running(checked_url(self.url), self.api_key_env)

    def _space(self, running: dict[str, Any], preset: Sequence[Dimension], own: Sequence[Dimension]) -> Space:
        """Return what is searched: what the user asks for, or what runs already where nothing restarts it."""
        given = {name: value for name in Ranges.model_fields if (value := getattr(self, name)) is not None}
        if self.engine != "attach" or self.restart_hook:
            fixed = {flag.name: flag.value for flag in split_arguments(self.engine_arg)}
            return Asked(given, self.search_flag, own, fixed).space(preset)
        searched = [flag_of(name) for name, text in given.items() if text != Ranges.model_fields[name].default]
        searched += ["--search"] * bool(self.search_flag) + ["[[search.dimension]]"] * bool(own)
        for what in searched:
            raise nothing_restarts(what)
        return only(running_setting(running))

    def _watched(self, constraints: Sequence[str]) -> tuple[str, ...]:
        """Leave out the default bounds on the memory of another machine; raise ConfigError for the user's own."""
        near = self.engine != "attach" or self.url is None or Attachment(url=self.url).is_near
        blind = (
            [] if near else [text for text in constraints if Constraint.parse(text).metric.text.startswith("headroom")]
        )
        for text in blind:
            if text not in DEFAULT_CONSTRAINTS:
                raise ConfigError(f"--constraint `{text}`: the memory of another machine is not seen; leave it out")
        return tuple(text for text in constraints if text not in blind)


def nothing_restarts(what: str) -> ConfigError:
    """Say that `what` is of no use where the engine runs as it runs."""
    return ConfigError(
        f"{what}: nothing restarts the server, so only the setting that it runs can be measured; give "
        "--restart-hook, or leave it out"
    )


def _refuse_secret(argument: str) -> None:
    """Raise ConfigError for a key: arguments are seen by every user of the machine and are kept in the results."""
    flag = argument.partition("=")[0]
    if flag.endswith(("api-key", "keyfile-password")):
        raise ConfigError(
            f"--engine-arg={flag}=...: a secret must not be an argument, and none is needed: the engine listens on "
            "loopback alone, so leave it out"
        )


def _refuse_fixed_and_searched(argument: str, space: Space) -> None:
    """Raise ConfigError for a flag that is fixed and searched: SGLang would silently take the last one of the two."""
    flag, _, value = argument.removeprefix("--").partition("=")
    for dimension in space.dimensions:
        if dimension.name.replace("_", "-") == flag and dimension.values_text != value:
            raise ConfigError(
                f"--engine-arg={argument}: --{flag} is searched too ({dimension.values_text}); leave it out of one"
            )


def _refuse_too_many(load_processes: int) -> None:
    """Raise ConfigError for processes without a core of their own: they would only slow each other down."""
    cores = len(os.sched_getaffinity(0))
    if load_processes > cores:
        raise ConfigError(f"--load-processes {load_processes}: this machine has {cores} cores; use at most {cores}")


def _refuse_header(name: str | None) -> None:
    """Raise ConfigError for a header that requests cannot carry."""
    try:
        check_header_name("X" if name is None else name)
    except ValueError as problem:
        raise ConfigError(f"--session-header {name}: {problem}") from None
