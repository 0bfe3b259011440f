"""Files of breakpoints that a request names relative to the place where its program starts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.validation.cross_field_rules import file_of


def placed(spec: BreakpointSpec, found: Callable[[str], str], script: str | None) -> BreakpointSpec:
    """The breakpoint with every file as `found` gives it. A watchpoint in a function without a file
    means the `script`: the program does not run yet, so nobody else knows it.
    """
    file, _ = file_of(msgspec.structs.asdict(spec) | {"source": msgspec.to_builtins(spec.source)})
    if isinstance(file, str):
        spec = msgspec.structs.replace(spec, file=found(file), source=None)
    if spec.scope is None:
        return spec
    scope = spec.scope
    named = scope.file or (script if scope.function is not None else None)
    scope = msgspec.structs.replace(
        scope,
        file=found(named) if named is not None else None,
        files=[found(one) for one in scope.files],
    )
    return msgspec.structs.replace(spec, scope=scope)
