"""Programs whose debugpy lacks inner names, one for each object that has some: run by
`test_lacking_names.py`.

Runs under any Python that is debugged. The process imports pydevd and the probe once; each program
is a fork of it, and so is the client of each program, which debugs it as the worker would. A name
is lacking as far as the probe can see: pydevd itself has it, or nothing could be debugged at all.
"""

import gc
import json
import os
import signal
import socket
import sys

AT_ONCE = 8
SECONDS = 30
PROGRAM = """\
import os, threading
def double(i):
    return i * 2
for n in range(3):
    j = double(n)
pid = os.fork()
if not pid:
    double(1)
    os._exit(7)
assert os.waitpid(pid, 0)[1] == 7 << 8
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
print("over", j, flush=True)
"""
LINE = 3


class Lacks:
    """An object that has an object, by way of `parents`, in which names are lacking."""

    def __init__(self, whole, parents, lacking):
        self.whole, self.parents, self.lacking = whole, parents, lacking

    def __getattr__(self, name):
        return without(getattr(self.whole, name), name, self.parents, self.lacking)

    def __call__(self, *args, **kwargs):
        return Lacks(self.whole(*args, **kwargs), self.parents, self.lacking)

    def __instancecheck__(self, instance):
        return isinstance(instance, self.whole)


def without(found, name, parents, lacking):
    """The attribute `name` of an object, as far as it may be seen."""
    if not parents and name in lacking:
        raise AttributeError(name)
    return Lacks(found, parents[1:], lacking) if parents and name == parents[0] else found


def is_named_in(code, name):
    """Whether the probe asks for it. Compiled, pydevd has no frame of its own: it may ask for what
    it needs below a frame of the probe's that it traces."""
    return "<frozen relay" in code.co_filename and (
        name in code.co_names or code.co_name == "is_in"
    )


def take_away(lacking, names):
    where = lacking[0].where
    paths = [name.path.replace("()", "").split(".") for name in lacking]
    parents, last = paths[0][:-1], {path[-1] for path in paths}

    def get(this, name):
        found = object.__getattribute__(this, name)
        if not is_named_in(sys._getframe(1).f_code, name):
            return found
        return without(found, name, parents, last)

    if where == names.DB:
        sys.modules["pydevd"].PyDB.__getattribute__ = get
    elif where == names.TRACKER:
        frames = sys.modules["_pydevd_bundle.pydevd_suspended_frames"]
        frames._FramesTracker.__getattribute__ = get
    else:
        module = sys.modules[where]
        module.__class__ = type("Lacking", (type(module),), {"__getattribute__": get})


