"""What a cell does when it runs, as far as the names of what it calls tell: train, communicate, write, define. Pure."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .code_lines import code_lines

_TRAINS = {
    *("backward", "step", "fit", "zero_grad"),
    *("trainer.train", "trainer.evaluate", "trainer.predict", "trainer.validate", "trainer.test"),
}
_COMMUNICATES = {
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "recv", "isend", "irecv"),
    *("batch_isend_irecv", "destroy_process_group", "full_tensor", "redistribute"),
    *("dcp.load", "dist_cp.load", "checkpoint.load", "get_state_dict", "set_state_dict", "consolidate_state_dict"),
    *("get_model_state_dict", "set_model_state_dict", "get_optimizer_state_dict", "set_optimizer_state_dict"),
    *("accelerator.gather_for_metrics", "accelerator.wait_for_everyone", "accelerator.pad_across_processes"),
}
_WRITES = {
    *("save", "async_save", "savez", "savez_compressed", "savetxt", "savefig", "save_file", "save_model", "save_state"),
    *("save_pretrained", "save_checkpoint", "save_state_dict", "save_weights", "save_to_disk", "push_to_hub", "dump"),
    *("to_csv", "to_parquet", "to_pickle", "to_json", "tofile", "write", "writelines", "write_text", "write_bytes"),
    *("unlink", "rmtree", "rmdir", "copyfile", "copytree", "symlink_to", "truncate", "system", "Popen"),
}
_ASKS_AND_ACTS = {
    *("input", "getpass", "subprocess.run", "subprocess.call", "check_call", "check_output", "getoutput"),
    *("commit", "executescript", "sendall", "sendmail", "urlopen"),
    *("requests.post", "requests.put", "requests.patch", "requests.delete"),
}
"""What reaches people, programs, data bases and other machines, where it would be done twice."""
_WORKS = _TRAINS | _COMMUNICATES | _WRITES | _ASKS_AND_ACTS
_BUILDS_TOGETHER = {
    *("init_process_group", "new_group", "init_device_mesh"),
    *("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "replicate"),
    *("parallelize_module", "distribute_module", "distribute_tensor"),
    *("accelerator.prepare", "fabric.setup", "fabric.setup_module", "deepspeed.initialize"),
}
"""What every rank of a group calls once, and what needs no others after that."""
_KINDS = ("trainer", "accelerator", "fabric", "deepspeed")
"""Of what methods mean more than their names say: what is named like one of these, or was made by a class that is.

