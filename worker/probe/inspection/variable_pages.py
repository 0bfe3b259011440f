"""Lists the contents of scopes, containers, objects and results in pages.

The stopped thread does it itself. If it hangs in the program's code, another thread does it, and
runs none of that code.
"""

from debug_relay.worker.probe.runtime.deferred_signals import hold
from debug_relay.worker.probe.values.attributes import CLASS, Lazy, OfClass, in_order
from debug_relay.worker.probe.values.class_facts import full_name, key_of, name_of, printable
from debug_relay.worker.probe.values.parts import INDEXED, NAMED, names_of, parts, rows
from debug_relay.worker.probe.values.rendering import LEAVES as PLAIN
from debug_relay.worker.probe.values.rendering import Interrupted, View, clean

LEAVES = PLAIN | {object}
SECONDS = 0.5  # The program's own code runs this long for all rows of a page together.
BOUNDS = {
    "row": {"width": 1000, "nodes": 200, "items": 50, "total": 20000},
    "whole": {"width": 65536, "nodes": 20000, "items": 10000, "depth": 8, "total": 20000},
}


class Node(object):
    """A value that can be opened, and the path to it. The debugger keeps it among its variables
    until the resume.

    An object has one node for each path to it, so that the values around it are known.
    """

    def __init__(self, value, step, parent, frame):
        self.value, self.step, self.parent, self.frame = value, step, parent, frame
        self.children = {}

    def get_variable_reference(self):
        return id(self)

    def path(self):
        path, node = [], self
        while type(node) is Node:
            path.append((id(node.value), node.step))
            node = node.parent
        return path[::-1]

    def holder(self, value):
        """This node or the node above it that has this very object."""
        node = self
        while type(node) is Node:
            if node.value is value:
                return node
            node = node.parent
        return None


class Scope(object):
    """The variables of a frame or of its module."""

    def __init__(self, frame, of_module):
        self.frame, self.of_module = frame, of_module
        self.children = {}

    def path(self):
        return []

    def holder(self, value):
        return None


class VariablePages(object):
    def __init__(self, probe):
        self.probe = probe
        self.mode = "full"
        self.slow = set()  # classes whose repr took too long at this stop
        probe.questions.update(page=self.ask, sizes=self.ask_sizes)
        probe.commands.update(page_aside=self.ask_aside, show=self.use)

    def use(self, mode):
        """Set the mode: `safe` runs none of the program's code to render a value, `full` calls its
        repr.
        """
        self.mode = mode
        return mode

    def view(self, bounds, mode=None, **more):
        if bounds == "outline":
            return View("safe", outline=True)
        return View(mode or self.mode, **dict(BOUNDS[bounds], **more))

    # -- questions

    def ask(self, id, reference, **wanted):
        return self.probe.answers.ask_thread_of(reference, id, self.page, wanted)

    def ask_aside(self, id, reference, **wanted):
        """Answer from another thread, because the stopped one hangs."""
        answers = self.probe.answers
        thread_id, reference = self.probe.engine.owner_of(reference)
        if thread_id is None:
            return {"gone": True}
        answers.drop(id)
        answer = dict(self.page(id, thread_id, reference, wanted, aside=True), aside=True)
        self.probe.emit("relayAnswer", answer)
        return {"gone": False}

    def ask_sizes(self, id, frame):
        return self.probe.answers.ask_thread_of(frame, id, self.sizes)

    def sizes(self, id, thread_id, frame_id):
        """The number of names in the frame's scopes; reads no value."""
        frame = self.probe.engine.frame(thread_id, frame_id)
        if frame is None:
            return {"id": id, "gone": True}
        counts = {"locals": len(names_of(frame)), "globals": len(names_of(frame, True))}
        return dict(counts, id=id)

    def page(self, id, thread_id, reference, wanted, aside=False):
        tracker = self.probe.engine.tracker(thread_id)
        if tracker is None:
            return {"id": id, "gone": True}
        try:
            node = self.opened(tracker, tracker.get_variable(reference), wanted["scope"])
        except KeyError:
            return {"id": id, "gone": True}
        if aside and wanted["bounds"] != "outline":
            view = View("safe")
        else:
            mode = "safe" if wanted.get("safe") else self.mode
            view = self.view(wanted["bounds"], mode, seconds=SECONDS, quiet=False, slow=self.slow)
        listing = Listing(self, tracker, node, view, aside)
        return dict(listing.page(wanted["start"], wanted["count"], wanted["filter"]), id=id)

    def opened(self, tracker, variable, scope):
        if scope is not None:
            return scope_of(variable, scope.lower() == "globals")
        if type(variable) is Node:
            return variable
        return Node(variable.value, clean(str(variable.name)), None, variable.frame)

    # -- rows, for all parts that show a value

    def variable(self, tracker, frame, name, value, view):
        """The row of a frame's variable, or of a value that was evaluated there."""
        try:
            scope = scope_of(tracker.get_variable(id(frame)), False)
        except KeyError:
            scope = None  # a returned value belongs to no frame of this stop
        return self.row(tracker, scope, (NAMED, name), name, value, view, clean(name)[:100])

    def row(self, tracker, parent, key, name, value, view, step):
        path = () if parent is None else parent.path()
        row = view.row(name, value, path, step)
        if key_of(type(value)) in LEAVES or (row.get("length") == 0 and not row["more"]):
            return row
        node = parent.holder(value) if parent is not None else None
        row["reference"] = self.reference(tracker, parent, key, value, step, node)
        return row

    def reference(self, tracker, parent, key, value, step, node=None):
        """The number with which DAP requests the contents; the value is kept until the resume."""
        if node is None:
            node = parent.children.get(key) if parent is not None else None
            if node is None or not is_same(node.value, value):
                node = Node(value, step, parent, parent and parent.frame)
                tracker._register_variable(node)
                if parent is not None:
                    parent.children[key] = node
        return self.probe.engine.dap_id(id(node))


