"""Ways to look at a tensor that are no kernel and no operation of torch's."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch


def _in_a_thread(look):
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(look).result()


each_look = pytest.mark.parametrize(
    "look",
    [
        lambda x: torch.from_numpy(x.numpy().copy()),
        lambda x: torch.tensor(x.tolist()),
        lambda x: _in_a_thread(lambda: x.clone()),
    ],
    ids=["NumPy", "lists", "a thread"],
)
