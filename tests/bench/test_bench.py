"""The bench runs, measures every row on both sides, and judges by the targets alone."""

from __future__ import annotations

import json

import pytest

from tests.bench import watchpoints
from tests.bench.__main__ import main
from tests.bench.figures import TOLERANCE, Row, rows, table


@pytest.mark.long
def test_every_row_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rounds", "1", "--json"])
    shown = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert shown.keys() == {row.name for row in rows().values()}
    for row in shown.values():
        assert row["ratio"] > 0, row
        assert {"relay", "debugpy"} <= row["sides"].keys(), row
        for side in row["sides"].values():
            assert 0 < side["p50_ms"] <= side["p95_ms"]


def test_a_target_is_missed_beyond_the_tolerance_only() -> None:
    row = Row("step", at_most_ms=3, at_most_ratio=0.1)
    row.add("relay", 0.003)
    row.add("debugpy", 0.040)
    assert row.ratio == pytest.approx(0.075)
    assert (row.excess, row.verdict) == (1.0, "met")
    row.seconds["relay"] = [0.0055]
    assert 1 < row.excess <= TOLERANCE
    assert row.verdict == "missed"
    row.seconds["relay"] = [0.009]
    assert row.verdict == "MISSED 3.0x"


def test_the_table_shows_ratios_first_and_says_what_is_missing() -> None:
    measured = {"end": Row("last line to the end")}
    assert table(measured).splitlines()[-1].split()[5:] == ["-"] * 7


@pytest.mark.long
def test_the_cost_of_a_watchpoint_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert watchpoints.main(["3.12"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.startswith("3.12")
