"""The tests' vocabulary: one call a line, and what is expected of its answer."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.operation_row import Operation
from tests.kit.typed import decoded, operation_of

_CALLS = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/api/v1/[^\s;,?]*[\w}])")
# Of calls that name no session, or none that is there.
_WITHOUT_SESSION = {"NOT_FOUND", "INVALID_REQUEST", "ATTACH_NO_SUCH_PROCESS"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes
    operation: Operation | None = None  # what was called, if the answer has its type

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    def ok(self, status: int = 200) -> Any:
        """The data of a success, with the documented defaults of what it leaves out."""
        assert self.status == status, f"{self.status}: {self.raw.decode(errors='replace')[:2000]}"
        assert self.body["success"] is True
        assert self.body["error"] is None
        data = self.body["data"]
        return data if self.operation is None else decoded(self.operation, data)

    def refused(self, code: str, status: int | None = None) -> Any:
        """The error of a refusal, which always says what to do next."""
        body = self.body
        assert body["success"] is False, body
        assert body["data"] is None
        error = body["error"]
        assert error["code"] == code, error
        assert status in (None, self.status), f"{self.status}: {error}"
        assert error["message"]
        suggestion = error["details"]["suggestion"]
        assert suggestion
        assert "…/" not in suggestion
        for verb, path in _CALLS.findall(suggestion):
            operation_of(verb, path)
        assert code in _WITHOUT_SESSION or "{session_id}" not in suggestion, suggestion
        return error


def _called(verb: str, target: str) -> Operation | None:
    try:
        operation = operation_of(verb, target)
    except RelayError:
        return None
    return operation if operation.kind == "json" else None


class Client:
    """A new connection per call, as curl makes them."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port, self.prefix = parts.hostname, parts.port, parts.path

    def call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        within: float = 60.0,
        **query: Any,
    ) -> Answer:
        target = self.prefix + path + ("?" + urlencode(query) if query else "")
        sent = {"Connection": "close", **self.headers, **(headers or {})}
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=within)
        try:
            connection.request(verb, target, data, sent)
            response = connection.getresponse()
            raw = response.read()
            is_other_protocol = path.endswith("/mcp")
            assert verb == "HEAD" or is_other_protocol or raw.endswith(b"\n"), raw[-200:]
            return Answer(response.status, dict(response.headers), raw, _called(verb, target))
        finally:
            connection.close()

    def called(self, **headers: str) -> Client:
        """The same, with these headers in every call: `X_Agent="ann"`."""
        return Client(self.url, **{**self.headers, **headers})

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("PATCH", path, body, **more)

    def delete(self, path: str, **query: Any) -> Answer:
        return self.call("DELETE", path, **query)

    def session(self, **fields: Any) -> Session:
        """A new session."""
        return Session(self, self.post("/sessions", fields).ok(201)["session_id"])


class Session:
    """One session; every method is one call. Ends itself when used in a `with`."""

    def __init__(self, client: Client, id: str) -> None:
        self.client = client
        self.id = id

    def called(self, **headers: str) -> Session:
        """The same session, as another caller sees it."""
        return Session(self.client.called(**headers), self.id)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.delete(f"/sessions/{self.id}", force="true")

    def get(self, path: str = "", **query: Any) -> Answer:
        return self.client.get(f"/sessions/{self.id}{path}", **query)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.client.post(f"/sessions/{self.id}{path}", body, **more)

    def patch(self, path: str = "", body: Any = None, **more: Any) -> Answer:
        return self.client.patch(f"/sessions/{self.id}{path}", body, **more)

    def delete(self, path: str = "", **query: Any) -> Answer:
        return self.client.delete(f"/sessions/{self.id}{path}", **query)

    def break_at(self, path: Any, line: int, **fields: Any) -> Any:
        """One breakpoint, as it stands."""
        body = {"source": {"path": str(path)}, "line": line, **fields}
        return self.post("/breakpoints", {"breakpoints": [body]}).ok()["breakpoints"][0]

    def launch(self, script: Any = None, wait: float = 20, **fields: Any) -> Any:
        """Launch and wait for the first stop or the end."""
        return self.try_launch(script, wait, **fields).ok()

    def try_launch(self, script: Any = None, wait: float = 20, **fields: Any) -> Answer:
        """`launch` where a refusal is of interest, or `module` or `code` instead of a script."""
        what = {} if script is None else {"script": str(script)}
        return self.post("/launch", {**what, "wait": wait, **fields})

    def resume(self, wait: float = 20, **fields: Any) -> Any:
        return self.post("/continue", {"wait": wait, **fields}).ok()

    def step(self, how: str = "over", **fields: Any) -> Any:
        return self.post(f"/step-{how}", fields).ok()

    def status(self) -> Any:
        return self.get("/status").ok()

    def line(self) -> int:
        """Where the program stands."""
        return int(self.status()["current_location"]["line"])

    def value(self, expression: str, **fields: Any) -> Any:
        """The text of an expression's value."""
        answer = self.post("/evaluate", {"expression": expression, **fields}).ok()
        assert answer["error"] is None, answer
        return answer["result"]

    def locals(self, frame_id: int = 0) -> dict[str, str]:
        listed = self.get(f"/frames/{frame_id}/variables").ok()["variables"]
        return {variable["name"]: variable["value"] for variable in listed}

    def printed(self, category: str | None = None) -> str:
        query = {"category": category} if category else {}
        entries = self.get("/output", limit=1000, **query).ok()["entries"]
        return "".join(entry["output"] for entry in entries if entry["encoding"] is None)

    def events(self, *types: str, cursor: str | None = None, timeout: float = 0) -> list[Any]:
        query: dict[str, Any] = {"limit": 1000, "timeout": timeout}
        if types:
            query["types"] = ",".join(types)
        if cursor:
            query["cursor"] = cursor
        return list(self.get("/events", **query).ok()["events"])
