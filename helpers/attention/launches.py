"""The launches of attention for tensors of one layout, which are made once and remembered."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch.nn.attention import SDPBackend
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.attention.kernels import attend_kernel, merge_triples_kernel
from helpers.attention.plan import pays_to_describe, plan_attention
from helpers.engine.runtime import INTERPRETED
from helpers.engine.torch_parts import DisableTorchDispatch, fused_sdp_choice
from helpers.softmax.launches.launch import Launch, keep_launcher, on_stream

_LOG2E = 1.4426950408889634


class AttentionLaunches:
    """Fills o, (B, H, L, d), from q of the same shape and from k and v, (B, H / group, N, d), that lie as these do.

    The first dimension may be missing in all of them. `strides` are o's.
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float) -> None:
        self.strides = _strides_as_torchs(q, k, v, is_causal)
        q, k, v = map(_with_batch, (q, k, v))
        (batch, heads, tokens, D), N = q.shape, k.shape[2]
        group = heads // k.shape[1]
        self.plan = plan = plan_attention(
            batch, heads, group, tokens, N, D, q.element_size(), is_causal, _multiprocessors(q)
        )
        groups = batch * heads // plan.together
        programs = groups * triton.cdiv(plan.together * tokens, plan.BLOCK_M)
        self.splits, self.parts, self.fits = plan.S > 1, programs * plan.S, True
        self.described = pays_to_describe(q.numel() * N, is_causal) and all(map(_is_described, (k, v)))
        o_batch, o_head, o_row = (0, *self.strides)[-4:-1]
        rows = {"HEADS": heads, "TOKENS": tokens, "o_batch": o_batch, "o_head": o_head, "o_row": o_row}
        tile = {"TOGETHER": plan.together, "BLOCK_M": plan.BLOCK_M, "BLOCK_D": plan.BLOCK_D, "D": D}
        strides = {
            f"{name}_{axis}": stride
            for name, x in (("q", q), ("k", k), ("v", v))
            for axis, stride in zip(("batch", "head", "row", "col"), x.stride(), strict=True)
        }
        self.attend = Launch(
            attend_kernel, (programs, plan.S, 1), warps=plan.num_warps, registers=None,
            **rows, **tile, **strides, GROUP=group, N=N, scale=scale * _LOG2E,
            CAUSAL=is_causal, PARTS=self.splits, TAIL=is_causal or N % plan.BLOCK_N > 0, DESCRIBED=self.described,
            BLOCK_N=plan.BLOCK_N, STAGES=plan.stages,
        )  # fmt: skip
        self.merge = Launch(
            merge_triples_kernel, (groups * plan.together * tokens, 1, 1), warps=4, registers=None,
            **rows, **tile, S=plan.S, BLOCK_S=min(32, triton.next_power_of_2(plan.S)),
        )  # fmt: skip

    def fill(self, o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
        """Whether o was filled: False if a program needs more shared memory than this GPU has."""
        if self.fits:
            try:
                self._fill(o, q, k, v)
            except triton.OutOfResources:
                self.fits = False
        return self.fits

    def _fill(self, o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        parts = pairs = o
        if self.splits:
            parts = torch.empty(self.parts, self.plan.BLOCK_M, self.plan.BLOCK_D, dtype=torch.float32, device=q.device)
            pairs = torch.empty(self.parts, self.plan.BLOCK_M, 2, dtype=torch.float32, device=q.device)
        on_stream(q, self._by_descriptors if self.described else self.attend, (parts, pairs, q, k, v))
        if self.splits:
            on_stream(q, self.merge, (o, parts, pairs))

    def _by_descriptors(self, tensors: tuple[torch.Tensor, ...], stream: int, zeros: Any) -> None:
        """Through Triton's own launch: a descriptor is an argument that it unpacks."""
        block = [1, 1, self.plan.BLOCK_N, self.plan.BLOCK_D]
        described = [TensorDescriptor(x, list(x.shape), list(x.stride()), block) for x in map(_with_batch, tensors[3:])]
        attend = self.attend
        attend.kernel[attend.grid](*tensors[:3], *described, *attend.arguments, **attend.options)


_known: dict[tuple, AttentionLaunches] = {}


def attention_launches(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> AttentionLaunches:
    """The launches for tensors of this layout, dtype, alignment and device."""
    layouts = [part for x in (q, k, v) for part in (x.shape, x.stride(), x.data_ptr() % 16)]
    key = (*layouts, q.dtype, q.get_device(), is_causal, scale)
    return _known.get(key) or keep_launcher(_known, key, AttentionLaunches(q, k, v, is_causal, scale))


def _with_batch(x: torch.Tensor) -> torch.Tensor:
    return x if x.dim() == 4 else x[None]


def _strides_as_torchs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> tuple[int, ...]:
    """How the result of torch's attention lies, by the way in which torch would compute it here; columns lie closest.

    The efficient way has heads inside tokens always, the plain one is contiguous, and all others keep q's order.
    """
    with DisableTorchDispatch():  # who counts operations is not to count the question
        way = fused_sdp_choice(q, k, v, is_causal=is_causal, enable_gqa=q.shape[:-2] != k.shape[:-2])
    if way == SDPBackend.EFFICIENT_ATTENTION.value:
        return torch.empty_permuted(q.shape, (0, 2, 1, 3), device="meta").stride()
    strides = torch.empty_like(q, device="meta").stride()
    if way == SDPBackend.MATH.value or strides[-1] != 1:
        return torch.empty(q.shape, device="meta").stride()
    return strides


def _is_described(x: torch.Tensor) -> bool:
    """Whether x, (B, H, N, d), lies so that a GPU copies whole tiles by a descriptor."""
    *strides, last = x.stride()
    size = x.element_size()
    regular = last == 1 and size == 2 and x.data_ptr() % 16 == 0 and all(s > 0 and s * size % 16 == 0 for s in strides)
    return regular and not INTERPRETED and torch.cuda.get_device_capability(x.device) >= (9, 0)


def _multiprocessors(x: torch.Tensor) -> int:
    return 132 if x.is_cpu else torch.cuda.get_device_properties(x.device).multi_processor_count
