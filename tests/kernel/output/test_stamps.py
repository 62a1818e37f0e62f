"""Stamps: lines that differ only in when and by which process they were logged compare as equal, others never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.output.stamps import said_by_many, unstamped

ALIKE = [
    (
        "[rank0]:W1124 09:17:40.758000 16072 torch/distributed/x.py:390] While redistributing",
        "[rank13]:W1124 09:17:41.000100 6073 torch/distributed/x.py:390] While redistributing",
    ),
    (
        "[W1124 09:17:40.758000123 socket.cpp:752] [c10d] The client socket",
        "[W1124 09:17:40.900000001 socket.cpp:752] [c10d] The client socket",
    ),
    (
        "USDT:2026-11-24 09:17:30 16072:16072 Handler.cpp:52] profiler_start",
        "USDT:2026-11-24 09:17:30 16076:16079 Handler.cpp:52] profiler_start",
    ),
    ("2026-11-24 09:17:40,758 - INFO - step 3", "2026-11-24 09:17:40,761 - INFO - step 3"),
    ("[2026-11-24 09:17:40] INFO step 3", "[2026-11-24 09:17:41] INFO step 3"),
    ("2026-11-24T09:17:40.758Z step", "2026-11-24T09:17:40.759Z step"),
    ("\x1b[32m09:17:40\x1b[0m step", "\x1b[32m09:17:41\x1b[0m step"),
    ("I20261124 09:17:40.12 123 x.cc:1] step", "I20261124 09:17:40.13 124 x.cc:1] step"),
    ("node-1:16072:16073 [0] NCCL INFO Bootstrap", "node-1:16090:16095 [1] NCCL INFO Bootstrap"),
    ("2026-11-24 09:17:40,758 [16072] INFO x: step 3", "2026-11-24 09:17:40,761 [16073] INFO x: step 3"),
    ("[rank0] 2026-11-24 09:17:40,758 INFO: step 3", "[rank1] 2026-11-24 09:17:40,761 INFO: step 3"),
    ("[2026-11-24 09:17:40,758][rank 0][INFO] step 3", "[2026-11-24 09:17:40,761][rank 1][INFO] step 3"),
    ("[2026-11-24 09:17:40,758 16072] step 3", "[2026-11-24 09:17:40,761 16073] step 3"),
    ("09:17:40 [Rank=0] step 3", "09:17:41 [Rank=1] step 3"),
    ("[rank0]: ValueError: bad", "[rank7]: ValueError: bad"),
    ("epoch 1:   0%|          | 0/20 [00:00<?, ?it/s]", "epoch 1:   0%|          | 0/20 [00:01<?, ?it/s]"),
    (
        "epoch 1: 100%|██████████| 20/20 [00:59<00:00, 27.36it/s, loss=0.25]",
        "epoch 1: 100%|██████████| 20/20 [01:00<00:00,  9.1it/s, loss=0.25]",
    ),
    ("using <Loader object at 0x7fea90837ff0>", "using <Loader object at 0x7fea8f42c080>"),
    ("7.00MB [1:00:01, 1.2MB/s]", "7.00MB [59:59, 1.21MB/s]"),
    (" 50%|█████     | 1/2 [00:02<00:02,  2.31s/it]", " 50%|█████     | 1/2 [00:02<00:02,  2.29s/it]"),
]
DIFFERENT = [
    ("W1124 09:17:40.758000 16072 x.py:390] slow", "E1124 09:17:40.758000 16072 x.py:390] slow"),
    ("2026-11-24 09:17:40,758 - INFO - step 3", "2026-11-24 09:17:40,758 - INFO - step 4"),
    ("2026-11-24 09:17:40,758 - INFO - step 3", "- INFO - step 3"),
    ("2026-11-24 09:17:40.758123", "2026-11-24 09:17:40.758124"),  # it was the time that was printed
    ("2026-11-24T09:17:40Z", "2026-11-24T09:17:41Z"),
    ("09:17:40 0.25", "09:17:41 0.25"),
    ("[rank 0] hello", "[rank 1] hello"),  # a program's own words
    ("took 00:01:40 in all", "took 00:01:41 in all"),
    ("100%|█| 20/20 [00:59<00:00, 27.36it/s, loss=0.25]", "100%|█| 20/20 [00:59<00:00, 27.36it/s, loss=0.5]"),
    (" 45%|████▌     | 9/20 [00:59<00:00, 27.36it/s]", " 50%|█████     | 10/20 [00:59<00:00, 27.36it/s]"),
    ("a pointer at 0x7fea90837ff0", "a pointer at 0x7fea8f42c080"),  # that is what is said
    ("host:80:90 hello", "host:80:91 hello"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_differs_in_the_stamp_alone_is_alike(one: str, other: str) -> None:
    assert unstamped(one) == unstamped(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_in_more_is_not(one: str, other: str) -> None:
    assert unstamped(one) != unstamped(other)


@given(st.text(st.characters(exclude_characters=":")))
def test_a_line_without_a_time_is_left_as_it_is(text: str) -> None:
    assert unstamped(text) == said_by_many(text) == text


def test_of_many_no_rank_is_named() -> None:
    assert said_by_many(ALIKE[0][0]) == "W1124 09:17:40.758000 16072 torch/distributed/x.py:390] While redistributing"
    assert said_by_many(ALIKE[1][0]) == ALIKE[1][0]
    assert said_by_many("[rank7]: ValueError: bad") == "ValueError: bad"
    assert said_by_many("09:17:40 [rank0]: step 3") == "09:17:40: step 3"
