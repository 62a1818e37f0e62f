"""The kernelspec `meshbook`: a Python kernel in which the extension is loaded and names on ranks are inspected.

The wheel brings it along; `python -m meshbook.kernel.spec install` puts it where Jupyter runs from another environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "meshbook"
RESOURCES = Path(__file__).parent / "kernelspec"


def spec(python: str = "python") -> dict[str, Any]:
    """What `kernel.json` holds. `python` is the interpreter to start; plain `python` means Jupyter's own.

    Example:
        >>> spec()["display_name"]
        'Python 3 (meshbook)'
    """
    found = json.loads((RESOURCES / "kernel.json").read_text())
    found["argv"][0] = python
    return found


def folder(prefix: str | None = None) -> Path:
    """Where the kernelspec lies: under a prefix, or (without one) among the user's own."""
    if prefix is not None:
        return Path(prefix) / "share" / "jupyter" / "kernels" / NAME
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "kernels" / NAME


def install(prefix: str | None = None) -> Path:
    """Write it, for this very interpreter; where it is then. Raises `OSError` where that may not be written."""
    place = folder(prefix)
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(RESOURCES / "logo-svg.svg", place)
    (place / "kernel.json").write_text(json.dumps(spec(sys.executable), indent=1) + "\n")
    return place


def uninstall(prefix: str | None = None) -> Path:
    """Remove it; where it was. Raises `FileNotFoundError` if it was not there."""
    place = folder(prefix)
    if not (place / "kernel.json").exists():
        raise FileNotFoundError(f"there is no kernelspec at {place}")
    shutil.rmtree(place)
    return place


def main(arguments: Sequence[str]) -> str:
    """What the command line asks for; returns what was done, in one line."""
    parser = argparse.ArgumentParser(prog="python -m meshbook.kernel.spec", description=__doc__)
    parser.add_argument("command", choices=("install", "uninstall"))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user")
    where.add_argument("--sys-prefix", action="store_true", help="in this Python environment (the default in one)")
    where.add_argument("--prefix", help="under this folder, in share/jupyter/kernels")
    options = parser.parse_args(arguments)
    prefix = options.prefix
    if prefix is None and not options.user and (options.sys_prefix or sys.prefix != sys.base_prefix):
        prefix = sys.prefix
    if options.command == "install":
        return f"installed kernelspec {NAME} in {install(prefix)}"
    return f"removed kernelspec {NAME} from {uninstall(prefix)}"


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(f"meshbook.kernel.spec: {error}; choose another place with --user or --prefix")
