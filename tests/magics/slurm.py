"""A stand-in for Slurm on one machine: this file, called `sbatch`, `srun`, `squeue` or `scancel`, is that command.

A node is an address of loopback; what runs on it takes that for the name of its host. There are two partitions.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(sys.argv[0]).parent
JOB = HERE / "job.json"
NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")

SITE = """
import os, socket
if "SLURMD_NODENAME" in os.environ:
    socket.gethostname = lambda: os.environ["SLURMD_NODENAME"]
"""


def install(folder: Path, python: str) -> None:
    """Put the commands into a folder, which is to come first in `PATH`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    for name in ("sbatch", "srun", "squeue", "scancel"):
        command = folder / name
        command.write_text(f"#!{python}\n{Path(__file__).read_text()}")
        command.chmod(0o700)


def sbatch() -> None:
    script = sys.stdin.read()
    partition = re.search(r"--partition=(\S+)", script)
    if partition is not None and partition[1] not in ("cpu", "gpu"):
        sys.exit(f"sbatch: error: invalid partition specified: {partition[1]}")
    asked = re.search(r"--nodes=(\d+)", script)
    assert asked is not None
    said = (HERE / "said").open("wb")
    env = os.environ | {"SLURM_NNODES": asked[1], "SLURM_JOB_ID": "7"}
    streams = {"stdin": subprocess.PIPE, "stdout": said, "stderr": said}
    process = subprocess.Popen(["bash", "-s"], **streams, env=env, start_new_session=True)
    JOB.write_text(json.dumps({"pid": process.pid, "nodes": NODES[: int(asked[1])]}))
    assert process.stdin is not None
    process.stdin.write(script.encode())
    process.stdin.close()
    print("Submitted batch job 7")
    process.returncode = 0  # it goes on by itself


def srun(command: Sequence[str]) -> None:
    paths = [str(HERE / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    tasks = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "SLURM_PROCID": str(number),
                "SLURM_NODEID": str(number),
                "SLURMD_NODENAME": NODES[number],
                "PYTHONPATH": os.pathsep.join(paths),
            },
        )
        for number in range(int(os.environ["SLURM_NNODES"]))
    ]
    sys.exit(max(task.wait() for task in tasks))


def squeue() -> None:
    job = json.loads(JOB.read_text())
    try:
        state = Path(f"/proc/{job['pid']}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        state = "Z"
    nodes = {"nodes": {"allocation": [{"name": node} for node in job["nodes"]]}}
    print(json.dumps({"jobs": [{"job_state": ["CANCELLED" if state == "Z" else "RUNNING"], "job_resources": nodes}]}))


def scancel() -> None:
    """End all that the job has started, also in sessions of their own, as Slurm does by control groups."""
    job = json.loads(JOB.read_text())
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and _is_of_job(place):
            try:
                os.kill(int(place.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    try:
        os.killpg(job["pid"], signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_of_job(place: Path) -> bool:
    try:
        variables = place.joinpath("environ").read_bytes().split(b"\0")
    except OSError:
        return False
    mine = any(each.startswith(f"PATH={HERE}".encode()) for each in variables)
    return mine and any(each.startswith(b"SLURMD_NODENAME=") for each in variables)


if __name__ == "__main__":
    COMMANDS = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "srun": lambda: srun(sys.argv[1:])}
    COMMANDS[Path(sys.argv[0]).name]()
