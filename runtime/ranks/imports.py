"""Something to do as soon as a module has been imported, whoever imports it and whenever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, then: Callable[[], object]) -> None:
    """Call `then()` once: at once if the module `name` is there already, else right after its body has run.

    `then` runs in the thread that imports, inside the import statement; what it raises comes out of that
    statement.

    Example:
        >>> when_imported("sys", lambda: print("sys is there"))
        sys is there
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watch(name, then))


class _Watch:
    """A finder that lets the others find its module, and adds a step to the module's loader."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = self._found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._add_step(spec)
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        # Only those after us: two watches for one module would ask each other for ever.
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        return next((spec for spec in specs if spec is not None), None)

    def _add_step(self, spec: ModuleSpec) -> None:
        assert spec.loader is not None
        run_body = spec.loader.exec_module

        def run_body_and_step(module: ModuleType) -> None:
            run_body(module)
            # Only a body that ran to its end counts: a failed import may be tried again.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = run_body_and_step
