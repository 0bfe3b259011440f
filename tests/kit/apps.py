"""Servers as users have them: a handler each that doubles a number, at the line `@handler`.

They come with the real third-party packages, of whatever Python they are started with.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.kit.listening import free_port
from tests.kit.relay import eventually
from tests.kit.source import Source

WITHIN = 30.0
FLASK = """
    from flask import Flask

    app = Flask(__name__)

    @app.get("/double/<int:n>")
    def double(n):
        doubled = n * 2  # @handler
        return str(doubled)
    """
MANAGE = """
    import os
    import sys

    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    if __name__ == "__main__":
        execute_from_command_line(sys.argv)
    """
SETTINGS = """
    SECRET_KEY = "not one"
    DEBUG = True
    ROOT_URLCONF = "urls"
    ALLOWED_HOSTS = ["*"]
    """
URLS = """
    from django.http import HttpResponse
    from django.urls import path

    def double(request, n):
        doubled = n * 2  # @handler
        return HttpResponse(str(doubled))

    urlpatterns = [path("double/<int:n>", double)]
    """
ASGI = """
    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        n = int(scope["path"].rsplit("/", 1)[1])
        doubled = n * 2  # @handler
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % doubled})
    """
WSGI = """
    def app(environ, start_response):
        n = int(environ["PATH_INFO"].rsplit("/", 1)[1])
        doubled = n * 2  # @handler
        start_response("200 OK", [])
        return [b"%d" % doubled]
    """

# Its socket lies in the home directory otherwise; older ones do not know the word and ignore it.
GUNICORN = "control_socket_disable = True"


class App(NamedTuple):
    """How it is started: the last file of `files` has the handler."""

    files: dict[str, str]
    command: tuple[str, ...]  # what follows `python`; {port} is put in


_DJANGO = {"manage.py": MANAGE, "settings.py": SETTINGS, "urls.py": URLS}
_FLASK = ("-m", "flask", "--app", "served", "run", "--port", "{port}")
_UVICORN = ("-m", "uvicorn", "served:app", "--port", "{port}")
_GUNICORN = ("-m", "gunicorn", "served:app", "-b", "127.0.0.1:{port}")
APPS = {
    "flask": App({"served.py": FLASK}, _FLASK),
    "flask --debug": App({"served.py": FLASK}, (*_FLASK, "--debug")),
    "django": App(_DJANGO, ("manage.py", "runserver", "--noreload", "{port}")),
    "django with reload": App(_DJANGO, ("manage.py", "runserver", "{port}")),
    "uvicorn": App({"served.py": ASGI}, _UVICORN),
    "uvicorn --reload": App({"served.py": ASGI}, (*_UVICORN, "--reload")),
    "gunicorn": App({"gunicorn.conf.py": GUNICORN, "served.py": WSGI}, _GUNICORN),
}


class Served:
    """An app in a folder of its own, on a free port; nothing of it runs yet."""

    def __init__(self, name: str, folder: Path) -> None:
        app = APPS[name]
        self.folder = folder
        self.port = free_port()
        for file, text in app.files.items():
            self.handler = Source(folder / file, text)
        self.command = [part.format(port=self.port) for part in app.command]

    def launch(self) -> dict[str, object]:
        """The same command as the fields of a launch."""
        first, *rest = self.command
        if first == "-m":
            return {"module": rest[0], "args": rest[1:], "cwd": str(self.folder)}
        return {"script": str(self.folder / first), "args": rest, "cwd": str(self.folder)}

    def until_up(self) -> None:
        def answers() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", self.port)) == 0

        eventually(answers, timeout=WITHIN, what=f"{self.command} serves")

    def ask(self, n: int) -> str:
        url = f"http://127.0.0.1:{self.port}/double/{n}"
        with urllib.request.urlopen(url, timeout=WITHIN) as answer:
            return str(answer.read().decode())


class Request:
    """One that is on its way: whoever stops at the handler holds it."""

    def __init__(self, served: Served, n: int) -> None:
        self._answers: list[str] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(served.ask(n)))
        self._thread.start()

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    def answer(self) -> str:
        self._thread.join(WITHIN)
        assert self._answers, "no answer"
        return self._answers[0]


class Started:
    """An app that runs without a debugger, ended by `end` with all its processes."""

    def __init__(self, served: Served, python: str = sys.executable) -> None:
        self.served = served
        self.log = served.folder / "log"
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [python, *served.command],
                cwd=served.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid
        served.until_up()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def children(self) -> list[int]:
        words = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in words.split()]

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, 9)
        self.process.wait()
