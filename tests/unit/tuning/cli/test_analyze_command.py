"""`hicache-tune analyze` from the flags to what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuning.cli.app import run

TRACE = Path(__file__).parents[3] / "data" / "traces" / "mooncake-synthetic.jsonl.xz"
AZURE = TRACE.with_name("azure-conv.csv.xz")
MACHINE = ["--device-kv-tokens", "400000", "--kv-bytes-per-token", "57344"]


def mooncake(path: Path, requests: list[list[int]]) -> str:
    """Write a Mooncake trace of one request a second."""
    rows = [
        {"timestamp": n * 1000, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
        for n, ids in enumerate(requests)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_trace_is_answered_verdict_first(capsys: pytest.CaptureFixture[str]) -> None:
    """People read stderr; stdout stays empty without --json."""
    assert run(["analyze", str(TRACE), *MACHINE, "--hicache-size", "100,400"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("HiCache is expected to help: --hicache-size 400 (400 GB a rank) raises the hit rate from")
    assert "2,549 sessions" in err
    assert "as good as endless" in err


def test_json_on_stdout_and_a_page_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both from one run; the pools are those of the flag."""
    page = tmp_path / "analysis.html"
    assert run(["analyze", str(TRACE), *MACHINE, "--hicache-size", "50:150:50", "--json", "--html", str(page)]) == 0
    record = json.loads(capsys.readouterr().out)
    pools = [mark["pool"] for mark in record["cache"]["marks"]]
    assert pools == ["", "--hicache-size 50", "--hicache-size 100", "--hicache-size 150"]
    assert record["cache"]["curve"]["hit_rates"][-1] == pytest.approx(0.651, abs=0.005)
    assert record["sentence"] in page.read_text(encoding="utf-8")


def test_sessions_of_a_trace_that_names_none_are_inferred(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second request goes on from the first; the note says how that is known."""
    source = mooncake(tmp_path / "trace.jsonl", [[1, 2, 3], [1, 2, 3, 4], [9, 8]])
    assert run(["analyze", source, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["arrivals"]["sessions"] == 2
    assert record["cache"]["sharing"]["own_session"] == pytest.approx(3 / 9)
    assert any("inferred" in note for note in record["notes"])


def test_a_scenario_is_analysed_by_name_and_sized_by_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    """The control never wins, whatever the device."""
    assert run(["analyze", "low-sharing", "--device-kv-tokens", "50000", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"]["answer"] == "does not help"
    assert record["arrivals"]["times"] == "simulated"


def test_a_trace_of_lengths_alone_shows_its_arrivals(capsys: pytest.CaptureFixture[str]) -> None:
    """No sharing is known, and no zero is shown for it."""
    assert run(["analyze", str(AZURE), "--json"]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert record["verdict"]["answer"] == "cannot be told"
    assert record["cache"] is None
    assert record["arrivals"]["requests"] == 19_366
    assert "Hit rate" not in err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--hicache-size", "8"], "--hicache-size needs the KV pool that it stands behind"),
        (["--device-kv-tokens", "9", "--hicache-size", "8"], "--hicache-size needs the bytes of a token"),
        ([*MACHINE, "--hicache-size", "1.5"], "--hicache-size 1.5: write whole GB"),
        ([*MACHINE, "--hicache-size", "9:1"], "--hicache-size 9:1: this is 0 sizes"),
        ([*MACHINE, "--hicache-size", "1:900"], "this is 900 sizes; ask for 1 to 50"),
        (["--gpu-memory-gib", "80"], "--gpu-memory-gib alone says nothing of the KV pool"),
        (
            ["--gpu-memory-gib", "10", "--weights-gib", "14", "--kv-bytes-per-token", "57344"],
            "10 GiB x 0.603 leave no KV pool beside weights of 14.0 GiB",
        ),
        (["--model", "./nowhere"], "--model ./nowhere: no such folder"),
        (["--page-size", "0"], "page-size"),
        (["--format", "moncake"], "no format is named `moncake`"),
    ],
)
def test_wrong_flags_are_said_in_a_sentence(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and what to do."""
    assert run(["analyze", str(TRACE), *flags]) == 1
    assert sentence in capsys.readouterr().err


def test_what_is_neither_a_scenario_nor_a_file_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest name."""
    assert run(["analyze", "suport-chat"]) == 1
    assert "did you mean `support-chat`" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["nope.jsonl", "traces/nope"])
def test_a_trace_that_is_not_there_is_said(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What looks like a file is no misspelled scenario."""
    assert run(["analyze", path]) == 1
    assert f"cannot read the trace {path}: No such file or directory" in capsys.readouterr().err


def test_text_without_a_model_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """A chat log is no broken file: what is missing is the tokenizer that counts it."""
    assert run(["analyze", str(TRACE.parents[1] / "scenarios" / "chats.jsonl")]) == 1
    assert "or give --model when it holds text" in capsys.readouterr().err


def test_a_tiny_pool_is_not_called_0_gb(capsys: pytest.CaptureFixture[str]) -> None:
    """The CPU engine's pools are far below a gigabyte."""
    assert run(["analyze", "cpu-smoke", "--device-kv-tokens", "6272", "--kv-bytes-per-token", "4096"]) == 0
    assert "--hicache-ratio 2 (0.051 GB a rank)" in capsys.readouterr().err.replace("\n", " ")


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The analysis is printed all the same."""
    source = mooncake(tmp_path / "trace.jsonl", [[1], [1]])
    assert run(["analyze", source, "--html", str(tmp_path / "trace.jsonl" / "page.html")]) == 1
    err = capsys.readouterr().err
    assert "It depends" in err
    assert "page.html" in err
