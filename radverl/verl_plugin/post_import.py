"""Run a function right after a module is first imported, so that a plugin loaded everywhere costs nothing anywhere.

verl imports its plugins in every Ray actor; importing verl's engines there to patch them would cost about 5 s each.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType

ModuleFn = Callable[[ModuleType], None]


class PostImportFinder(importlib.abc.MetaPathFinder):
    """Meta-path finder that wraps the loaders of awaited modules; it finds nothing itself."""

    def __init__(self) -> None:
        self.awaited: dict[str, list[ModuleFn]] = defaultdict(list)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec the other finders give for `fullname`, its loader made to call the awaiting functions."""
        functions = self.awaited.pop(fullname, None)
        if functions is None:
            return None
        spec = importlib.util.find_spec(fullname)  # asks the other finders: this name is no longer awaited
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for function in functions:
                function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = PostImportFinder()


def after_import(name: str, function: ModuleFn) -> None:
    """Call `function(module)` once module `name` is imported; at once if it already is."""
    if name in sys.modules:
        function(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.awaited[name].append(function)
