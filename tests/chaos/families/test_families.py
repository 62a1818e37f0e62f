"""A short run of random families; `make chaos` is the long one. And of the model alone, which must make sense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.families.choice import Choice, Operation
from tests.chaos.families.model import Member, Model, Outcome, Told, Unclear

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", ["local", "inproc", "hosts"])
def test_who_is_to_be_told_of_a_failure_is_told_once(where: str) -> None:
    """In a process of its own, which nothing is to outlive."""
    command = [sys.executable, "-m", "tests.chaos.families", "--seeds", "1", "--steps", "50", "--on", where]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("seed 0: well")


def live_through(operation: Operation, model: Model) -> Outcome | None:
    """As the world does, without one."""
    match operation:
        case ("start", (name, *owner)):
            model.add_procs(name, owner[0] if owner else None, 2)
        case ("spawn", (name, owner, _, verdict, procs, ranks, _)):
            model.add_mesh(name, owner, verdict, procs, ranks)
        case ("fire", (mesh,)):
            return model.stop(mesh)
        case ("close_procs", (procs,)):
            return model.stop_procs(procs)
        case ("fail", (members,)):
            return model.fail(members)
        case ("leave", (member,)):
            return model.fail([member])
        case ("die", (member,)):
            return model.die(*model.host(member))
        case _:
            pass
    return None


@settings(max_examples=20)
@given(st.integers(min_value=0))
def test_who_lives_has_an_owner_and_a_process_and_who_ended_is_cleaned_or_dead(seed: int) -> None:
    model = Model()
    choice = Choice(seed, model)
    for _ in range(30):
        operation, before = choice.next(), set(model.members)
        try:
            outcome = live_through(operation, model)
        except Unclear:
            assert set(model.members) == before
            continue
        for member in model.members:
            procs, rank = model.host(member)
            owner = model.meshes[member.mesh].owner
            assert rank in model.procs[procs].alive
            assert owner is None or model.is_alive(owner)
        if outcome is not None and operation.name != "die":
            assert set(outcome.cleaned) == before - set(model.members)
        if outcome is not None:
            assert outcome.must <= outcome.may
            assert set(outcome.cleaned.values()) <= {1}


def test_an_event_that_may_end_either_way_is_not_done() -> None:
    """Of two that fail at once, one stops the processes of the other: its owner may hear of a failure or of none."""
    model = Model()
    model.add_procs("p", None, 2)
    model.add_mesh("founder", None, "handle", "p", (0,))
    model.add_procs("q", Member("founder", 0), 2)
    model.add_mesh("guest", None, "handle", "q", (1,))
    with pytest.raises(Unclear):
        model.fail([Member("founder", 0), Member("guest", 0)])
    assert model.members == [Member("founder", 0), Member("guest", 0)]


def test_a_death_is_told_once_to_each_owner_in_the_name_of_its_first_mesh_there() -> None:
    model = Model()
    model.add_procs("p", None, 2)
    for name in ("first", "second"):
        model.add_mesh(name, None, "handle", "p", (0, 1))
    model.add_mesh("kid", Member("first", 0), "handle", "p", (1,))
    outcome = model.die("p", 1)
    assert outcome.must == outcome.may == {Told(None, "first", 1): 1, Told(Member("first", 0), "kid", 1): 1}
    assert not outcome.cleaned
