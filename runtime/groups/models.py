"""Models that were left in the middle of a step, by an error or as their process groups were renewed: put back.

What they had begun is given up, and they are where a step begins: of renewed groups, which are the same objects, no
collective came to its end; and torch takes a backward pass that was broken off for one that still goes on.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from traceback import walk_stack
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

from ..ranks.imports import when_imported

_replicated: WeakSet[Any] = WeakSet()
"""All models in DistributedDataParallel."""

_flat: WeakSet[Any] = WeakSet()
"""All in FullyShardedDataParallel (FSDP1), of which nobody knows how to put them back."""

_schedules: WeakSet[Any] = WeakSet()
"""All schedules of pipelines."""

_delayed: WeakSet[Any] = WeakSet()
"""All models of `fully_shard` that were told when to reduce their gradients: later than in each backward pass."""

_given_up: WeakSet[Any] = WeakSet()
"""Those that refuse their next step."""

_lossy: set[int] = set()
"""The threads on which the last has failed, and has given up gradients of `_delayed`."""

_to_be_alike: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Those of which rank 0 is to tell the others its parameters before the next step, with the handle of their hook."""


LOST = (
    "this sharded model may have been in the middle of a step that failed, or when its process groups were renewed: "
    "build it again (with torch 2.13 and later, models of fully_shard go on)"
)

Unreduced = Literal["", "kept", "begun"]
"""Of a rank: has it gradients that `fully_shard` is still to reduce, and has it added to them, or given them up?"""

_SEEN = "_meshbook_seen"
"""The attribute of a gradient that says at which version of it threads have begun what they run."""

_STEPS = ("autograd/graph.py", "pipelining/schedules.py")
"""Where a thread stands, in torch, that is in a backward pass or in a step of a pipeline."""


@functools.cache
def watch() -> None:
    """From now on models are known to `put_back`. Those of `fully_shard` are known to torch."""
    fully_shard = "torch.distributed.fsdp._fully_shard._fully_shard"
    for module, name, method, known in (
        ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__", _replicated),
        ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "__init__", _flat),
        ("torch.distributed.pipelining.schedules", "_PipelineSchedule", "__init__", _schedules),
        (fully_shard, "FSDPModule", "set_requires_gradient_sync", _delayed),
        (fully_shard, "FSDPModule", "set_requires_all_reduce", _delayed),
    ):
        when_imported(module, functools.partial(_note, module, name, method, known))


def _note(module: str, name: str, method: str, known: WeakSet[Any]) -> None:
    wrapper: Any = getattr(sys.modules[module], name)
    call: Callable[..., None] = getattr(wrapper, method)

    @functools.wraps(call)
    def note(self: Any, *args: Any, **options: Any) -> None:
        call(self, *args, **options)
        known.add(self)

    setattr(wrapper, method, note)


def reducers() -> list[Any]:
    """What reduces the gradients of the models in DistributedDataParallel."""
    return [model.reducer for model in _replicated if hasattr(model, "reducer")]


def begin_steps() -> None:
    """What this thread runs from here on may fail: what it then has not begun itself stays."""
    own = threading.get_ident()
    _lossy.discard(own)
    for state in _delayed_states() if _delayed else ():
        for grad in _unreduced(state):
            grad.__dict__.setdefault(_SEEN, {})[own] = grad._version


def end_broken_steps() -> None:
    """What ran on this thread has failed: no step is under way any more, whatever torch thinks.

    A model of `fully_shard` that thinks itself in a backward pass reduces only a part of its gradients from then on.
    To what it has of microbatches, which no `zero_grad` reaches, it would add those of the next step.
    """
    broken = [model for model in _sharded() if _is_in_backward(model._get_fsdp_state())]
    own = threading.get_ident()
    begun = [state for state in _delayed_states() if _has_own(state, own)]
    if (broken or begun or _schedules) and not _steps_elsewhere():
        if begun:
            _lossy.add(own)
        for model in broken:
            _put_shards_back(model)
        for state in begun:
            _forget_microbatches(state)
        _forget_losses()


def unreduced(thread: int) -> Unreduced:
    """What has become of gradients that `fully_shard` is still to reduce, in what this thread has begun last."""
    states = _delayed_states()
    if thread in _lossy or any(_has_own(state, thread) for state in states):
        return "begun"
    return "kept" if any(grad is not None for state in states for grad in _unreduced(state)) else ""


def forget_unreduced() -> None:
    """Give these gradients up: other ranks have no longer the same, or have added others to them."""
    if not _steps_elsewhere():
        for state in _delayed_states():
            _forget_microbatches(state)


def _has_own(state: Any, thread: int) -> bool:
    """Whether what runs on this thread has made gradients of it that are not reduced, or has added to them."""
    return any(getattr(grad, _SEEN, {}).get(thread) != grad._version for grad in _unreduced(state))


def _is_in_backward(state: Any) -> bool:
    context = getattr(state, "_state_ctx", None)
    return getattr(context, "post_backward_final_callback_queued", False)  # torch may call it otherwise some day


def _steps_elsewhere() -> bool:
    own, frames = threading.get_ident(), sys._current_frames()  # pyright: ignore[reportPrivateUsage] - it is documented
    stacks = [walk_stack(frame) for thread, frame in frames.items() if thread != own]
    return any(frame.f_code.co_filename.endswith(_STEPS) for stack in stacks for frame, _ in stack)


