"""IPython's profiles for kernels of tests: what their zygotes import.

That is most of what a kernel with a mesh takes: torch takes two seconds of the processor, and what its optimizers and
DDP import at their first use takes two more, on each rank that was not forked with it.
"""

from __future__ import annotations

from pathlib import Path

COMPILER = "torch._dynamo"
"""What optimizers and DDP import at their first use."""


def leave_compiler_out(profile: Path) -> None:
    """For ranks that train little: a zygote imports it a moment later, which takes a second of the processor."""
    preload(profile, [])


def leave_torch_out(profile: Path) -> None:
    """For ranks that need none; those that do import it themselves."""
    _configure(profile, "session.ZYGOTE_MODULES.remove('torch?')")


def preload(profile: Path, modules: list[str]) -> None:
    """For ranks that all import these."""
    at_once = "[each for each in session.ZYGOTE_MODULES if not each.endswith('~')]"
    _configure(profile, f"session.ZYGOTE_MODULES[:] = {at_once} + {modules}")


def _configure(profile: Path, change: str) -> None:
    config = profile / "profile_default" / "ipython_kernel_config.py"  # read before the extension starts the zygote
    config.parent.mkdir(parents=True)
    config.write_text(f"from meshbook.runtime import session\n{change}\n")
