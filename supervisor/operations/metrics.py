"""Counts what the relay does, and shows it in the text format of Prometheus.

Only names of our own tables become labels (operations, codes, states), so a caller cannot make the
list grow. What the sessions are doing is read when somebody asks.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct, field

from debug_relay.protocol.state import State
from debug_relay.protocol.system import procfs
from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.sessions.mirror import Session

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "debug_relay_"
# The upper bounds of a histogram's buckets: a status takes 0.2 ms, an attach 0.3 s, a wait 60 s.
_BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_ATTACH: Final = "attach"

_Labels = tuple[tuple[str, str], ...]


class _Histogram(Struct):
    """How long something took, as Prometheus counts it."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_SECONDS) + 1))
    total_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(_BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


class Metrics:
    """The counters live as long as the relay's process: Prometheus knows that they begin anew."""

    def __init__(self, refused: Mapping[str, int]) -> None:
        """`refused`: how many connections and requests were refused."""
        self._refused = refused
        self._began = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, _Histogram] = {}
        self._attaches = _Histogram()
        self._refusals: Counter[str] = Counter()
        self._output_seen: dict[str, int] = {}
        self._output_bytes = 0

    def count(self, operation: str, status: int, seconds: float, code: str | None) -> None:
        """One request: `code` is that of its error."""
        self._requests[operation, status] += 1
        histogram = self._seconds.get(operation)
        if histogram is None:
            histogram = self._seconds[operation] = _Histogram()
        histogram.add(seconds)
        if code is not None:
            self._refusals[code] += 1

    def count_attach(self, seconds: float) -> None:
        self._attaches.add(seconds)

    def text(self, sessions: Mapping[str, Session]) -> bytes:
        """The page. It reads files of each session, so it runs in a thread."""
        return "".join(self._lines(list(sessions.values()))).encode()

    def _lines(self, sessions: list[Session]) -> Iterator[str]:
        yield from _family(
            "build_info", "gauge", "The relay's version.", [((("version", VERSION),), 1)]
        )
        yield from _family(
            "start_time_seconds", "gauge", "When the relay started.", [((), self._began)]
        )
        states = Counter(session.state.status for session in sessions)
        yield from _family(
            "sessions",
            "gauge",
            "Sessions by state.",
            [((("state", state.value),), states[state]) for state in State],
        )
        yield from _family(
            "requests_total",
            "counter",
            "Requests by operation and status.",
            [
                ((("operation", operation), ("status", str(status))), count)
                for (operation, status), count in sorted(self._requests.items())
            ],
        )
        yield from _histograms(
            "request_seconds",
            "Time from a request to its answer, waiting included.",
            [((("operation", name),), self._seconds[name]) for name in sorted(self._seconds)],
        )
        yield from _histograms(
            "attach_seconds", "Time of the attaches that succeeded.", [((), self._attaches)]
        )
        yield from _family(
            "refusals_total",
            "counter",
            "Requests that ended with an error, by its code.",
            [((("reason", code),), count) for code, count in sorted(self._refusals.items())],
        )
        yield from _family(
            "not_admitted_total",
            "counter",
            "Connections refused by their user, and requests refused by Host, Origin or token.",
            [((("what", what),), count) for what, count in sorted(self._refused.items())],
        )
        yield from _family(
            "output_bytes_total",
            "counter",
            "Bytes of output that were kept, of sessions that were seen at a look at this page.",
            [((), self._output(sessions))],
        )
        yield from _worker_memory(sessions)

    def _output(self, sessions: Iterable[Session]) -> int:
        """A counter never falls, so it keeps the bytes of sessions that are gone by now."""
        seen: dict[str, int] = {}
        for session in sessions:
            before = self._output_seen.get(session.id, 0)
            seen[session.id] = before
            with suppress(OSError):  # it is being deleted
                seen[session.id] = max(before, session.output.end())
            self._output_bytes += seen[session.id] - before
        self._output_seen = seen
        return self._output_bytes


def _worker_memory(sessions: Iterable[Session]) -> Iterator[str]:
    """Without a label for the session: each new session would be a time series for ever."""
    found = [procfs.stat(session.child.pid) for session in sessions if session.child is not None]
    sizes = [stat.resident_bytes for stat in found if stat is not None]
    for name, words, value in (
        ("workers", "Workers that run.", len(sizes)),
        ("worker_resident_bytes", "Memory of all workers.", sum(sizes)),
        ("largest_worker_resident_bytes", "Memory of the largest worker.", max(sizes, default=0)),
    ):
        yield from _family(name, "gauge", words, [((), value)])


def _family(
    name: str, kind: str, words: str, samples: Iterable[tuple[_Labels, float]]
) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {words}\n# TYPE {_PREFIX}{name} {kind}\n"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _histograms(
    name: str, words: str, samples: Iterable[tuple[_Labels, _Histogram]]
) -> Iterator[str]:
    yield from _family(name, "histogram", words, ())
    for labels, histogram in samples:
        so_far = 0
        bounds = [*map(str, _BOUNDS_SECONDS), "+Inf"]
        for bound, count in zip(bounds, histogram.counts, strict=True):
            so_far += count
            yield _sample(f"{name}_bucket", (*labels, ("le", bound)), so_far)
        yield _sample(f"{name}_sum", labels, round(histogram.total_seconds, 6))
        yield _sample(f"{name}_count", labels, so_far)


def _sample(name: str, labels: _Labels, value: float) -> str:
    # No value needs escaping: all are names of our own tables, ids and versions.
    shown = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{_PREFIX}{name}{{{shown}}} {value}\n" if shown else f"{_PREFIX}{name} {value}\n"
