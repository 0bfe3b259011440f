"""The largest bodies that a Struct's fields allow: long, many, sound or wrong in each place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as kinds

from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import path_variables

# What a body may have, and a little less: the names and the brackets between count as well.
BYTES = 10 * 1024 * 1024 - 64 * 1024
VALUES = 195_000


class Room(NamedTuple):
    """How much a value may take."""

    bytes: int
    values: int

    def shared(self, among: int) -> Room:
        return Room(self.bytes // max(among, 1), self.values // max(among, 1))


def bodies(params: type[Params], paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Each with what is worst about it."""
    info = kinds.type_info(params)
    assert isinstance(info, kinds.StructType)
    in_path = {name for path in paths for name in path_variables(path)} | {"session_id"}
    fields = [field for field in info.fields if field.name not in in_path]
    if not fields:
        return
    for worst, leaf in (("sound", None), ("wrong", {})):
        heavy = [field for field in fields if _is_heavy(field.type)]
        room = Room(BYTES, VALUES).shared(len(heavy))
        body = {field.name: _filled(field.type, room, leaf) for field in fields}
        yield worst, msgspec.json.encode(body)


def _is_heavy(kind: kinds.Type) -> bool:
    return isinstance(_heaviest(kind), kinds.ListType | kinds.DictType | kinds.StructType)


def _heaviest(kind: kinds.Type) -> kinds.Type:
    """Of a union the one that may hold most; without what only describes it."""
    while isinstance(kind, kinds.Metadata):
        kind = kind.type
    if not isinstance(kind, kinds.UnionType):
        return kind
    order = (kinds.ListType, kinds.DictType, kinds.StructType, kinds.StrType)
    of_kind = (one for wanted in order for one in kind.types if isinstance(one, wanted))
    return _heaviest(next(of_kind, kind.types[0]))


def _filled(kind: kinds.Type, room: Room, leaf: Any) -> Any:
    """As much as goes into the room; where `leaf` is given, that is what its ends are."""
    match _heaviest(kind):
        case kinds.ListType(item_type=item, max_length=most):
            one = _filled(item, Room(1, 1), leaf)
            return [one] * _count(one, room, most)
        case kinds.DictType(value_type=item, max_length=most):
            one = _filled(item, Room(1, 1), leaf)
            return {f"k{number}": one for number in range(_count(one, room, most))}
        case kinds.StructType(fields=fields):
            needed = [field for field in fields if field.required or leaf is not None]
            inner = room.shared(len(needed))
            return {field.encode_name: _filled(field.type, inner, leaf) for field in needed}
        case _ if leaf is not None:
            return leaf
        case kinds.StrType(max_length=most):
            return "x" * max(1, min(most or room.bytes, room.bytes))
        case kinds.LiteralType(values=values):
            return values[0]
        case kinds.BoolType():
            return False
        case kinds.AnyType():
            return [0] * room.values
        case kinds.NoneType():
            return None
        case _:
            return 1


def _count(one: Any, room: Room, most: int | None) -> int:
    encoded = msgspec.json.encode(one)
    values = 1 + sum(map(encoded.count, (b",", b"[", b"{")))
    return max(1, min(most or room.values, room.values // values, room.bytes // (len(encoded) + 1)))
