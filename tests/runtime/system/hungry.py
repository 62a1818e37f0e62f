"""A program with a mesh in a control group: `hungry.py FOLDER` joins it, then one of its ranks eats memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from meshbook.runtime import session
from meshbook.runtime.errors import SupervisionError
from tests.runtime.actors import Worker

session.ZYGOTE_MODULES[:] = ["meshbook.runtime.ranks.worker"]

EAT = "eaten = []\nwhile True:\n    eaten.append(bytes([1]) * (8 << 20))"


def main(folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    workers = session.spawn_procs({"dp": 3}, backend="none").spawn("workers", Worker)
    workers.initialized.get(20)
    for rank, source in ((1, EAT), (2, "import os\nos.kill(os.getpid(), 9)")):
        try:
            workers.slice(dp=rank).do.call_one(source).get(20)
        except SupervisionError as error:
            print(str(error).partition("\n")[0], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
