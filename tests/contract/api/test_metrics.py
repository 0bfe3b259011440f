"""`GET /metrics`, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running

Start = Callable[..., Running]

WAITS = """
    import time
    print("up", flush=True)
    while True:
        time.sleep(0.01)
"""


class Page:
    """The metrics at this moment."""

    def __init__(self, client: Client) -> None:
        reply = client.get("/metrics")
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families = {
            family.name: family for family in text_string_to_metric_families(reply.raw.decode())
        }

    def samples(self, name: str, **labels: str) -> Iterator[Sample]:
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == f"debug_relay_{name}" and labels.items() <= sample.labels.items():
                    yield sample

    def value(self, name: str, **labels: str) -> float:
        return sum(sample.value for sample in self.samples(name, **labels))


def test_what_the_relay_did_is_counted(relay: Client, start: Start) -> None:
    before = Page(relay)
    assert before.value("sessions") == 0
    assert before.value("build_info") == 1
    assert before.families["debug_relay_attach_seconds"].type == "histogram"
    one = start(WAITS)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid}).ok()
        assert relay.get("/sessions/ses_unknown").status == 404
        page = Page(relay)

        def more(name: str, **labels: str) -> float:
            return page.value(name, **labels) - before.value(name, **labels)

        assert page.value("sessions", state="running") == 1
        assert more("attach_seconds_count") == 1
        assert 0 < more("attach_seconds_sum") < 60
        assert more("requests_total", operation="attach", status="200") == 1
        assert more("requests_total", operation="get-session", status="404") == 1
        assert more("refusals_total", reason="SESSION_NOT_FOUND") == 1
        assert page.value("workers") == 1
        assert page.value("worker_resident_bytes") > 1 << 20
        assert page.value("largest_worker_resident_bytes") == page.value("worker_resident_bytes")
        assert session.id not in str(page.families)
        buckets = [one.value for one in page.samples("request_seconds_bucket", operation="attach")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == page.value("request_seconds_count", operation="attach")
    assert Page(relay).value("workers") == 0


def test_output_is_still_counted_after_its_session_is_gone(relay: Client) -> None:
    def printed() -> float:
        return Page(relay).value("output_bytes_total")

    before = printed()
    with relay.session() as session:
        session.post("/launch", {"code": "print('x' * 10_000)", "wait": 20}).ok()
        eventually(lambda: printed() > before + 10_000)
    assert printed() > before + 10_000


def test_refused_requests_are_counted_and_make_no_labels(relay: Client) -> None:
    before = Page(relay)
    for name in ("evil.example", "other.example"):
        assert relay.get("/health", headers={"Host": name}).status == 403
        assert relay.get(f"/{name}").status == 404
    page = Page(relay)
    for metric, label in (("not_admitted_total", "what"), ("refusals_total", "reason")):
        value = {"what": "request.refused", "reason": "FORBIDDEN_HOST"}[label]
        assert page.value(metric, **{label: value}) == before.value(metric, **{label: value}) + 2
    assert "example" not in str(page.families)