`train` of a model is a setting, that of a `Trainer` takes hours.
"""

_HARMLESS_METHODS = {"append", "extend", "add", "update", "items", "keys", "values", "setdefault", "format", "join"}
_HARMLESS_MAGICS = {"matplotlib", "autoreload", "load_ext", "env", "config", "precision"}
_MAGIC = re.compile(r"^(?:%(\w+)|!).*$", re.MULTILINE)
_WRITING = re.compile(r"[rwxabt+]{0,3}[wxa+][rwxabt+]{0,3}")
"""A mode of `open`; no name of a file that is as short is likely."""
_CONSTANT = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp),
    *(ast.operator, ast.unaryop, ast.expr_context),
)
_ACTS = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_setup(source: str, hot: Collection[str] = _WORKS | _BUILDS_TOGETHER) -> bool:
    """Does a cell neither train, communicate nor write files? `hot` names functions that do.

    Example:
        >>> is_setup("model = Net().to(device)"), is_setup("model = DDP(Net())"), is_setup("!pip install x")
        (True, False, False)
        >>> is_setup("model = DDP(Net())", hot={"backward"})  # what one calls where all come new
        True
    """
    tree = parsed(source)
    if tree is None or any(name not in _HARMLESS_MAGICS for name in _magics(source)):
        return False
    return not any(_works(statement, hot) for statement in tree.body)


def only_looks(source: str) -> bool:
    """Does a cell name values, and neither make nor call anything?

    Example:
        >>> only_looks("model.weight[0], rank * 2"), only_looks("model(x)"), only_looks("y = x")
        (True, False, False)
    """
    tree = parsed(source)
    if tree is None or not tree.body or list(_magics(source)):
        return False
    nodes = [node for statement in tree.body for node in ast.walk(statement)]
    return all(isinstance(each, ast.Expr) for each in tree.body) and not any(isinstance(each, _ACTS) for each in nodes)


def definitions_of(source: str, missing: Collection[str] = ()) -> str:
    """What a cell imports and defines (functions, classes, constants), at its lines; empty when that is nothing.

    What goes by the names in `missing` is not there, so nothing is set in it.

    Example:
        >>> definitions_of("import math\\nprint(1)\\ndef area(r):\\n    return math.pi * r * r\\n")
        'import math\\n\\ndef area(r):\\n    return math.pi * r * r\\n'
        >>> definitions_of("args.epochs = 3\\nlr = 0.1", missing={"args"})
        '\\nlr = 0.1\\n'
    """
    tree = parsed(source)
    if tree is None:
        return ""
    is_kept = [_defines(statement) and _sets_in(statement).isdisjoint(missing) for statement in tree.body]
    kept = [_lines_of(statement) for statement, keep in zip(tree.body, is_kept, strict=True) if keep]
    dropped = [_lines_of(statement) for statement, keep in zip(tree.body, is_kept, strict=True) if not keep]
    shared = {number for lines in dropped for number in lines}  # `import a; a.work()`
    wanted = {number for lines in kept if not shared & set(lines) for number in lines}
    lines = code_lines(source)
    text = "\n".join(line if number in wanted else "" for number, line in enumerate(lines[: max(wanted, default=0)], 1))
    return f"{text}\n" if wanted else ""


def imported(source: str) -> Iterator[str]:
    """The modules, and the things of modules, that a cell imports as it runs.

    Example:
        >>> list(imported("import os.path, pandas as pd\\nfrom sklearn.svm import SVC\\ndef f():\\n    import json"))
        ['os.path', 'pandas', 'sklearn.svm.SVC']
    """
    tree = parsed(source)
    for statement in tree.body if tree is not None else ():
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield from (f"{statement.module}.{each.name}".removesuffix(".*") for each in statement.names)


def names_made(source: str) -> set[str]:
    """The names that are there after a cell, as far as its text tells.

    Example:
        >>> sorted(names_made("import os.path, math as m; a, b.c = f(1)"))
        ['a', 'm', 'os']
    """
    tree = parsed(source)
    nodes = [node for statement in (tree.body if tree is not None else ()) for node in _run_now(statement)]
    return {name for node in nodes for name in _names_made(node)}


def _names_made(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):  # of a constant
        return all(isinstance(node, _CONSTANT) for node in ast.walk(statement.value))
    return isinstance(statement, _DEFINITIONS)


def _sets_in(statement: ast.stmt) -> set[str]:
    """The names of what an assignment changes: `args` of `args.epochs = 3`, `os` of `os.environ["X"] = "1"`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    nodes = [node for target in targets for node in ast.walk(target)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def parsed(source: str) -> ast.Module | None:
    """The tree of a cell, its line magics left out; None where it is no Python (a cell magic, `?`, a typo)."""
    try:
        return compile(
            _MAGIC.sub("pass", source),
            "<journal>",
            "exec",
            ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return None


def _magics(source: str) -> Iterator[str]:
    """The names of line magics in a cell; empty for `!`."""
    return (found[1] or "" for found in _MAGIC.finditer(source))


def _lines_of(statement: ast.stmt) -> range:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (statement.end_lineno or statement.lineno) + 1)


def _works(statement: ast.stmt, hot: Collection[str]) -> bool:
    """Does a statement, when it runs, train, communicate or write files, or may it take long?"""
    if isinstance(statement, _DEFINITIONS):
        return False
    nodes = list(_run_now(statement))
    if any(not _names_called(node).isdisjoint(hot) or _opens_to_write(node) for node in nodes):
        return True
    if any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in nodes):
        return True
    has_loop = any(isinstance(node, ast.For | ast.While) for node in nodes)
    return has_loop and not all(_is_soon_done(called) for node in nodes if (called := _called(node)))


def _is_soon_done(called: str) -> bool:
    """Is it what loops may call that build something? Classes are, as long as their names look like it."""
    return called[0].isupper() or called in {*dir(builtins), *_HARMLESS_METHODS, *_BUILDS_TOGETHER}


