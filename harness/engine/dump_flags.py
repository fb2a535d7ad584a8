"""Print every flag of `sglang.launch_server` as JSON. Run with the engine's own Python; needs nothing of ours.

`python dump_flags.py` prints {"sglang_version": ..., "flags": [...]} as the only thing on stdout; what SGLang prints
while it is imported goes to stderr.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules must not stand in for packages that SGLang imports

import argparse
import importlib.metadata
import json
import os

NUMBERS = {"int": "int", "float": "float", "human_readable_int": "human_int", "loads": "json", "json_list_type": "json"}
PLAIN = (bool, int, float, str)


def main() -> None:
    """Build SGLang's parser and print what it knows."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    parser._actions.remove(parser._option_string_actions["--help"])
    flags = [described(action) for action in parser._actions if any(map(is_long, action.option_strings))]
    version = importlib.metadata.version("sglang")
    json.dump({"sglang_version": version, "flags": sorted(flags, key=lambda flag: flag["name"])}, out)
    out.close()


def described(action: argparse.Action) -> dict[str, object]:
    """Describe one flag in the words of `harness.engine.flags.Flag`."""
    name, *aliases = [option[2:] for option in action.option_strings if is_long(option)]
    default = action.default if isinstance(action.default, PLAIN) else None
    return {
        "name": name,
        "aliases": aliases,
        "kind": kind_of(action),
        "choices": [choice for choice in action.choices or () if isinstance(choice, PLAIN)],
        "default": None if default == argparse.SUPPRESS else default,
        "many": action.nargs in ("+", "*"),
        "deprecated": type(action).__name__.startswith("Deprecated"),
    }


def kind_of(action: argparse.Action) -> str:
    """Say how a value is written; a switch takes none."""
    if action.nargs == 0:
        return "switch"
    return NUMBERS.get(getattr(action.type, "__name__", ""), "text")


def is_long(option: str) -> bool:
    """Whether this is a long option, as SGLang's are."""
    return option.startswith("--")


if __name__ == "__main__":
    main()
