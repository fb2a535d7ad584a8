"""What a Docker image has and what its containers are given: SGLang's flags, and the models of the hub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from pydantic import ValidationError

from harness.engine import dump_flags
from harness.engine.docker import Image, gpu_flags
from harness.engine.flag_source import default_cache
from harness.engine.flags import FlagTable
from harness.errors import ConfigError, EngineMissing, StoreError
from harness.files import write_atomically

INSPECT_S = 30.0
ASK_S = 600.0
"""An image that is not here yet is fetched first, which the registry's speed decides on."""
HUB_INSIDE = "/root/.cache/huggingface/hub"
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def read_image_flags(image: Image, *, cache: Path | None = None) -> FlagTable:
    """Return the flags and the version of the SGLang in `image`; its parser is asked once for each image.

    The first question fetches an image that is not here yet. Raises EngineMissing when there is no Docker client, no
    such image, or no SGLang in it.
    """
    if shutil.which(image.program) is None:
        raise EngineMissing(f"{image.program}: no such program; install Docker or use --engine local")
    folder = cache or default_cache()
    if (key := _id(image)) and (known := _read(folder / f"{key}.json")):
        return known
    table = _ask(image)
    if key := _id(image):
        try:
            write_atomically(folder / f"{key}.json", table.model_dump_json(exclude_defaults=True))
        except StoreError:
            return table  # a cache that cannot be written costs the next start some seconds, nothing else
    return table


def hub_mount(model: str) -> tuple[Path, str]:
    """Return the folder of a hub model, here and inside a container; raise ConfigError when it is not here.

    What a container fetches is lost with it, so every trial would fetch the model again.
    """
    hub = hub_folder()
    if not (hub / f"models--{model.replace('/', '--')}").is_dir():
        raise ConfigError(
            f"--model {model}: it is not in the cache of the hub ({hub}), and each container would fetch it again; "
            f"run `hf download {model}` first, or give the folder that holds the model"
        )
    return hub, HUB_INSIDE


def hub_folder() -> Path:
    """Return the cache of the Hugging Face hub, where its own variables say."""
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface") / "hub"


def _ask(image: Image) -> FlagTable:
    question = Path(dump_flags.__file__).read_bytes()
    words = [image.program, "run", "--rm", "--interactive", *gpu_flags(image), "--entrypoint", image.python, image.name]
    try:
        answer = subprocess.run([*words, "-"], input=question, capture_output=True, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        raise EngineMissing(
            f"--image {image.name}: no answer within {ASK_S:g} s; fetch it with `{image.program} pull {image.name}`"
        ) from None
    try:
        said = json.loads(answer.stdout)
        return FlagTable.model_validate({**said, "provenance": f"the parser of SGLang {said['sglang_version']}"})
    except (ValueError, KeyError, TypeError):
        last = answer.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise EngineMissing(
            f"--image {image.name}: its {image.python} does not tell SGLang's flags ({last[0]}); name an image of "
            "SGLang, such as lmsysorg/sglang:v0.5.15"
        ) from None


def _id(image: Image) -> str:
    """Return the id of the image's content as a file name; empty when the image is not here."""
    words = [image.program, "image", "inspect", "--format", "{{.Id}}", image.name]
    try:
        said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSPECT_S)
    except subprocess.TimeoutExpired:
        return ""
    return said.stdout.strip().replace(":", "-") if said.returncode == 0 else ""


def _read(path: Path) -> FlagTable | None:
    """Read a cached table; None when there is none, or a damaged or older one."""
    try:
        return FlagTable.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
