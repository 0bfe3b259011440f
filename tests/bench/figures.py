"""What is measured, what it should be, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

# A target that is missed by more than this factor fails the run: the machine is shared.
TOLERANCE: Final = 2.0
SIDES: Final = ("relay", "relay, new connection", "debugpy")


@dataclass
class Row:
    """One operation: its targets for the median, and the seconds that each side took."""

    name: str
    at_most_ms: float | None = None
    at_most_ratio: float | None = None  # of what it is compared with
    beside: str = "debugpy"  # as shipped; or `plain`, the program without a debugger
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, seconds: float) -> None:
        self.seconds.setdefault(side, []).append(seconds)

    def ms(self, side: str, share: float) -> float | None:
        taken = sorted(self.seconds.get(side, ()))
        if not taken:
            return None
        return taken[min(len(taken) - 1, round(share * (len(taken) - 1)))] * 1e3

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.ms("relay", 0.5), self.ms(self.beside, 0.5)
        return ours / theirs if ours is not None and theirs else None

    @property
    def excess(self) -> float:
        """How many times the worst target; 1 or less is met."""
        ours = self.ms("relay", 0.5)
        factors = [0.0]
        if self.at_most_ms is not None and ours is not None:
            factors.append(ours / self.at_most_ms)
        if self.at_most_ratio is not None and self.ratio is not None:
            factors.append(self.ratio / self.at_most_ratio)
        return max(factors)

    @property
    def target(self) -> str:
        parts = []
        if self.at_most_ms is not None:
            parts.append(f"{self.at_most_ms:g} ms")
        if self.at_most_ratio is not None:
            parts.append(f"{self.at_most_ratio:g}x")
        return ", ".join(parts)

    @property
    def verdict(self) -> str:
        if not self.target:
            return ""
        if self.excess <= 1:
            return "met"
        return "missed" if self.excess <= TOLERANCE else f"MISSED {self.excess:.1f}x"

    def public(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ratio": self.ratio,
            "beside": self.beside,
            "target_ms": self.at_most_ms,
            "target_ratio": self.at_most_ratio,
            "excess": self.excess,
            "sides": {
                side: {"n": len(taken), "p50_ms": self.ms(side, 0.5), "p95_ms": self.ms(side, 0.95)}
                for side, taken in self.seconds.items()
            },
        }


def rows() -> dict[str, Row]:
    """By a short name, in the order in which they are shown."""
    return {
        "step": Row("step over, reply at the stop", 3, 0.1),
        "report": Row("step with its stop report", 3),
        "wide": Row("  the same with 500 locals", 8),
        "deep": Row("  the same, 3,000 frames deep", 8),
        "evaluate": Row("evaluate", 2),
        "look": Row("stack + scopes + variables"),
        "locals": Row("scope of 50 locals", 10),
        "continue": Row("continue to the next hit"),
        "breakpoint": Row("set one breakpoint", 10),
        "hits": Row("1000 hits in a loop, no stop", None, 0.6),
        "calls": Row("1000 calls with a hit, no stop", None, 0.6),
        "raised_10": Row("1000 handled, 10 deep; / plain", None, 2.5, beside="plain"),
        "raised_500": Row("  500 deep; / plain", None, 2.5, beside="plain"),
        "trace": Row("row of a trace (there: a step)", 0.1, 0.01),
        "status": Row("status (debugpy: threads)", 1),
        "wake": Row("print to long-poll's answer"),
        "create": Row("create a session", 150),
        "first_stop": Row("launch to the first stop", None, 0.6),
        "end": Row("last line to the end"),
        "command": Row("a command; debugpy --version", 100),
    }


def table(measured: dict[str, Row]) -> str:
    lines = [
        f"{'':30}{'relay /':>9}{'':18}{'relay ms':>16}{'new conn. ms':>16}{'debugpy ms':>18}",
        f"{'':30}{'debugpy':>9}  {'target':>16}"
        f"{'p50':>8}{'p95':>8}{'p50':>8}{'p95':>8}{'p50':>9}{'p95':>9}",
    ]
    for row in measured.values():
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}x"
        cells = [_cell(row.ms(side, share)) for side in SIDES for share in (0.5, 0.95)]
        widths = (8, 8, 8, 8, 9, 9)
        shown = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"{row.name:30}{ratio:>9}  {row.target:>16}{shown}  {row.verdict}".rstrip())
    return "\n".join(lines)


def _cell(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.2f}"
