"""`hicache-tune engine`: the engine for machines without a GPU."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

app = App(name="engine", help="Install and look at the engine for machines without a GPU.")


@app.command
def install_cpu(*, home: Path | None = None, wheel_index: str | None = None) -> int:
    """Install the real SGLang on CPU, with a tiny random-weight model, in an environment of its own.

    Parameters
    ----------
    home
        Folder to install in; by default HICACHE_TUNE_CPU_ENGINE_HOME, or one in the user's data folder.
    wheel_index
        Another package index, or a folder of wheels, to take the CPU build of torch from; by default
        HICACHE_TUNE_WHEEL_INDEX, else only pip's own configuration counts.
    """
    from harness.engine.cpu.install import InstallProgress, install

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[message]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=False) as bars:
        tasks = {}

        def show(progress: InstallProgress) -> None:
            if progress.step not in tasks:
                tasks[progress.step] = bars.add_task(progress.step.value, total=progress.total, message="")
            bars.update(tasks[progress.step], completed=progress.done, message=progress.message[:60])

        engine = install(home, wheel_index=wheel_index, report=show)
    console.print(f"SGLang {engine.sglang_version} on CPU (torch {engine.torch_version}) is ready: {engine.python}")
    return 0


@app.command
def where() -> int:
    """Print the Python and the model of the installed CPU engine."""
    from harness.engine.cpu.engine import find

    engine = find()
    console = Console(soft_wrap=True)
    console.print(f"python {engine.python}\nmodel {engine.model_path}")
    return 0
