from __future__ import annotations

from typing import Any

import pytest

from meshbook.runtime.groups import optimizers


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_steps_are_counted_also_where_they_are_compiled_once_for_all():
    import torch

    compiled: list[Any] = []

    def backend(graph: Any, _: object) -> Any:
        compiled.append(graph)
        return graph

    optimizers.watch()
    [weight] = torch.nn.Linear(2, 2, bias=False).parameters()
    weight.grad = torch.ones(2, 2)
    sgd, before = torch.optim.SGD([weight]), optimizers.num_steps()
    sgd.step()
    sgd.step = torch.compile(sgd.step, backend=backend)
    for _ in range(3):
        sgd.step()
    assert (optimizers.num_steps() - before, len(compiled)) == (4, 1)