class Listing(object):
    """One page of one node."""

    def __init__(self, pages, tracker, node, view, aside):
        self.pages, self.tracker, self.node, self.view = pages, tracker, node, view
        self.aside = aside

    def page(self, start, count, wanted):
        children = []
        total = 0
        for number, part in enumerate(self.parts()):
            if wanted is not None and part.kind != wanted:
                continue
            first = max(0, start - total)
            room = count - len(children)
            if room > 0 and first < part.size:
                children += self.some(number, part, first, room)
            total += part.size
        return {"total": total, "rows": children}

    def parts(self):
        node = self.node
        if type(node) is Scope:
            pairs = [(*pair, None) for pair in names_of(node.frame, node.of_module)]
            return [rows(NAMED, in_order(pairs))]
        if type(node.value) is Lazy:
            return [] if self.aside or self.view.mode == "safe" else [self.read(node.value)]
        return parts(node.value)

    def read(self, lazy):
        """Read a property that a caller opens: its code runs now."""
        try:
            return rows(NAMED, [(lazy.name, getattr(lazy.owner, lazy.name), None)])
        except Interrupted:
            self.view.late = True
            words = "<property took too long>"
        except BaseException as error:
            if hold(error):
                words = "<property was interrupted>"
            else:
                words = "<property raised %s>" % name_of(type(error))
        return rows(NAMED, [(lazy.name, words, "words")])

    def some(self, number, part, start, count):
        try:
            found = part.take(start, count)
        except RuntimeError:
            found = [("", "<changed while it was read>", "words")]
        except Exception as error:
            found = [("", "<not listed: %s>" % name_of(type(error)), "words")]
        return [self.row(number, part, start + at, *entry) for at, entry in enumerate(found)]

    def row(self, number, part, position, name, value, what):
        node, view = self.node, self.view
        if part.keyed:
            name = view.label(name)
            step = "[%s]" % name
        elif type(node) is Scope:
            step = name
        elif type(node.value) is Lazy:
            step = ""
        else:
            step = "[%s]" % name if part.kind == INDEXED else "." + name
        key = (number, position) if type(node) is not Scope else (NAMED, name)
        if what is None:
            return self.pages.row(self.tracker, node, key, name, value, view, step)
        if what == "words":
            return {"name": printable(name), "type": "", "value": value, "truncated": True}
        if what == CLASS:
            kind = type(value.owner)
            kind = value.owner if issubclass(kind, type) else kind
            row = {"name": name, "type": "", "value": clean("<of %s>" % full_name(kind))}
            row["hint"] = {"kind": "class"}
            step = ""
        else:
            row = {"name": printable(name), "type": "property", "value": "<property>"}
            row["hint"] = {"kind": "property", "lazy": True}
            if view.mode == "safe":
                return row
        row["reference"] = self.pages.reference(self.tracker, node, key, value, step)
        return row


def untie(variable):
    """Break the cycles of nodes at the resume. They would keep the program's values alive until the
    garbage collector runs, which may be never.
    """
    if type(variable) is Node:
        variable.parent = None
        variable.children.clear()
    else:
        for scope in variable.__dict__.get("_relay_scopes", {}).values():
            scope.children.clear()


def scope_of(variable, of_module):
    """The scope of the debugger's frame variable; at one stop it is always the same."""
    known = variable.__dict__.setdefault("_relay_scopes", {})
    if of_module not in known:
        known[of_module] = Scope(variable.frame, of_module)
    return known[of_module]


def is_same(one, other):
    if one is other:
        return True
    kind = type(one)
    if (
        kind is not type(other)
        or key_of(kind) not in (Lazy, OfClass)
        or one.owner is not other.owner
    ):
        return False
    return kind is OfClass or one.name == other.name