def _run_now(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, without the bodies of functions, which run when they are called."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _run_now(child)


def _called(node: ast.AST) -> str:
    """The last name of what a node calls: `step` for `opt.step()`. Empty if it calls nothing that has a name."""
    return _last_name(node.func) if isinstance(node, ast.Call) else ""


def _names_called(node: ast.AST) -> set[str]:
    """The same, and whose method it is: `train`, `my_trainer.train`, `trainer.train` for `self.my_trainer.train()`."""
    if not isinstance(node, ast.Call) or not (called := _called(node)):
        return set()
    owner = _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    return {called, *(f"{name}.{called}" for name in (owner, _kind(owner)) if name)}


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _kind(name: str) -> str:
    return next((kind for kind in _KINDS if name.lower().endswith(kind)), "")


def _opens_to_write(node: ast.AST) -> bool:
    """Is it `open(path, "w")`, or `path.open("a")`? A mode that is not written there is taken for one to read."""
    if not isinstance(node, ast.Call) or _called(node) != "open":
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant)]
    return any(isinstance(mode, str) and _WRITING.fullmatch(mode) for mode in modes)


class HotNames(NamedTuple):
    """What the cells of a notebook call that a new rank must not: library functions, and their own that lead there."""

    alone: set[str]
    """Where other ranks stay as they are."""
    where_all_come: set[str]
    """Where all come new: they may build together what is spread over them."""


def hot_names(sources: Sequence[str]) -> HotNames:
    """Of all cells of a notebook together.

    Example:
        >>> hot = hot_names(["sft = SFTTrainer(model)", "def go(): sft.train()", "model.train()"])
        >>> [is_setup(source, hot.alone) for source in ("go()", "sft.train()", "model.train()")]
        [False, False, True]
    """
    calls = _calls_of(sources)
    made = [pair for source in sources for pair in _made(source)]

    def reaching(names: set[str]) -> set[str]:
        own = {f"{name}.{method}" for name, kind in made for method in _methods(names, kind)}
        return names | own | closure(calls, names | own)

    return HotNames(reaching(_WORKS | _BUILDS_TOGETHER), reaching(_WORKS))


def _methods(names: Iterable[str], kind: str) -> Iterator[str]:
    return (name.removeprefix(f"{kind}.") for name in names if name.startswith(f"{kind}."))


def _made(source: str) -> Iterator[tuple[str, str]]:
    """The names that a cell gives to what it makes of a known kind, each with the kind."""
    for node in _nodes(source):
        if isinstance(node, ast.Assign) and (kind := _kind(_called(node.value))):
            yield from ((target.id, kind) for target in node.targets if isinstance(target, ast.Name))


def _nodes(source: str) -> Iterator[ast.AST]:
    tree = parsed(source)
    return ast.walk(tree) if tree is not None else iter(())


def _calls_of(sources: Iterable[str]) -> dict[str, set[str]]:
    """The functions, methods and classes of these cells, each with the names that it calls."""
    calls: dict[str, set[str]] = {}
    for source in sources:
        for name, called in _functions(source):
            calls.setdefault(name, set()).update(called)
    return calls


def _functions(source: str) -> Iterator[tuple[str, set[str]]]:
    """Each function of a cell with the names that it calls; a class stands for its `__init__`."""
    for node in _nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, _calls_in(node)
        elif isinstance(node, ast.ClassDef):
            inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            yield node.name, {name for init in inits for name in _calls_in(init)}


def _calls_in(node: ast.AST) -> set[str]:
    return {name for inner in ast.walk(node) for name in _names_called(inner)}


def closure(calls: Mapping[str, Collection[str]], hot: Collection[str]) -> set[str]:
    """The names in `calls` that reach a hot one.

    Example:
        >>> sorted(closure({"epoch": {"batch"}, "batch": {"backward"}, "show": {"print"}}, {"backward"}))
        ['batch', 'epoch']
    """
    found: set[str] = set()
    while more := {name for name, called in calls.items() if name not in found and set(called) & {*hot, *found}}:
        found |= more
    return found
