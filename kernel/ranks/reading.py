"""An expression read on a rank while the rank works: `losses[-1]`, `sum(losses[-10:]) / 10`, `float(w.norm())`.

A control thread reads it, so nothing of the user's may run. The expression is walked, not compiled: variables, stored
attributes, items and slices of plain containers, arithmetic of numbers, a few functions of numbers, and of plain
tensors in the memory of the CPU the operators and methods that only read. All else is refused in words.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from .lookup import Unreadable, attribute_of, item_of, number_at, number_of, steps_of

MOST_ELEMENTS: Final = 1_000_000
"""Of a tensor that is read: a larger one would hold the control thread up for more than some milliseconds."""

MOST_ITEMS: Final = 100_000
_ADVICE = "assign the number to a name in the cell, and watch that"

_NUMBERS = (int, float, bool)
_ROWS = (list, tuple, deque)
_FUNCTIONS = {name: getattr(builtins, name) for name in ("abs", "float", "int", "len", "max", "min", "round", "sum")}
_OF_TENSORS = (abs, float, int)
"""Of these functions, those that do not go through a tensor item by item."""

_MATH_NAMES = re.compile("ceil|exp|fabs|floor|isfinite|isinf|isnan|log|log10|log1p|log2|sqrt|tanh")
_MATH = [function for name, function in vars(math).items() if _MATH_NAMES.fullmatch(name)]
_METHODS = re.compile(
    "abs|all|any|argmax|argmin|count_nonzero|detach|double|exp|flatten|float|isfinite|isinf|isnan|item|log|log10|max|"
    "mean|median|min|norm|numel|prod|quantile|sqrt|square|std|sum|var"
)
_operators: Any = operator  # typed in part only
_power = _operators.pow
_TWO: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _operators.truediv,
    ast.FloorDiv: _operators.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ONE: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}


class _Method(NamedTuple):
    """A method of a tensor that was named and not yet called."""

    tensor: Any
    name: str


def check(expr: str) -> None:
    """Raises `ValueError` for what is no expression that can be read.

    Example:
        >>> check("losses[-1] / scale")
        >>> check("[x for x in losses]")
        Traceback (most recent call last):
        ValueError: '[x for x in losses]' cannot be read while a cell runs: assign the number to a name in the cell, ...
    """
    if _is_path(expr):
        return
    for node in ast.walk(_parsed(expr)):
        if not isinstance(node, (*_KINDS, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.keyword)):
            raise ValueError(f"'{expr}' cannot be read while a cell runs: {_ADVICE}")


def read_number(expr: str, names: Mapping[str, object]) -> float:
    """The number that an expression gives. Raises `Unreadable`.

    Example:
        >>> read_number("sum(losses[-2:]) / 2", {"losses": [9, 1, 2]})
        1.5
    """
    if not _is_path(expr):
        return _read(expr, names)
    try:
        return number_at(expr, names)
    except Unreadable as reason:
        try:  # an item of a tensor, or at an index that a variable has
            return _read(expr, names)
        except Unreadable:
            raise reason from None


def _read(expr: str, names: Mapping[str, object]) -> float:
    try:
        return number_of(_Reader(names).read(_parsed(expr)))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:120]) from None


def _is_path(expr: str) -> bool:
    try:
        steps_of(expr)
    except ValueError:
        return False
    return True


def _parsed(expr: str) -> ast.expr:
    try:
        return ast.parse(expr.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"'{expr}' is no expression, such as loss, losses[-1] or float(w.norm())") from None


class _Reader:
    """Reads the nodes of one expression in the namespace of a rank."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names

    def read(self, node: ast.AST) -> Any:
        return _KINDS[type(node)](self, node)

    def constant(self, node: ast.Constant) -> Any:
        if type(node.value) not in (*_NUMBERS, str, type(None)):
            raise Unreadable(f"{node.value!r} is no number")
        return node.value

    def name(self, node: ast.Name) -> Any:
        if node.id in self._names:
            return self._names[node.id]
        if node.id in _FUNCTIONS:
            return _FUNCTIONS[node.id]
        raise Unreadable(f"{node.id} is not defined")

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.read(node.value)
        if not _is_tensor(owner):
            return attribute_of(owner, node.attr)
        if _METHODS.fullmatch(node.attr):
            return _Method(owner, node.attr)
        if node.attr == "data":
            return owner.data
        if node.attr == "grad" and owner.is_leaf:  # torch warns of others
            return owner.grad
        raise Unreadable(f"{node.attr} of a tensor is not read: {_ADVICE}")

    def subscript(self, node: ast.Subscript) -> Any:
        owner, index = self.read(node.value), self.read(node.slice)
        if _is_tensor(owner):
            return _of_tensors(operator.getitem, [_checked(owner), _index(index)])
        if type(index) is not slice:
            return item_of(owner, index)
        if type(owner) not in (list, tuple):
            raise Unreadable(f"a {type(owner).__name__} has no slices that can be read")
        return owner[index]

    def slice(self, node: ast.Slice) -> slice:
        parts = [self.read(part) if part is not None else None for part in (node.lower, node.upper, node.step)]
        if not all(part is None or type(part) is int for part in parts):
            raise Unreadable("a slice of other than whole numbers")
        return slice(*parts)

    def tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple([self.read(each) for each in node.elts])

    def two(self, node: ast.BinOp) -> Any:
        return _combined(_TWO.get(type(node.op)), self.read(node.left), self.read(node.right))

    def one(self, node: ast.UnaryOp) -> Any:
        function, value = _ONE.get(type(node.op)), _operand(self.read(node.operand))
        if function is None:
            raise Unreadable("~ is not read")
        return _of_tensors(function, [value])

    def compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            raise Unreadable("of comparisons, one at a time is read")
        return _combined(_TWO.get(type(node.ops[0])), self.read(node.left), self.read(node.comparators[0]))

    def call(self, node: ast.Call) -> Any:
        called = self.read(node.func)
        args = [self.read(each) for each in node.args]
        options = {each.arg or "": self.read(each.value) for each in node.keywords}
        if type(called) is _Method:
            return _called(called, args, options)
        if any(called is each for each in _FUNCTIONS.values()) and not options:
            return len(_row(args)) if called is len else _of_tensors(called, [_argument(called, each) for each in args])
        if any(called is each for each in _MATH) and not options:
            return called(*[number_of(each) for each in args])
        raise Unreadable(f"{ast.unparse(node.func)}() is not called while a cell runs: {_ADVICE}")


