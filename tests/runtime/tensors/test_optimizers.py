"""Optimizers of torch, on parameters that are distributed tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import inspect

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.RMSprop, {"momentum": 0.9}),
        (torch.optim.Adagrad, {"lr_decay": 0.1}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_optimizers_of_torch_train_as_they_would_here(grid: ProcMesh, kind: Any, words: dict[str, Any]) -> None:
    """Their counts of steps, which many of them read, are here; also where all of the training is under activate()."""

    def trained(by_closure: bool) -> nn.Parameter:
        weight = nn.Parameter(torch.ones(2))
        optimizer = kind([weight], lr=0.5, **words)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            found = (weight * torch.ones(2)).square().sum()
            found.backward()
            return found

        for _ in range(6):
            optimizer.step(loss) if by_closure else (loss(), optimizer.step())
        return weight

    for by_closure in (False, True):
        with grid.activate():
            found = trained(by_closure)
        assert torch.allclose(inspect(found), trained(by_closure))


def test_an_optimizer_may_be_stepped_outside_of_the_block(grid: ProcMesh) -> None:
    def trained(weight: nn.Parameter) -> nn.Parameter:
        optimizer = torch.optim.Adam([weight], 0.5)
        for _ in range(2):
            weight.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return weight

    with grid.activate():
        weight = nn.Parameter(torch.ones(2))
    assert torch.allclose(inspect(trained(weight)), trained(nn.Parameter(torch.ones(2))))
