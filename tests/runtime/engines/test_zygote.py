"""The zygote: what makes it refuse to fork, what makes it stale, and that meshes do without it once it has forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.engines.starter import Zygote
from meshbook.runtime.errors import SpawnError, SupervisionError
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.session import specs_for

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]
NewEngine = Callable[..., LocalEngine]

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")]

WORKER = "meshbook.runtime.ranks.worker"


def zygote_of(engine: LocalEngine) -> Zygote:
    """The one that the next spawn would fork from, warm."""
    zygote = engine._fresh_zygote()
    assert engine._reactor.wait(zygote.warmed, 30)
    return zygote


def complete(local: Bench, engine: LocalEngine) -> Zygote:
    """The one that the next spawn would have forked from, which has imported what can wait as well."""
    local.engine = engine
    zygote = zygote_of(engine)
    assert engine.completed(30)
    return zygote


def parents(workers: Any) -> set[int]:
    """The processes that the ranks are children of."""
    return set(workers.do.call("import os\nos.getppid()").get(10).values())


def test_it_has_one_thread_and_a_session_of_its_own(local: Bench, local_engine: LocalEngine):
    pid = zygote_of(local_engine).pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert parents(local.workers()) == {pid}


def test_it_is_kept_from_mesh_to_mesh(local: Bench, local_engine: LocalEngine):
    pid = zygote_of(local_engine).pid
    for _ in range(2):
        roster_of(local.workers()).stop()
    assert zygote_of(local_engine).pid == pid


@pytest.fixture
def hangs(modules: Path) -> str:
    """A module whose import never ends; once it has begun there is a file beside it."""
    (modules / "hangs_on_import.py").write_text(
        "import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(1000)\n"
    )
    return "hangs_on_import"


def test_one_whose_imports_hang_is_told_of(new_engine: NewEngine, hangs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshbook.runtime.engines.local.WARM_SECONDS", 0.2)
    engine = new_engine(hangs)
    with pytest.raises(SpawnError, match=r"the zygote \(pid \d+\) has not done its imports within 0.2 s: .*exec"):
        engine._starter("auto", specs_for({"rank": 1})[0])


def test_one_whose_imports_hang_ends_with_its_controller(hangs: str, modules: Path, until: Until) -> None:
    program = (
        "import os, sys, time\n"
        "from meshbook.runtime.engines.interpreter import Interpreter\n"
        "from meshbook.runtime.engines.starter import Zygote\n"
        "from meshbook.runtime.wire.reactor import Reactor\n"
        "zygote = Zygote(Reactor(), [sys.argv[1]], dict(os.environ), Interpreter())\n"
        "print(zygote.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, hangs], stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        zygote = psutil.Process(int(controller.stdout.readline()))
        until((modules / "begun").exists)
        controller.kill()
    zygote.wait(10)


def test_it_ignores_ctrl_c(local: Bench, local_engine: LocalEngine):
    zygote = zygote_of(local_engine)
    os.killpg(zygote.pid, signal.SIGINT)
    assert parents(local.workers()) == {zygote.pid}


def test_a_module_that_starts_a_thread_makes_it_refuse(local: Bench, new_engine: NewEngine, modules: Path):
    (modules / "busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    local.engine = engine = new_engine("busy")
    with pytest.raises(SpawnError, match=r"cannot fork: the zygote has 2 threads.*use --spawn exec"):
        local.begin(how="fork")
    assert parents(local.workers()) == {os.getpid()}
    assert zygote_of(engine).trouble


@pytest.mark.parametrize("line", ["import no_such_thing", "raise ValueError('broken')", "syntax error"])
def test_a_module_that_cannot_be_imported_makes_it_refuse(
    local: Bench, new_engine: NewEngine, modules: Path, line: str
):
    (modules / "bad.py").write_text(line)
    local.engine = engine = new_engine("bad")
    assert zygote_of(engine).trouble.startswith("cannot import bad: ")
    assert parents(local.workers({"rank": 1})) == {os.getpid()}


def test_a_module_that_ends_it_makes_ranks_be_executed(local: Bench, new_engine: NewEngine, modules: Path):
    (modules / "bad.py").write_text("import os\nos._exit(1)")
    local.engine = new_engine("bad")
    assert parents(local.workers({"rank": 1})) == {os.getpid()}


def test_ranks_do_without_shared_memory_where_a_sandbox_forbids_it(
    local: Bench, new_engine: NewEngine, modules: Path, monkeypatch: pytest.MonkeyPatch
):
    (modules / "sandbox.py").write_text(
        "import os\ndef forbidden(*_): raise PermissionError(1, 'not permitted')\nos.memfd_create = forbidden\n"
    )
    local.engine = new_engine(WORKER, "sandbox")

    def forbidden(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    workers = local.workers()
    assert workers.echo.call(bytes(1 << 20)).get(10).values() == [bytes(1 << 20)] * 2


def test_an_optional_module_may_be_missing(new_engine: NewEngine):
    assert zygote_of(new_engine("no_such_thing?", "no_such_thing.at_all?")).trouble == ""


def test_a_function_is_called_after_the_import(local: Bench, new_engine: NewEngine, modules: Path):
    (modules / "mine.py").write_text("import sys\ndef warm(): sys.warmth = 42\n")
    local.engine = new_engine("mine:warm", WORKER)
    assert local.workers().do.call("import sys\nsys.warmth").get(10).values() == [42, 42]


def test_a_changed_setting_makes_it_stale(local: Bench, new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch):
    local.engine = engine = new_engine(WORKER)
    old = zygote_of(engine)
    workers = local.workers({"dp": 2})
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    new = zygote_of(engine)
    assert new.pid != old.pid
    assert parents(local.workers()) == {new.pid}
    with pytest.raises(SupervisionError, match="exited with code 3"):  # the old one still tells how its ranks end
        workers.slice(dp=1).do.call_one("import os\nos._exit(3)").get(10)
    roster_of(workers).stop()
    monkeypatch.setenv("MESHBOOK_TESTS_OWN", "1")
    assert zygote_of(engine).pid == new.pid
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    zygote_of(engine)
    assert not psutil.pid_exists(old.pid)


def test_a_mesh_with_a_setting_of_its_own_has_it_as_in_fresh_processes(
    local: Bench, new_engine: NewEngine, modules: Path
):
    (modules / "moody.py").write_text("import os\nmood = os.environ.get('TORCH_MOOD')\n")
    local.engine = engine = new_engine("moody", WORKER)
    usual = zygote_of(engine).pid
    source = "import moody, os\n(moody.mood, os.getppid())"
    answers = local.workers({"rank": 1}, env={"TORCH_MOOD": "sad"}).do.call(source).get(10).values()
    [(mood, parent)] = answers
    assert mood == "sad"
    assert parent not in (usual, os.getpid())
    assert local.workers({"rank": 1}, env={"MOOD": "sad"}).do.call(source).get(10).values() == [(None, usual)]
    assert local.workers({"rank": 1}, env={"TORCH_MOOD": "sad"}).do.call(source).get(10).values() == answers


def test_ranks_outlive_it_and_the_next_mesh_gets_a_new_one(local: Bench, new_engine: NewEngine, until: Until):
    local.engine = engine = new_engine(WORKER)
    workers = local.workers({"dp": 2})
    old = zygote_of(engine)
    os.kill(old.pid, signal.SIGKILL)
    until(lambda: old.is_gone)
    assert workers.add.call(1).get(10).values() == [1, 1]
    with pytest.raises(SupervisionError, match=r"rank 1 \(dp=1, pid \d+\) ended"):
        workers.slice(dp=1).do.call_one("import os\nos._exit(3)").get(10)
    assert workers.slice(dp=0).add.call_one(1).get(10) == 2
    more = local.workers()
    assert parents(more) == {zygote_of(engine).pid} != {old.pid}
    assert roster_of(workers).stop() == {0: "ended", 1: "ended"}


def test_a_mesh_that_it_died_on_is_told_so(local: Bench, new_engine: NewEngine):
    local.engine = engine = new_engine(WORKER)
    zygote = zygote_of(engine)
    zygote._process.kill()
    zygote._process.wait()
    try:
        local.up({"dp": 2})  # its end may have been seen by now, or not
    except SpawnError as error:
        assert "the zygote" in str(error)
    assert local.workers().add.call(1).get(10).values() == [1, 1]


def test_closing_does_not_wait_for_imports(new_engine: NewEngine, modules: Path):
    (modules / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    engine = new_engine("slow")
    engine.warm()
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 10


@pytest.mark.slow
def test_with_torch_its_ranks_share_the_cores_and_no_random_numbers(local: Bench, new_engine: NewEngine):
    pytest.importorskip("torch")
    local.engine = engine = new_engine("torch", WORKER)
    zygote = zygote_of(engine)
    assert zygote.trouble == ""
    assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1
    source = "import torch\n(torch.get_num_threads(), torch.rand(1).item(), torch.randint(1 << 62, (1,)).item())"
    answers = local.workers({"rank": 2}).do.call(source).get(20).values()
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert [answer[0] for answer in answers] == [share, share]
    assert answers[0][1:] != answers[1][1:]
    computed = "import torch\n(torch.ones(300, 300) @ torch.ones(300, 300)).sum().item()"
    assert local.workers({"rank": 2}).do.call(computed).get(20).values() == [27e6, 27e6]


@pytest.mark.slow
def test_its_ranks_copy_no_rules_of_torchs_compiler_to_forget_them(local: Bench, new_engine: NewEngine):
    """As they would where they make process groups."""
    pytest.importorskip("torch")
    local.engine = new_engine("torch._dynamo", WORKER)
    source = "import torch._dynamo as it\nit.trace_rules.get_torch_obj_rule_map.cache_info().currsize"
    assert local.workers({"rank": 2}).do.call(source).get(20).values() == [0, 0]


@pytest.fixture
def package(modules: Path) -> Callable[[str], None]:
    """Makes a package, which a zygote imports at once, with a part that can wait and this source."""

    def make(part: str) -> None:
        (modules / "pack").mkdir()
        (modules / "pack" / "__init__.py").write_text("")
        (modules / "pack" / "part.py").write_text(f"import os\nby = os.getpid()\n{part}\n")

    return make


def test_what_can_wait_is_imported_when_nobody_asks(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None]
) -> None:
    package("")
    zygote = complete(local, new_engine(WORKER, "pack", "pack.part~"))
    source = "import os, pack.part\n(pack.part.by, os.getppid())"
    assert set(local.workers().do.call(source).get(10).values()) == {(zygote.pid, zygote.pid)}


def test_a_crowd_of_ranks_waits_for_what_can_wait(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    package("")
    monkeypatch.setattr("meshbook.runtime.engines.local._CROWD", 0)
    local.engine = engine = new_engine(WORKER, "pack", "pack.part~")
    assert local.workers().do.call("import sys\n'pack.part' in sys.modules").get(10).values() == [True, True]
    assert zygote_of(engine).complete.is_set()


def test_ranks_that_end_while_something_is_imported_are_told_of_at_once(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None], tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    for fifo in (begun, go_on):
        os.mkfifo(fifo)
    package(  # it waits for the test, which waits for the news; then it starts a program, and waits for that
        f"import subprocess, sys\nopen({str(begun)!r}, 'w').close()\nopen({str(go_on)!r}).close()\n"
        "program = subprocess.Popen([sys.executable, '-c', 'exit(3)'])\n"
        "os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)\ncode = program.wait()"
    )
    local.engine = engine = new_engine(WORKER, "pack", "pack.part~")
    workers = local.workers({"rank": 8})
    begun.open().close()
    workers.do.call("import os\nos._exit(5)")
    for rank in range(8):
        with pytest.raises(SupervisionError, match="exited with code 5"):
            workers.slice(rank=rank).do.call_one("").get(10)
    assert not engine.completed(0)
    go_on.open("w").close()
    assert engine.completed(30)
    assert set(local.workers().do.call("import pack.part\npack.part.code").get(10).values()) == {3}


def test_what_can_wait_is_left_alone_where_its_package_is_not_there(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None]
) -> None:
    package("")
    complete(local, new_engine(WORKER, "pack.part~"))
    assert local.workers().do.call("import sys\n'pack' in sys.modules").get(10).values() == [False, False]


def test_what_can_wait_and_fails_is_met_by_those_who_import_it(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None]
) -> None:
    package("raise ValueError('broken')")
    zygote = complete(local, new_engine(WORKER, "pack", "pack.part~"))
    workers = local.workers()
    assert parents(workers) == {zygote.pid}
    with pytest.raises(ValueError, match="broken"):
        workers.do.call("import pack.part").get(10)


def test_one_that_what_can_wait_has_spoilt_is_replaced(
    local: Bench, new_engine: NewEngine, package: Callable[[str], None]
) -> None:
    package("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()")
    engine = new_engine(WORKER, "pack", "pack.part~")
    spoilt = complete(local, engine)
    assert spoilt.is_spoilt
    workers = local.workers()
    assert parents(workers) == {zygote_of(engine).pid} != {spoilt.pid}
    assert workers.do.call("import sys\n'pack.part' in sys.modules").get(10).values() == [False, False]
    engine.close()
    assert not psutil.pid_exists(spoilt.pid)