def _row(args: Sequence[Any]) -> Any:
    """What may be counted."""
    if len(args) != 1 or (type(args[0]) not in (*_ROWS, dict, str) and not _is_tensor(args[0])):
        raise Unreadable("len is read of plain containers")
    return args[0]


def _called(method: _Method, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What a method of a tensor gives; of its class, as an object may have an attribute of the same name."""
    for each in (*args, *options.values()):
        if type(each) not in (*_NUMBERS, str, type(None)):
            raise Unreadable(f"{method.name}() is read with numbers only: {_ADVICE}")
    function = getattr(cast("type[Any]", type(method.tensor)), method.name)
    return _of_tensors(function, [_checked(method.tensor), *args], options)


def _combined(function: Callable[[Any, Any], Any] | None, left: Any, right: Any) -> Any:
    left, right = _operand(left), _operand(right)
    if function is None:
        raise Unreadable("of operators, those of arithmetic and comparisons are read")
    if _is_tensor(left) and _is_tensor(right) and left.shape != right.shape and 1 not in (left.numel(), right.numel()):
        raise Unreadable(f"tensors of different shapes: {_ADVICE}")  # together they may be larger than memory
    if function is _power and not _is_tensor(left) and not abs(left) + abs(right) < MOST_ITEMS:
        raise Unreadable("a power of such a size is not computed")
    return _of_tensors(function, [left, right])


def _of_tensors(function: Callable[..., Any], values: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not any(map(_is_tensor, values)):
        return function(*values)
    with torch.no_grad():
        return function(*values, **(options or {}))


def _operand(value: Any) -> Any:
    """What one may calculate with: a number, or a tensor."""
    if type(value) in _NUMBERS:
        return value
    return _checked(value) if _is_tensor(value) else number_of(value)


def _argument(function: Callable[..., Any], value: Any) -> Any:
    """What a function of Python's may be given; of a row a copy, since a cell may change it meanwhile."""
    if type(value) in _ROWS:
        row: list[Any] = list(value)
        if len(row) > MOST_ITEMS:
            raise Unreadable(f"{len(row):,} items: {_ADVICE}")
        return [each if type(each) in _NUMBERS else number_of(each) for each in row]
    if not _is_tensor(value):
        return _operand(value)
    return _checked(value) if any(function is each for each in _OF_TENSORS) else number_of(value)


def _index(index: Any) -> tuple[Any, ...]:
    parts = cast("tuple[Any, ...]", index) if type(index) is tuple else (index,)
    if not all(type(part) in (int, slice) for part in parts):
        raise Unreadable("a tensor is read at whole numbers and slices")
    return parts


def _checked(tensor: Any) -> Any:
    if tensor.device.type != "cpu":  # reading it would wait for the device
        raise Unreadable(f"on {tensor.device}: {_ADVICE}")
    if tensor.numel() > MOST_ELEMENTS:
        raise Unreadable(f"a tensor of {tensor.numel():,} elements: {_ADVICE}")
    return tensor


def _is_tensor(value: Any) -> bool:
    """A plain tensor: those of other classes (DTensor) run code of their own, and collectives."""
    torch = cast("Any", sys.modules.get("torch"))
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


_KINDS: Final[dict[type[ast.AST], Callable[[_Reader, Any], Any]]] = {
    ast.Constant: _Reader.constant,
    ast.Name: _Reader.name,
    ast.Attribute: _Reader.attribute,
    ast.Subscript: _Reader.subscript,
    ast.Slice: _Reader.slice,
    ast.Tuple: _Reader.tuple,
    ast.BinOp: _Reader.two,
    ast.UnaryOp: _Reader.one,
    ast.Compare: _Reader.compare,
    ast.Call: _Reader.call,
}
