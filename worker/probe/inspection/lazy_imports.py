"""Finds names of lazy imports that are not done yet (3.15), without doing them."""

import ast

from debug_relay.worker.probe.inspection.first_c_call import valued
from debug_relay.worker.probe.values.rendering import UNIMPORTED

_CHAIN = (ast.Name, ast.Attribute, ast.Load)


def first_of(expression, frame):
    """The first part of `a.b.c` that is a lazy import not done yet; None if there is none, or if
    the expression is not such a chain.
    """
    if not UNIMPORTED:
        return None
    chain = [ast.parse(expression.strip(), mode="eval").body]
    if not all(isinstance(part, _CHAIN) for part in ast.walk(chain[0])):
        return None
    while isinstance(chain[-1], ast.Attribute):
        chain.append(chain[-1].value)
    values = (valued(part, frame) for part in reversed(chain))
    return next((value for value in values if type(value) in UNIMPORTED), None)
