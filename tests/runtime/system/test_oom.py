"""An out-of-memory kill is told apart: decided of what Linux says, and seen on a real one where that can be made."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.system import oom
from meshbook.runtime.system.oom import Tally, count_in, is_named, least_limit, memory_group, reason

V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
OTHER_MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"

V1_COUNTER = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2_COUNTER = "low 0\nhigh 0\nmax 812\noom 3\noom_kill {}\noom_group_kill 0\n"

LOG = """6,901,5,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
3,902,6,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:8388608kB, anon-rss:8000000kB
3,903,7,-;Out of memory: Killed process 4712 (python3.11) total-vm:1kB
"""


@pytest.mark.parametrize(
    ("cgroup", "mount", "folder", "counter"),
    [
        ("0::/user.slice/a.scope", (V2_MOUNT, "/"), "/sys/fs/cgroup/user.slice/a.scope", "memory.events"),
        ("0::/", (V2_MOUNT, "/"), "/sys/fs/cgroup", "memory.events"),
        ("0::/docker/1f", (V2_MOUNT, "/docker/1f"), "/sys/fs/cgroup", "memory.events"),
        ("0::/../other", (V2_MOUNT, "/docker/1f"), "/sys/fs/cgroup", "memory.events"),
        ("9:cpu:/b\n4:memory:/a/b\n0::/", (V1_MOUNT, "/"), "/sys/fs/cgroup/memory/a/b", "memory.oom_control"),
        ("4:memory:/docker/1f/x\n0::/", (V1_MOUNT, "/docker/1f"), "/sys/fs/cgroup/memory/x", "memory.oom_control"),
    ],
)
def test_the_control_group_is_found(cgroup: str, mount: tuple[str, str], folder: str, counter: str) -> None:
    form, root = mount
    group = memory_group(cgroup, OTHER_MOUNTS + form.format(root=root))
    assert group is not None
    assert (str(group.folder), group.counter) == (folder, counter)
    assert group.lineage[-1] == group.mount


def test_without_one_there_is_none() -> None:
    assert memory_group("", OTHER_MOUNTS) is None
    assert memory_group("9:cpu:/b\n", OTHER_MOUNTS) is None


def test_counters_limits_and_the_log_are_read() -> None:
    assert [count_in(text.format(7)) for text in (V1_COUNTER, V2_COUNTER)] == [7, 7]
    assert (count_in(""), least_limit([]), least_limit(["max\n", "", "100\n", "70\n"])) == (None, None, 70)
    assert [is_named(LOG, pid) for pid in (4711, 4712, 471, 8388608)] == [True, True, False, False]


def test_the_reason_names_the_limit() -> None:
    assert reason(300 << 20, 64 << 30).endswith("(cgroup limit 300 MB)")
    assert reason(None, 64 << 30).endswith("(the machine has 64 GB)")


@given(st.integers(0, 9), st.lists(st.integers(0, 2)))
def test_no_more_deaths_are_explained_than_kills_were_counted(count: int, rises: list[int]) -> None:
    tally, explained, start = Tally(count), 0, count
    for rise in rises:
        count += rise
        before = explained
        explained += tally.explains(count)
        assert explained <= count - start
        assert explained > before or explained == count - start


@pytest.fixture
def cgroup() -> Generator[Path]:
    """A control group of this test's own, with 300 MB: in cgroup v1, where root alone may make one."""
    group = oom._own_group()  # pyright: ignore[reportPrivateUsage] - which the new one is to be part of
    if group is None or group.counter != "memory.oom_control" or not os.access(group.folder, os.W_OK):
        pytest.skip("no control group can be made here")
    folder = group.folder / f"meshbook-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (folder / "memory.limit_in_bytes").write_text(str(300 << 20))
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.slow
@pytest.mark.real
def test_what_is_shared_and_sent_is_measured_by_the_limit_of_the_control_group(cgroup: Path) -> None:
    """As that of a Slurm job, or of a systemd unit: the machine has more."""
    source = (
        "import os, sys; from pathlib import Path\n"
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from meshbook.runtime.limits import largest; from meshbook.runtime.wire.pool import Pool\n"
        "print(Pool().max_bytes >> 20, largest() >> 20)"
    )
    told = subprocess.run([sys.executable, "-c", source, str(cgroup)], capture_output=True, text=True, timeout=50)
    assert told.stdout.split() == ["150", "75"], told.stderr


@pytest.mark.slow
@pytest.mark.real
def test_a_rank_that_eats_all_memory_is_told_apart_from_one_that_is_killed(cgroup: Path) -> None:
    program = Path(__file__).with_name("hungry.py")
    ran = subprocess.run([sys.executable, str(program), str(cgroup)], capture_output=True, text=True, timeout=50)
    eaten, killed = ran.stdout.splitlines()
    assert "killed by SIGKILL (signal 9), by the kernel for lack of memory (cgroup limit 300 MB) on host" in eaten
    assert "killed by SIGKILL (signal 9) on host" in killed
