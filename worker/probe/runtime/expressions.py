"""Expressions and log messages of breakpoints, compiled once and evaluated at hits."""

import ast


class Expression(object):
    """An expression that is evaluated in a frame's scope, nested scopes included."""

    def __init__(self, text):
        text = text.strip()
        if text.startswith("*"):
            text = "(%s)" % text  # in an f-string, `{*xs, 1}` is a tuple
        self.code = compile(text, "<relay expression>", "eval", dont_inherit=True)
        self.nested = any(type(c) is type(self.code) for c in self.code.co_consts)

    def __call__(self, frame, **more):
        if self.nested or more:
            # names inside a lambda or comprehension are looked up as globals
            names = dict(frame.f_globals)
            names.update(frame.f_locals)
            names.update(more)
            return eval(self.code, names)
        return eval(self.code, frame.f_globals, frame.f_locals)


def base_of(text):
    """The expression of the object from which `text` takes its value, and the attribute's name:
    `self` and `balance` of `self.balance`; `table`, and no name, of `table[key]`; else neither.
    """
    text = text.strip()
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, (ast.Attribute, ast.Subscript)):
        return None, None
    base = ast.get_source_segment(text, tree.value) or text
    return Expression(base), getattr(tree, "attr", None)


class Template(object):
    """A log message by the rules of f-strings; its expressions may contain any quotes and
    slashes.
    """

    def __init__(self, text):
        self.parts = []
        literal, at = "", 0
        while at < len(text):
            char = text[at]
            if char in "{}" and text[at + 1 : at + 2] == char:
                literal += char
                at += 2
            elif char == "}":
                raise SyntaxError("single '}' at column %d" % (at + 1))
            elif char == "{":
                self.parts.append(literal)
                literal = ""
                field, at = _field(text, at + 1)
                self.parts.append(field)
            else:
                literal += char
                at += 1
        self.parts.append(literal)

    def __call__(self, frame):
        return "".join(part if isinstance(part, str) else part.render(frame) for part in self.parts)


def problem_of(text):
    """The reason why `text` is not a valid log message in this Python; None if it is one."""
    try:
        Template(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return str(getattr(error, "msg", None) or error or type(error).__name__)
    return None


class Field(object):
    """One `{expression!r:spec}`."""

    def __init__(self, expression, label, conversion, spec):
        self.expression = Expression(expression)
        self.label = label
        self.conversion = conversion
        self.spec = Template(spec) if spec else None

    def render(self, frame):
        value = self.expression(frame)
        if self.conversion:
            value = {"r": repr, "s": str, "a": ascii}[self.conversion](value)
        return self.label + format(value, self.spec(frame) if self.spec else "")


def _field(text, start):
    """The field that begins behind its brace at `start`, and the index behind it.

    An expression may contain `:`, `!`, `=` and `}`: the first end that compiles is the end.
    """
    problem = None
    for at in range(start, len(text)):
        if text[at] not in "}!:=":
            continue
        if text[at : at + 2] in ("!=", "==") or text[at - 1 : at + 1] in ("==", "!=", "<=", ">="):
            continue
        try:
            return _field_ending(text, start, at)
        except SyntaxError as error:
            problem = problem or error
    raise problem or SyntaxError("'{' at column %d is never closed" % start)


def _field_ending(text, start, end):
    expression, label, conversion, spec, at = text[start:end], "", "", "", end
    if text[at] == "=":
        at = _past_blanks(text, at + 1)
        label, conversion = text[start:at], "r"
    if text[at : at + 1] == "!":
        conversion = text[at + 1 : at + 2]
        if conversion not in ("r", "s", "a"):
            raise SyntaxError("a conversion is !r, !s or !a")
        at = _past_blanks(text, at + 2)
    if text[at : at + 1] == ":":
        close, depth = at + 1, 0
        while close < len(text) and (depth or text[close] != "}"):
            depth += (text[close] == "{") - (text[close] == "}")
            close += 1
        spec = text[at + 1 : close]
        if label and conversion == "r" and "!" not in text[end:at]:
            conversion = ""
        at = close
    if text[at : at + 1] != "}":
        raise SyntaxError("expected '}' at column %d" % (at + 1))
    return Field(expression, label, conversion, spec), at + 1


def _past_blanks(text, at):
    return at + len(text[at:]) - len(text[at:].lstrip())


def raised_text(error):
    """The type and the message of what an expression has raised; the type alone if that raises."""
    try:
        return "%s: %s" % (type(error).__name__, error)
    except Exception:
        return type(error).__name__