class Client:
    """The other end of a program's connection, as far as plain DAP goes."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""
        self.seq = 0
        self.answers, self.events, self.said = {}, [], ""

    def send(self, command, **arguments):
        self.seq += 1
        request = {"type": "request", "seq": self.seq, "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self.sock.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self.seq

    def ask(self, command, **arguments):
        seq = self.send(command, **arguments)
        while seq not in self.answers:
            self.receive()
        answer = self.answers.pop(seq)
        assert answer["success"], (command, answer)
        return answer.get("body")

    def until(self, event):
        while event not in self.events:
            self.receive()
        self.events.remove(event)

    def receive(self):
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        size = int(head.rpartition(b":")[2])
        while len(self.data) < size:
            self.more()
        message, self.data = json.loads(self.data[:size].decode()), self.data[size:]
        if message["type"] == "response":
            self.answers[message["request_seq"]] = message
        elif message["type"] == "event":
            self.events.append(message["event"])
            if message["event"] == "output":
                self.said += message["body"]["output"]

    def more(self):
        piece = self.sock.recv(65536)
        assert piece, "the connection has ended"
        self.data += piece


def debugged(sock, setup):
    """What the program said on the console, and `i` where it stopped."""
    token = b""
    while len(token) < len(setup["token"]):
        piece = sock.recv(len(setup["token"]) - len(token))
        assert piece, "nobody comes"
        token += piece
    client = Client(sock)
    client.ask("pydevdAuthorize", debugServerAccessToken=setup["access_token"])
    client.ask("initialize", adapterID="relay", pathFormat="path", linesStartAt1=True)
    attached = client.send("attach")
    client.until("initialized")
    at = {"line": LINE, "condition": "i == 1"}
    client.ask("setBreakpoints", source={"path": setup["program"]}, breakpoints=[at])
    client.ask("configurationDone")
    while attached not in client.answers:
        client.receive()
    client.until("stopped")
    thread = client.ask("threads")["threads"][0]["id"]
    top = client.ask("stackTrace", threadId=thread)["stackFrames"][0]
    value = client.ask("evaluate", expression="i", frameId=top["id"])["result"]
    client.ask("continue", threadId=thread)
    try:
        while True:
            client.receive()
    except (AssertionError, OSError):
        pass  # the program has ended
    return client.said, top["line"], value


def case(lacking, parts, setup):
    """The client of one program, whose answer goes to stdout."""
    signal.alarm(SECONDS)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    setup["port"] = listener.getsockname()[1]
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        listener.close()
        os.dup2(write, 1)
        os.dup2(write, 2)
        program(lacking, parts, setup)
    os.close(write)
    listener.settimeout(0.05)
    sock = status = None
    while sock is None and status is None:
        try:
            sock = listener.accept()[0]
        except OSError:  # none within this time
            ended, status = os.waitpid(pid, os.WNOHANG)
            status = status if ended else None
    result = {"lacking": [*map(str, lacking)], "said": "", "error": None, "stopped": None}
    if sock is not None:
        sock.settimeout(SECONDS)
        try:
            result["said"], line, value = debugged(sock, setup)
            result["stopped"] = [line, value]
        except Exception as error:
            result["error"] = repr(error)
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    with os.fdopen(read) as output:
        result["output"] = output.read()
    result["status"] = status
    os.write(1, (json.dumps(result) + "\n").encode())
    os._exit(0)


def program(lacking, parts, setup):
    signal.alarm(SECONDS)
    load, names, launched, bytecode = parts
    take_away(lacking, names)
    load.import_debugger(setup["debugger_parent"], bytecode)
    probe = launched.Launched(setup, bytecode, (__file__,)).connect()
    probe.started = True
    exec(compile(PROGRAM, setup["program"], "exec"), {"__name__": "__main__"})
    sys.exit()


def of_one_object(names):
    """The names that are needed of each object; what nothing can be debugged without, alone."""
    found = {}
    for name in names.needed():
        essential = name.path if str(name) in names.ESSENTIAL else ""
        found.setdefault((name.where, name.path.rpartition(".")[0], essential), []).append(name)
    return found.values()


def main():
    setup = json.load(sys.stdin)
    with open(setup["program"], "w") as file:
        file.write(PROGRAM)
    texts = setup.pop("texts")
    made = {}
    for text in ("bytecode_cache", "loader"):
        made[text] = {"__name__": text}
        exec(compile(texts[text], "<frozen relay probe>/" + text, "exec"), made[text])
    probe = setup.pop("probe")
    bytecode = made["bytecode_cache"]["Bytecode"](None, probe)
    bring = made["loader"]["loader"](probe["folders"], bytecode, {})
    load, names = bring("engine.loading.load"), bring("engine.names")
    missing, names.missing = names.missing, lambda db=None: ["looked at when one is taken away"]
    load.import_debugger(setup["debugger_parent"], bytecode)
    names.missing = missing
    names._SHOWN = len(names.NAMES)
    parts = load, names, bring("lifecycle.launched"), bytecode
    gc.freeze()  # or each program copies all of it when it collects
    running = 0
    for lacking in of_one_object(names):
        if running == AT_ONCE:
            os.wait()
            running -= 1
        running += 1
        if not os.fork():
            case(lacking, parts, setup)
    while running:
        os.wait()
        running -= 1


main()
