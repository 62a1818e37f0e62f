"""Folders and their copies, on this machine's disk and without processes."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.runtime.engines import copies as copies_module
from meshbook.runtime.engines import folder as folders
from meshbook.runtime.engines.copies import Copies
from meshbook.runtime.engines.courier import Courier, Delivery
from meshbook.runtime.engines.remote_host import RemoteHost
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.session import specs_for
from meshbook.runtime.wire.messages import Done, FileMark, Mirror, Store


class Host:
    """A host whose agent is at hand: it hears what a `RemoteHost` would send."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trouble = ""
        self.copies = Copies()
        self.stored = 0

    def post(self, message: Store, payload: Any) -> None:
        self.stored += 1
        self.copies.store(message.digest, payload.head)

    def ask(self, make: Callable[[int], Mirror]) -> Any:
        order = make(1)
        try:
            done = Done(1, lacks=self.copies.mirror(order.folder, order.files))
        except (OSError, ValueError) as error:
            trouble = SpawnError(str(error))
            return SimpleNamespace(wait=lambda _: _raise(trouble))
        return SimpleNamespace(wait=lambda _: done)


def _raise(error: Exception) -> None:
    raise error


class Stage:
    """A folder, two hosts, and who goes between."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hosts = [Host("left"), Host("right")]
        self.courier = Courier()

    def write(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def bring(self) -> Delivery:
        return self.courier.bring(self.root, cast("list[RemoteHost]", self.hosts))

    def catch_up(self, host: int) -> None:
        self.courier.catch_up(str(self.root), cast("RemoteHost", self.hosts[host]))

    def copy(self, host: int = 0) -> Path:
        (spec,) = specs_for({"rank": 1}, folder=str(self.root), cwd=str(self.root))
        return Path(self.hosts[host].copies.placed(spec).cwd)

    def there(self, host: int = 0) -> dict[str, str]:
        copy = self.copy(host)
        return {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if path.is_file()}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stage]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp", "project"):
        (tmp_path / name).mkdir()
    stage = Stage(tmp_path / "project")
    yield stage
    for host in stage.hosts:
        host.copies.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_only_what_has_changed_travels_and_what_is_gone_goes(stage: Stage):
    stage.write("train.py", "1")
    stage.write("net/model.py", "2")
    stage.write("net/empty.py", "")
    stage.write("net/again.py", "2")  # as another: it travels once
    assert set(stage.bring().changed) == {"train.py", "net/model.py", "net/empty.py", "net/again.py"}
    assert [host.stored for host in stage.hosts] == [3, 3]
    assert stage.there(0) == stage.there(1)
    assert stage.there() == {"train.py": "1", "net/model.py": "2", "net/empty.py": "", "net/again.py": "2"}
    assert stage.bring() == Delivery(stage.root, 2, 4, (), (), ())

    stage.write("train.py", "3")
    (stage.root / "net/model.py").rename(stage.root / "moved.py")
    (stage.root / "net/empty.py").unlink()
    (stage.root / "net/again.py").unlink()
    delivery = stage.bring()
    assert set(delivery.changed) == {"train.py", "moved.py"}
    assert set(delivery.removed) == {"net/model.py", "net/empty.py", "net/again.py"}
    assert [host.stored for host in stage.hosts] == [4, 4]  # what was moved is there
    assert stage.there(1) == {"train.py": "3", "moved.py": "2"}
    assert not (stage.copy(1) / "net").exists()


def test_a_file_becomes_a_folder_and_a_folder_a_file(stage: Stage):
    stage.write("a", "file")
    stage.write("b/c", "in folder")
    stage.bring()
    (stage.root / "a").unlink()
    (stage.root / "b/c").unlink()
    (stage.root / "b").rmdir()
    stage.write("a/x", "1")
    stage.write("b", "2")
    stage.bring()
    assert stage.there() == {"a/x": "1", "b": "2"}


def test_what_may_be_run_stays_so(stage: Stage):
    script = stage.write("run.sh", "#!/bin/sh")
    script.chmod(0o755)
    stage.bring()
    assert os.access(stage.copy() / "run.sh", os.X_OK)
    script.chmod(0o644)
    assert stage.bring().changed == ("run.sh",)
    assert not os.access(stage.copy() / "run.sh", os.X_OK)


def test_what_is_no_code_stays_here_and_is_named(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folders, "LARGEST", 1 << 20)
    for path in (
        ".git/config",
        "__pycache__/a.pyc",
        "env/pyvenv.cfg",
        "env/lib/x.py",
        "node_modules/x.js",
        "b.pyc",
        "sub/.git",
    ):
        stage.write(path, "no")
    (tmp_path / "secret.txt").write_text("secret")
    stage.write("data.bin", "x" * (2 << 20))
    stage.write("ok.py", "1")
    (stage.root / "inside.py").symlink_to("ok.py")
    (stage.root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (stage.root / "up").symlink_to("..")
    (stage.root / "nothing").symlink_to("not-there")
    os.mkfifo(stage.root / "pipe")
    stage.write(os.fsdecode(b"\xff.py"), "no text")
    delivery = stage.bring()
    assert set(delivery.left_out) == {
        "data.bin (2 MB, over 1 MB)",
        "out.txt (a link out of the folder)",
        "pipe (no plain file)",
        "up (a link out of the folder)",
        "'\\udcff.py' (its name cannot be told)",
    }
    assert stage.there() == {"ok.py": "1", "inside.py": "1"}
    assert not (stage.copy() / "inside.py").is_symlink()


def test_a_folder_that_may_not_be_looked_into_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    stage.write("ok.py", "1")
    stage.write("données/x.py", "not mine")

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
            if "données" in str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *args, **kwargs)

        return refused

    with monkeypatch.context() as patch:
        for name in ("stat", "scandir"):  # whoever runs the tests may be one who may look everywhere
            patch.setattr(os, name, refusing(getattr(os, name)))
        assert stage.bring().left_out == ("données/ (Permission denied)",)
    assert stage.there() == {"ok.py": "1"}


def test_a_folder_of_too_much_is_refused_whole(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folders, "MOST_FILES", 2)
    for number in range(3):
        stage.write(f"{number}.py", "1")
    with pytest.raises(
        SpawnError, match=r"--sync: .*project holds over 2 files or 256 MB: name the folder of the code"
    ):
        stage.bring()


def test_an_edit_within_a_tick_of_the_clock_is_seen(stage: Stage):
    place = stage.write("a.py", "1")
    before = place.stat()
    stage.bring()
    place.write_text("2")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stage.bring().changed == ("a.py",)


def test_a_file_that_changes_while_it_is_brought_comes_as_it_is_then(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    place = stage.write("a.py", "1")
    read = folders.Folder.read

    def edited_first(self: folders.Folder, path: str, digest: bytes) -> bytes | None:
        if place.read_text() == "1":
            place.write_text("22")
        return read(self, path, digest)

    monkeypatch.setattr(folders.Folder, "read", edited_first)
    stage.bring()
    assert stage.there() == {"a.py": "22"}


def test_what_ranks_write_stays_and_what_they_broke_is_mended(stage: Stage):
    stage.write("pkg/a.py", "1")
    stage.write("b.py", "1")
    stage.bring()
    copy = stage.copy()
    (copy / "checkpoint.pt").write_text("weights")
    (copy / "pkg/out.txt").write_text("log")
    (copy / "b.py").write_text("broken by a rank")
    (stage.root / "pkg/a.py").unlink()
    (stage.root / "pkg").rmdir()
    stage.write("c.py", "1")  # a change, else nobody asks
    stage.bring()
    assert stage.there() == {"checkpoint.pt": "weights", "pkg/out.txt": "log", "b.py": "1", "c.py": "1"}


def test_a_link_that_a_rank_puts_in_the_way_leads_nobody_out(stage: Stage, tmp_path: Path):
    stage.write("pkg/a.py", "1")
    stage.bring()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("precious")
    copy = stage.copy()
    (copy / "pkg/a.py").unlink()
    (copy / "pkg").rmdir()
    (copy / "pkg").symlink_to(outside)
    stage.write("pkg/a.py", "2")
    stage.bring()
    assert (outside / "a.py").read_text() == "precious"
    assert (copy / "pkg/a.py").read_text() == "2" and not (copy / "pkg").is_symlink()


def test_a_link_where_files_are_drafted_leads_nobody_out_either(stage: Stage, tmp_path: Path):
    stage.write("a.py", "1")
    stage.bring()
    (tmp_path / "precious").write_text("precious")
    (stage.copy() / ".a.py.draft").symlink_to(tmp_path / "precious")
    stage.write("a.py", "2")
    stage.bring()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_name_may_be_as_long_as_names_can_be(stage: Stage):
    name = "長" * 84 + ".py"  # 255 bytes
    stage.write(name, "1")
    stage.bring()
    assert stage.there() == {name: "1"}


def test_a_temporary_folder_behind_a_link_loses_what_is_gone_too(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "scratch").symlink_to("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    gone = stage.write("gone.py", "1")
    stage.write("a.py", "1")
    stage.bring()
    gone.unlink()
    stage.bring()
    assert stage.there() == {"a.py": "1"}


def test_a_folder_of_the_ranks_in_the_way_of_a_file_is_told(stage: Stage):
    stage.write("a", "1")
    stage.bring()
    (stage.copy() / "b").mkdir()
    (stage.copy() / "b/results").write_text("of a rank")
    stage.write("b", "2")
    with pytest.raises(SpawnError, match=r"was not brought to host left: b is a folder there, in which ranks have"):
        stage.bring()


def test_hosts_that_were_kept_are_sent_nothing_that_they_have(stage: Stage):
    stage.write("a.py", "1")
    stage.bring()
    stage.courier = Courier()  # of the next notebook
    stage.write("b.py", "2")
    stage.bring()
    assert [host.stored for host in stage.hosts] == [2, 2]
    assert stage.there() == {"a.py": "1", "b.py": "2"}


def test_a_host_that_is_lost_is_passed_over_and_its_successor_gets_all(stage: Stage):
    stage.write("a.py", "1")
    stage.bring()
    lost = stage.hosts[1]
    lost.trouble = "host right was lost"
    lost.copies.close()
    stage.write("a.py", "2")
    stage.hosts[1] = Host("right")
    stage.catch_up(1)
    assert stage.there(0) == stage.there(1) == {"a.py": "2"}, "all are to have the same"


def test_who_has_come_for_others_is_left_alone_and_who_has_it_keeps_it(stage: Stage):
    stage.write("a.py", "1")
    stage.bring()
    stage.hosts.append(Host("of another mesh"))
    stage.write("a.py", "2")
    stage.catch_up(0)
    stage.courier.catch_up("", cast("RemoteHost", stage.hosts[2]))
    assert (stage.there(0), stage.hosts[2].stored) == ({"a.py": "1"}, 0)


def test_what_did_not_come_to_its_end_is_not_relied_on(stage: Stage):
    """The first host has got what the second one had no room for, and then the edit is taken back."""
    stage.write("a.py", "1")
    stage.bring()
    (stage.copy(1) / "b.py").mkdir()
    (stage.copy(1) / "b.py/of a rank").touch()
    stage.write("a.py", "2")
    stage.write("b.py", "2")
    with pytest.raises(SpawnError, match=r"host right: b\.py is a folder there"):
        stage.bring()
    assert stage.there(0) == {"a.py": "2", "b.py": "2"}
    stage.write("a.py", "1")
    (stage.root / "b.py").unlink()
    stage.bring()
    assert stage.there(0) == {"a.py": "1"}


def test_paths_of_a_rank_lead_into_the_copy_where_they_were_in_the_folder(stage: Stage):
    stage.write("src/a.py", "1")
    stage.bring()
    root = str(stage.root)
    copies, copy = stage.hosts[0].copies, stage.copy()
    specs = specs_for({"rank": 1}, folder=root, cwd=f"{root}/src", path=["", f"{root}/src", "/usr/lib"])
    placed = copies.placed(specs[0])
    assert (placed.cwd, placed.path) == (str(copy / "src"), (str(copy), "", str(copy / "src"), "/usr/lib"))
    (elsewhere,) = specs_for({"rank": 1}, folder=root, cwd="/usr")
    assert copies.placed(elsewhere).cwd == "/usr"
    (nowhere,) = specs_for({"rank": 1}, folder=root, cwd="/home/of/the/notebook/alone")
    assert copies.placed(nowhere).cwd == str(copy)
    (plain,) = specs_for({"rank": 1})
    assert copies.placed(plain) is plain


def test_a_folder_is_meant_by_any_of_its_names(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stage.write("src/a.py", "1")
    stage.bring()
    copies, copy = stage.hosts[0].copies, stage.copy()
    (tmp_path / "home").symlink_to(stage.root)
    monkeypatch.chdir(stage.root / "src")
    for folder in ("..", str(tmp_path / "home")):
        (spec,) = specs_for(
            {"rank": 1}, folder=folder, path=["", str(tmp_path / "home/src"), str(tmp_path / "home/../x")]
        )
        placed = copies.placed(spec)
        assert placed.cwd == str(copy / "src")
        assert placed.path == (str(copy), "", str(copy / "src"), str(tmp_path / "home/../x"))


def test_a_path_that_leads_out_is_refused_by_the_host_too(stage: Stage):
    with pytest.raises(ValueError, match=r"'\.\./b' leads out"):
        stage.hosts[0].copies.mirror("/p", {"../b": FileMark(b"1")})


def test_copies_whose_agent_was_killed_go_with_the_next(stage: Stage, tmp_path: Path):
    stage.write("a.py", "1")
    deserted = tmp_path / "tmp" / f"meshbook-copies-{os.getuid()}-dead"
    deserted.mkdir()
    (deserted / "lock").touch()
    beginning = tmp_path / "tmp" / f"meshbook-copies-{os.getuid()}-begins"
    beginning.mkdir()
    stage.bring()
    assert not deserted.exists() and beginning.exists()
    assert stage.there() == {"a.py": "1"}  # those that live hold their locks
    beginning.rmdir()


def test_an_agent_that_begins_is_not_taken_for_one_that_was_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    lock = copies_module.fcntl.flock

    def another_begins_first(fd: int, operation: int) -> None:
        if not operation & copies_module.fcntl.LOCK_NB:
            copies_module._remove_deserted()
        lock(fd, operation)

    monkeypatch.setattr(copies_module.fcntl, "flock", another_begins_first)
    stage.write("a.py", "1")
    stage.bring()
    assert stage.there(0) == stage.there(1) == {"a.py": "1"}