def put_back(groups: Collection[Any]) -> None:
    """Let all models that hold one of these groups begin their next step anew."""
    _forget_losses()
    for model in list(_replicated):
        if any(model.process_group is group for group in groups):
            _put_replicas_back(model)
    for model in list(_sharded()):
        _put_shards_back(model)
    for model in list(_flat):
        if any(model.process_group is group for group in groups):
            _give_up(model)


def _give_up(model: Any) -> None:
    if model not in _given_up:
        _given_up.add(model)
        model.register_forward_pre_hook(_refuse, prepend=True)


def _refuse(*_: Any) -> None:
    """Else its ranks, each at another place of its step, would wait for each other."""
    raise RuntimeError(LOST)


def _put_replicas_back(model: Any) -> None:
    if model.static_graph:
        _begin_graph_again(model)
    else:
        model._update_process_group(model.process_group)
    if model not in _to_be_alike:
        _to_be_alike[model] = model.register_forward_pre_hook(_make_alike)


def _begin_graph_again(model: Any) -> None:
    """A static graph is learnt in the first step, which only some ranks may have begun: all learn it again.

    torch's own way back forgets the buckets, but not that there was a step: the next one would have other collectives
    here than elsewhere.
    """
    dist: Any = sys.modules["torch.distributed"]
    model._remove_autograd_hooks()
    parameters, expects_sparse = model._build_params_for_reducer()
    names = model._build_debug_param_to_name_mapping(parameters)
    model._ddp_init_helper(parameters, expects_sparse, names, True)
    model._has_rebuilt_buckets = model.static_graph = False  # it is set where it was not
    model._set_static_graph()
    for hook, state in model._comm_hooks:
        dist._register_comm_hook(model.reducer, state, hook)
    if model.mixed_precision is not None:
        model.reducer._set_mixed_precision_param_dtype(model.mixed_precision.param_dtype)
    if any(hasattr(each, "_in_backward_optimizers") for each in parameters):
        model.reducer._set_optimizer_in_backward()


def _make_alike(model: Any, _: Any) -> None:
    """As the constructor does: one rank may have made a step that another has not."""
    torch: Any = sys.modules["torch"]
    if not (model.training and torch.is_grad_enabled()):
        return  # one rank alone may look at what the model gives
    _to_be_alike.pop(model).remove()
    sys.modules["torch.distributed.utils"]._sync_module_states(
        module=model.module,
        process_group=model.process_group,
        broadcast_bucket_size=model.broadcast_bucket_size,
        src=0,
        params_and_buffers_to_ignore=model.parameters_to_ignore,
        broadcast_buffers=model.broadcast_buffers,
    )


def _put_shards_back(model: Any) -> None:
    state = model._get_fsdp_state()
    if not state._is_root:  # its root does it for all; or it has not begun yet, and there is nothing to do
        return
    if not hasattr(model, "reset_iter_state"):
        _give_up(model)
        return
    for each in state._state_ctx.all_states:
        for group in each._fsdp_param_groups:
            group._all_gather_result = None  # it was broken off: to wait for it, as torch does, would raise
            for param in group.fsdp_params:
                _forget_gradient(param)
    model.reset_iter_state()


def _unreduced(state: Any) -> Iterator[Any]:
    """What is still to be reduced of the gradients of a module, as `set_requires_gradient_sync` has it."""
    for group in getattr(state, "_fsdp_param_groups", ()):  # torch before 2.13 has others, and cannot put them back
        if group._partial_reduce_output is not None:
            yield group._partial_reduce_output
        for param in group.fsdp_params:
            if param.unsharded_accumulated_grad is not None:
                yield param.unsharded_accumulated_grad
            unsharded = getattr(param, "_unsharded_param", None)  # it comes with the first forward pass
            if unsharded is not None and unsharded.grad is not None:
                yield unsharded.grad


def _forget_microbatches(state: Any) -> None:
    """Its gradients, and nothing else: ranks that have not failed have their parameters where they were."""
    for group in state._fsdp_param_groups:
        group._partial_reduce_output = None
        for param in group.fsdp_params:
            _forget_gradient(param)


def _forget_gradient(param: Any) -> None:
    """What a parameter of `fully_shard` has not reduced yet; nobody else can reach it, and torch would add to it."""
    param.unsharded_accumulated_grad = None
    if hasattr(param, "_unsharded_param"):  # it comes with the first forward pass
        param._unsharded_param.grad = None


def _forget_losses() -> None:
    """Those of microbatches of a step that has failed: the next one would begin with their backward passes."""
    for schedule in list(_schedules):
        schedule._internal_losses.clear()


def _delayed_states() -> list[Any]:
    """Of all modules of these models, what `fully_shard` knows."""
    models = [model._get_fsdp_state()._state_ctx.all_states for model in list(_delayed)]
    return list({id(state): state for states in models for state in states}.values())


def _sharded() -> Iterator[Any]:
    """All modules of `fully_shard`."""
    known: Any = sys.modules.get("torch.distributed._composable_state")
    for module in list(known._module_state_mapping) if known is not None else ():
        if hasattr(module, "_get_fsdp_state"):  # others have states, too
            yield module
