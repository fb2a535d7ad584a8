"""Our settings against what real engines say of themselves at /server_info."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.engine.attach import attached_spec, running_setting
from harness.engine.effective import differences, not_told, told_memory
from harness.engine.flag_meanings import FLAGS_THAT_MATTER
from harness.engine.flag_source import shipped
from harness.engine.setting import Setting
from tests.support.models import model_config
from tests.support.recordings import DATA

pytestmark = pytest.mark.contract

FOLDER = DATA / "server_info"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
OFF = Setting(mem_fraction_static=0.22)
WRITE_THROUGH = Setting(hicache=True, hicache_size=60, mem_fraction_static=0.22)


def info(name: str) -> dict[str, Any]:
    """Read one recording."""
    return dict(json.loads(gzip.decompress(Path(FOLDER / f"{name}.json.gz").read_bytes())))


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_of_a_setting_is_told(name: str) -> None:
    """Each field of a setting has its key, so none is believed without being compared."""
    whole = Setting(
        hicache=True,
        hicache_ratio=2,
        hicache_write_policy="write_back",
        hicache_io_backend="direct",
        hicache_mem_layout="layer_first",
        mem_fraction_static=0.5,
        page_size=16,
    )
    assert not_told(whole, info(name)) == []
    assert not_told(Setting(hicache=True, hicache_size=60), info(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_that_matters_is_told(name: str) -> None:
    """What we explain of 0.5.15 is also compared after a launch."""
    table = shipped("0.5.15")
    known = {meaning.name: True for meaning in FLAGS_THAT_MATTER if table.find(meaning.name)}
    assert not_told(Setting(extra=dict(known)), info(name)) == []


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("h200-0.5.15-off", OFF),
        ("h200-0.5.15-wt60", WRITE_THROUGH),
        ("h200-0.5.15-wb60", WRITE_THROUGH.model_copy(update={"hicache_write_policy": "write_back"})),
        ("h200-0.5.15-frac50", Setting(mem_fraction_static=0.5)),
        ("cpu-0.5.15-hicache_l3_ps16", Setting(hicache=True, page_size=16)),
    ],
)
def test_the_canonical_setting_is_what_ran(name: str, asked: Setting) -> None:
    """The canonical form of what was asked does not differ from what the server said it ran."""
    told = info(name)
    if name.startswith("cpu"):
        asked = asked.model_copy(update={"hicache_io_backend": told["hicache_io_backend"]})
        asked = asked.model_copy(update={"hicache_mem_layout": told["hicache_mem_layout"]})
        asked = asked.model_copy(update={"hicache_ratio": told["hicache_ratio"]})
    assert list(differences(asked.canonical(), told)) == []


def test_another_setting_differs_in_what_it_asks() -> None:
    """The recording of write_through, held against a setting of write_back and of 40 GB, shows both."""
    asked = Setting(hicache=True, hicache_size=40, hicache_write_policy="write_back", page_size=64).canonical()
    found = {(d.flag, d.asked, d.got) for d in differences(asked, info("h200-0.5.15-wt60"))}
    assert found == {
        ("--hicache-size", "40", "60"),
        ("--hicache-write-policy", "write_back", "write_through"),
        ("--page-size", "64", "1"),
    }


def test_hicache_that_is_off_is_seen() -> None:
    """A server without HiCache is not taken for one with it."""
    found = list(differences(Setting(hicache=True).canonical(), info("h200-0.5.15-off")))
    assert [(d.flag, d.got) for d in found] == [("--enable-hierarchical-cache", "False")]


def test_the_setting_of_a_running_engine() -> None:
    """What an attached engine runs is read as a setting, its size in place of the ratio that SGLang shows as well."""
    running = running_setting(info("h200-0.5.15-wt60"))
    assert running == WRITE_THROUGH.canonical().model_copy(update={"page_size": 1})
    assert running_setting(info("h200-0.5.15-off")) == Setting(mem_fraction_static=0.22, page_size=1)
    assert list(differences(running, info("h200-0.5.15-wt60"))) == []


def test_an_attached_engine_describes_itself(tmp_path: Path) -> None:
    """Version, ranks and device come from the engine, the rest from the model's folder where there is one."""
    (tmp_path / "config.json").write_text(json.dumps(model_config("qwen2-7b")))
    spec = attached_spec(info("h200-0.5.15-wt60"), str(tmp_path))
    assert (spec.sglang_version, spec.around.version, spec.device, spec.ranks) == ("0.5.15", (0, 5, 15), "cuda", 1)
    assert (spec.here, spec.around.architecture, spec.kv_bytes_per_token()) == (False, "Qwen2ForCausalLM", 57_344)
    spread = attached_spec({"version": "0.5.23", "tp_size": 4, "dp_size": 2, "enable_dp_attention": True}, "Org/Name")
    assert (spread.ranks, spread.attention_ranks, spread.around.is_late) == (4, 2, True)


def test_memory_as_the_h200_told_it() -> None:
    """Weights, KV pool and graphs in bytes, from hundredths of GiB."""
    told = told_memory(info("h200-0.5.15-wt60"))
    assert told.weights_bytes == round(12.38 * 2**30)
    assert told.kv_pool_bytes == round(18.18 * 2**30)
    assert told.graphs_bytes == round(0.08 * 2**30)
