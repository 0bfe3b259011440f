"""`GET /docs`: the reference as one HTML page that needs no other file and no internet.

The page is the reference (`reference.py`) with an example of each call and a field that searches.
It knows only the Markdown that the reference consists of: headings, paragraphs, code, links within
the page, and tables.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Iterator
from typing import Final

from debug_relay.protocol.calls import filled
from debug_relay.protocol.docs.examples import EXAMPLES, PATH_VALUES
from debug_relay.protocol.docs.reference import reference
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX

CONTENT_TYPE: Final = "text/html; charset=utf-8"
_CODE: Final = re.compile(r"`([^`]*)`")
_LINK: Final = re.compile(r"\[([^\]]+)\]\((#[\w-]+)\)")

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; background: Canvas; color: CanvasText; }
header { position: sticky; top: 0; display: flex; gap: 1rem; align-items: center;
  padding: .6rem 1rem; background: Canvas; border-bottom: 1px solid var(--line); }
header label { flex: 1; }
input { width: 100%; max-width: 36rem; font: inherit; padding: .3rem .6rem; }
main { max-width: 64rem; margin: 0 auto; padding: 0 1rem 4rem; overflow-wrap: anywhere; }
section { scroll-margin-top: 4rem; }
h1 { font-size: 1.1rem; margin: 0; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
code, pre { font: .9em/1.5 ui-monospace, monospace; }
code { background: var(--soft); padding: .1em .3em; border-radius: 3px; }
pre { background: var(--soft); padding: .6rem; white-space: pre-wrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); }
th, td:first-child { white-space: nowrap; }
[hidden] { display: none; }
@media (max-width: 50rem) {
  th, td, td:first-child { white-space: normal; overflow-wrap: anywhere; }
}
"""

_SCRIPT: Final = """
const field = document.querySelector("input");
const count = document.querySelector("output");
const sections = [...document.querySelectorAll("section")];
const texts = sections.map((section) => section.textContent.toLowerCase());
function search() {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let found = 0;
  sections.forEach((section, index) => {
    section.hidden = !words.every((word) => texts[index].includes(word));
    found += section.hidden ? 0 : 1;
  });
  count.textContent = words.length ? `${found} of ${sections.length}` : "";
}
field.addEventListener("input", search);
addEventListener("hashchange", () => { field.value = ""; search(); });
addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target !== field) { event.preventDefault(); field.focus(); }
  if (event.key === "Escape") { field.value = ""; search(); }
});
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final[dict[str, str]] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(_SCRIPT)}",
            f"style-src {_hash(_STYLE)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Referrer-Policy": "no-referrer",
}


def html_page(url: str) -> bytes:
    """The page of a relay at this address."""
    body = "\n".join(_sections(reference(is_file=False), url))
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>Debug relay: reference</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        "<header><h1>Debug relay</h1>"
        '<label><input type="search" placeholder="Search (press /)" aria-label="Search"></label>'
        "<output></output></header>\n"
        f"<main>\n{body}\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
    return page.encode()


def _sections(markdown: str, url: str) -> Iterator[str]:
    for part in re.split(r"^(?=#{1,3} )", markdown, flags=re.MULTILINE):
        heading, _, rest = part.partition("\n")
        marks, _, title = heading.partition(" ")
        if not title:
            continue
        level = min(len(marks) + 1, 3)
        name = title.partition(" (")[0].strip("`")
        anchor = re.sub(r"[^\w-]", "", name.lower().replace(" ", "-"))
        blocks = [_block(text) for text in rest.strip().split("\n\n") if text]
        if level == 3 and name in OPERATIONS:
            blocks.append(f"<pre>{html.escape(_example_call(OPERATIONS[name], url))}</pre>")
        yield f'<section id="{anchor}">\n<h{level}>{_inline(title)}</h{level}>'
        yield from blocks
        yield "</section>"


def _block(text: str) -> str:
    if not text.startswith("| "):
        return f"<p>{_inline(text)}</p>"
    head, _, *rows = text.splitlines()
    lines = ["<tr>" + "".join(f"<th>{_inline(cell)}</th>" for cell in _cells(head)) + "</tr>"]
    lines += [
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in _cells(row)) + "</tr>"
        for row in rows
    ]
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _cells(row: str) -> list[str]:
    inner = row.removeprefix("| ").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    return _LINK.sub(r'<a href="\2">\1</a>', _CODE.sub(r"<code>\1</code>", escaped))


def _example_call(row: Operation, url: str) -> str:
    """The call as a shell command, with the values of the examples."""
    example = EXAMPLES.get(row.name)
    given = dict(example.request) if example is not None else {}
    target = url.removesuffix(API_PREFIX) + filled(row.path, dict(PATH_VALUES))
    sent = {key: value for key, value in given.items() if "{" + key + "}" not in row.path}
    if row.kind == "sse":
        return f"curl -sN {target}"
    if row.kind == "websocket":
        return f"websocat {_websocket(target)}"
    if not row.takes_body:
        asked = "".join(
            f" --data-urlencode {shlex.quote(f'{key}={_query(value)}')}"
            for key, value in sent.items()
        )
        query = "G" if asked else ""
        verb = "" if row.verb == "GET" else f" -X {row.verb}"
        return f"curl -s{query}{verb}{asked} {shlex.quote(target)}"
    verb = "" if row.verb == "POST" else f"-X {row.verb} "
    return f"curl -s {verb}--json {shlex.quote(json.dumps(sent))} {shlex.quote(target)}"


def _query(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _websocket(target: str) -> str:
    return re.sub("^http", "ws", target)
