"""Variants of lesson 13's answers, wrong and right, as corpus.py lists those of the other lessons."""

from variants import Variant
from variants import coded as _code
from variants import swapped as _swap

_FOUND = "found = [torch.empty_like(pairs) for _ in range(group.size())]"
_GATHER = "dist.all_gather(found, pairs, group=group)"
_UNBIND = "m_parts, l_parts = torch.stack(found).unbind(dim=2)"
_M = "m = m_parts.amax(dim=0)"
_SUM = "l = (l_parts * torch.exp(m_parts - shift)).sum(dim=0)"
_Y = "y = torch.exp(shard - shift[:, None]) / l[:, None]"

_IN_TWO = """
def softmax_of_shard(shard, group):
    pairs = pairs_of(shard)
    m = pairs[:, 0].clone()
    dist.all_reduce(m, dist.ReduceOp.{op}, group=group)
    shift = torch.where(m == -float("inf"), 0.0, m)
    l = pairs[:, 1] * torch.exp(pairs[:, 0] - shift)
    dist.all_reduce(l, group=group)
    return (torch.exp(shard - shift[:, None]) / l[:, None]).to(shard.dtype)
"""
_PADDED = """
def softmax_of_shard(shard, group):
    width = {width}
    mine = torch.full((len(shard), width), -float("inf"))
    mine[:, :shard.shape[1]] = shard
    found = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(found, mine, group=group)
    whole = torch.softmax(torch.cat(found, dim=1), dim=1).to(shard.dtype)
    return {returned}
"""
_OBJECTS = """
def softmax_of_shard(shard, group):
    parts = [None] * group.size()
    dist.all_gather_object(parts, shard, group=group)
    whole = torch.softmax(torch.cat(parts, dim=1), dim=1)
    return {returned}
"""
_SLOTS = """
def softmax_of_shard(shard, group):
    slots = torch.zeros({size}, len(shard), 2)
    slots[{rank}] = pairs_of(shard)
    dist.all_reduce(slots, group=group)
    m_parts, l_parts = slots.unbind(dim=2)
    m = m_parts.amax(dim=0)
    shift = torch.where(m == -float("inf"), 0.0, m)
    l = (l_parts * torch.exp(m_parts - shift)).sum(dim=0)
    return (torch.exp(shard - shift[:, None]) / l[:, None]).to(shard.dtype)
"""
_OF_TORCH = """
def softmax_of_shard(shard, group):
    m, e = shard.amax(dim=1), torch.exp(shard - shard.amax(dim=1, keepdim=True))
    pairs = torch.stack((m, e.sum(dim=1)), dim=1)
    found = [torch.empty_like(pairs) for _ in range(group.size())]
    dist.all_gather(found, pairs, group=group)
    m_parts, l_parts = torch.stack(found).unbind(dim=2)
    m = m_parts.amax(dim=0)
    l = (l_parts * torch.exp(m_parts - m)).sum(dim=0)
    return (torch.exp(shard - m[:, None]) / l[:, None]).to(shard.dtype)
"""


def _logits(width: str, returned: str, named: str = "columns_cross") -> Variant:
    return _code(named, _PADDED.format(width=width, returned=returned))


_OWN = "whole[:, group.rank() * width : group.rank() * width + shard.shape[1]]"

_X_TARGET = "x_target[rows] = shard[rows, local[rows]]"
_ROWS = "rows = torch.nonzero((local >= 0) & (local < shard.shape[1]))[:, 0]"
_LOSS = "loss = (m + torch.log(l) - x_parts.sum(dim=0))[counts].mean()"
_GRADIENT = "gradient = torch.exp(shard - m[:, None]) / l[:, None]"
_ONE_HOT = "gradient[rows, local[rows]] -= 1"
_KEPT = "gradient = torch.where(counts[:, None], gradient / counts.sum(), 0.0)"
_MINE = "mine = torch.cat([pairs, x_target[:, None]], dim=1)"
_CROSS = "found = [torch.empty_like(mine) for _ in range(group.size())]"
_UNBOUND = "m_parts, l_parts, x_parts = torch.stack(found).unbind(dim=2)"
_SENT = "dist.all_gather(found, mine, group=group)"
_EMPTY_RANK = "    if shard.shape[1] == 0:\n        return {what}\n"
_RING = """
def softmax_of_shard(shard, group):
    W, me = group.size(), group.rank()
    parts, passed = [shard], shard.contiguous()
    for _ in range(W - 1):
        got = torch.empty_like(passed)
        send, receive = dist.P2POp(dist.isend, passed, (me + 1) % W, group), dist.P2POp(dist.irecv, got, (me - 1) % W, group)
        [work.wait() for work in dist.batch_isend_irecv([send, receive])]
        parts.append(got)
        passed = got
    whole = torch.cat(parts, dim=1)
    m = whole.amax(dim=1)
    shift = torch.where(m == -float("inf"), 0.0, m)
    l = torch.exp(whole - shift[:, None]).sum(dim=1)
    return (torch.exp(shard - shift[:, None]) / l[:, None]).to(shard.dtype)
"""

WRONG: dict[str, dict[str, Variant]] = {
    "sharded_softmax": {
        "gathered on rank 0": _swap("only_rank_0_knows", _GATHER, "dist.gather(pairs, found if group.rank() == 0 else None, 0, group=group)",
                                    "torch.empty_like(pairs)", "torch.zeros_like(pairs)"),
        "a rank of only -inf leaves": _swap("some_ranks_wait", "    pairs = pairs_of", "    if bool((shard == -float('inf')).all()) and shard.shape[1]:\n        return shard\n    pairs = pairs_of"),
        "gathered on rank 0 alone": _swap("some_ranks_wait", _GATHER, "if group.rank() == 0:\n        dist.all_gather(found, pairs, group=group)"),
        "no collective": _swap("nothing_crosses", _GATHER, "pass", "torch.empty_like(pairs)", "torch.zeros_like(pairs)"),
        "-inf of a pair as 0": _swap("m_of_empty_shard", "    pairs = pairs_of(shard)", "    pairs = pairs_of(shard)\n    pairs[:, 0] = pairs[:, 0].nan_to_num(neginf=0.0)"),
        "merged in turn, empty shards first": _swap(
            "minus_inf_anywhere", _UNBIND, "m, l = pairs.new_full((len(pairs),), -float('inf')), pairs.new_zeros(len(pairs))",
            _M, "for pair in found:\n        m_new = torch.maximum(m, pair[:, 0])\n        l = l * torch.exp(m - m_new) + pair[:, 1] * torch.exp(pair[:, 0] - m_new)\n        m = m_new",
            _SUM, "l = l"),
        "gathered in one tensor, read by rows": _swap(
            "layout_of_gather", _FOUND, "found = pairs.new_empty(group.size() * len(pairs), 2)", _GATHER, "dist.all_gather_into_tensor(found, pairs, group=group)",
            _UNBIND, "m_parts, l_parts = found.view(len(pairs), group.size(), 2).transpose(0, 1).unbind(dim=2)"),
        "broadcast from rank 0": _swap("pair_of_one_rank", _FOUND, "found = [pairs.clone()]", _GATHER, "dist.broadcast(found[0], 0, group=group)"),
        "a row of -inf is 0": _swap("row_of_minus_inf", _Y, f"{_Y}.clamp(min=1e-30)"),
        "NaN is 0": _swap("row_of_minus_inf", _Y, "y = (torch.exp(shard - shift[:, None]) / l[:, None]).nan_to_num(0)"),
        "-inf as 0": _swap("minus_inf_anywhere", _Y, "y = torch.exp(torch.where(shard == -float('inf'), 0.0, shard) - shift[:, None]) / l[:, None]"),
        "a rank without columns leaves": _swap("empty_rank_skips", "    pairs = pairs_of", _EMPTY_RANK.format(what="shard") + "    pairs = pairs_of"),
        "a rank without columns barriers": _swap("ranks_call_differently", "    pairs = pairs_of",
                                                 "    if shard.shape[1] == 0:\n        dist.barrier(group=group)\n        return shard\n    pairs = pairs_of"),
        "sum before maximum on rank 0": _swap(
            "ranks_call_differently", _FOUND, "found = [pairs.clone()]\n    op = dist.ReduceOp.SUM if group.rank() else dist.ReduceOp.MAX", _GATHER,
            "dist.all_reduce(found[0], op, group=group) if group.rank() else dist.broadcast(found[0], 0, group=group)"),
        "shards gathered": _swap("shapes_of_ranks_differ", _FOUND, "found = [torch.empty_like(shard) for _ in range(group.size())]", _GATHER,
                                 "dist.all_gather(found, shard.contiguous(), group=group)", _UNBIND, "whole = torch.cat(found, dim=1)", _M, "m = whole.amax(dim=1)",
                                 _SUM, "l = torch.exp(whole - shift[:, None]).sum(dim=1)"),
        "shards around a ring": _code("shapes_of_ranks_differ", _RING),
        "never waited for": _swap("not_waited_for", _GATHER, "dist.all_gather(found, pairs, group=group, async_op=True)", "torch.empty_like(pairs)", "pairs.clone()"),
        "the shard overwritten": _swap("shard_overwritten", _Y, "y = shard.sub_(shift[:, None]).exp_() / l[:, None]"),
        "torch's maximum of no columns": _code("empty_shard_raises", _OF_TORCH),
        "four ranks": _swap("number_of_ranks_fixed", "range(group.size())", "range(4)"),
        "the whole row": _code("whole_row_returned", _OBJECTS.format(returned="whole")),
        "logits of the widest shard": _logits("160", _OWN),
        "a maximum, then a sum": _code("too_many_collectives", _IN_TWO.format(op="MAX")),
        "parts of equal width": _code("equal_shards_only", _OBJECTS.format(returned="whole.chunk(group.size(), dim=1)[group.rank()]")),
        "logits as objects": _code("too_many_collectives", _OBJECTS.format(
            returned="whole.split([part.shape[1] for part in parts], dim=1)[group.rank()]")),
        "endless on rank 0": _swap("endless", "    pairs = pairs_of", "    while group.rank() == 0:\n        pass\n    pairs = pairs_of"),
        "exit on rank 1": _swap("ends_its_process", "    pairs = pairs_of", "    import os\n    if group.rank() == 1:\n        os._exit(3)\n    pairs = pairs_of"),
        "nothing returned": _swap("nothing_returned", "    return y.to(shard.dtype)", "    y + 0"),
        "an error": _swap("error", _Y, "y = shard.no_such_method()"),
        "the default group": _swap("group_is_the_world", ", group=group)", ")"),
        "the world's size": _swap("group_is_the_world", "group.size()", "dist.get_world_size()"),
        "the world's size, on the default group": _swap("group_is_the_world", "group.size()", "dist.get_world_size()", ", group=group)", ")"),
        "slots of the world": _code("group_is_the_world", _SLOTS.format(size="dist.get_world_size()", rank="dist.get_rank()")),
        "the rank in the world": _code("group_is_the_world", _SLOTS.format(size="group.size()", rank="dist.get_rank()")),
        "the first four ranks": _swap("number_of_ranks_fixed", "torch.stack(found)", "torch.stack(found[:4])"),
        "the first eight ranks": _swap("number_of_ranks_fixed", "torch.stack(found)", "torch.stack(found[:8])"),
        "float32 for every shard": _swap("wrong_dtype", "return y.to(shard.dtype)", "return y"),
        "exp in the shard's dtype": _swap("only_16_bit", _Y, "y = torch.exp(shard - shift[:, None].to(shard.dtype)) / l[:, None]"),
        "rounded before the division": _swap("only_16_bit", _Y, "y = torch.exp(shard - shift[:, None]).to(shard.dtype) / l[:, None]"),
        "pairs in the shard's dtype": _swap("only_16_bit", "    pairs = pairs_of(shard)", "    pairs = pairs_of(shard).to(shard.dtype)"),
    },
    "sharded_loss": {
        "target of another rank looked up": _swap("target_of_another_rank", _ROWS, "rows = torch.nonzero(counts)[:, 0]"),
        "target not shifted": _swap("target_of_another_rank", "target - start", "target", _ROWS, "rows = torch.nonzero(counts)[:, 0]"),
        "an ignored row times 0": _swap("ignored_rows_wrong", _LOSS, "loss = ((m + torch.log(l) - x_parts.sum(dim=0)) * counts).sum() / counts.sum()"),
        "negative index": _swap("negative_index", "(local >= 0) & (local < shard.shape[1])", "counts & (local < shard.shape[1])"),
        "negative index of ignored rows": _swap("negative_index", "(local >= 0) & (local < shard.shape[1])", "local < shard.shape[1]"),
        "end counted": _swap("end_of_shard_counted", "local < shard.shape[1]", "local <= shard.shape[1]"),
        "each row": _swap("loss_of_each_row", "[counts].mean()", ""),
        "0 / 0 in the gradient": _swap("only_ignored_rows", _KEPT, "gradient = gradient.where(counts[:, None], 0.0) / counts.sum()"),
        "0 times NaN, and 0 / 0": _swap("zero_times_nan_in_gradient", _KEPT, "gradient = gradient * counts[:, None] / counts.sum()"),
        "at least one row": _swap("only_ignored_rows", "[counts].mean()", "[counts].sum() / counts.sum().clamp(min=1)"),
        "its gradient comes first": _swap("loss_last", "return loss, gradient", "return gradient, loss"),
        "the loss alone": _swap("one_result", "return loss, gradient", "return loss"),
        "nothing": _swap("nothing_returned", "return loss, gradient", "loss, gradient"),
        "a rank without a target leaves": _swap("rank_without_target_skips", _MINE, "if not len(rows):\n        return loss, gradient\n    " + _MINE),
        "a rank without columns leaves": _swap("empty_rank_skips", _MINE, "if not shard.shape[1]:\n        return loss, gradient\n    " + _MINE),
        "only its target's rows are sent": _swap("shapes_of_ranks_differ", _MINE, f"{_MINE}[rows]"),
        "an order of its own": _swap("ranks_call_differently", _CROSS, "dist.barrier(group=group) if len(rows) else None\n    " + _CROSS),
        "gather, no columns": _swap("empty_shard_raises", _X_TARGET, "at = local.clamp(0, shard.shape[1] - 1) if shard.shape[1] else local\n"
                                    "    found = shard.gather(1, at.clamp(min=0)[:, None])[:, 0]\n    x_target[rows] = found[rows]"),
        "four ranks": _swap("number_of_ranks_fixed", "range(group.size())", "range(4)"),
        "async": _swap("not_waited_for", _SENT, "dist.all_gather(found, mine, group=group, async_op=True)", "torch.empty_like(mine)", "mine.clone()"),
        "the shard overwritten": _swap("shard_overwritten", _GRADIENT, "gradient = shard.sub_(m[:, None]).exp_() / l[:, None]"),
        "a second collective for the target": _swap("too_many_collectives", _MINE, "mine = pairs", _UNBOUND, "m_parts, l_parts = torch.stack(found).unbind(dim=2)\n"
                                                    "    x_parts = x_target[None].clone()\n    dist.all_reduce(x_parts, group=group)"),
        "a collective for the gradient": _swap("too_many_collectives", _KEPT, f"every = counts.sum() * 1.0\n    dist.all_reduce(every, dist.ReduceOp.MAX, group=group)\n    {_KEPT}"),
        "the default group": _swap("group_is_the_world", ", group=group)", ")"),
        "the world's size": _swap("group_is_the_world", "group.size()", "dist.get_world_size()"),
        "the first four ranks": _swap("number_of_ranks_fixed", "torch.stack(found)", "torch.stack(found[:4])"),
        "a gradient in float32": _swap("wrong_dtype", "gradient.to(shard.dtype)", "gradient"),
        "a loss in the shard's dtype": _swap("wrong_dtype", "return loss,", "return loss.to(shard.dtype),"),
        "sent in the shard's dtype": _swap("only_16_bit", _MINE, f"{_MINE}.to(shard.dtype)", "torch.stack(found)", "torch.stack(found).float()"),
        "sent in the shard's dtype, and kept in it": _swap("wrong_dtype", _MINE, f"{_MINE}.to(shard.dtype)"),
        "losses rounded": _swap("only_16_bit", _LOSS, "loss = (m + torch.log(l) - x_parts.sum(dim=0)).to(shard.dtype)[counts].float().mean()"),
        "rounded before the one-hot": _swap("only_16_bit", _GRADIENT, f"{_GRADIENT}.to(shard.dtype)".replace("= torch", "= (torch").replace("None].to", "None]).to")),
        "log-sum-exps in the shard's dtype": _swap("only_16_bit", "(m + torch.log(l)", "((m + torch.log(l)).to(shard.dtype)"),
        "NaN for ignored targets": _swap("ignored_rows_wrong", "[counts].mean()", ".masked_fill(~counts, 1.0).sum() / counts.sum()"),
    },
}  # fmt: skip

_INTO = "found = pairs.new_empty(group.size() * len(pairs), 2)"
_OF_INTO = "m_parts, l_parts = found.view(group.size(), -1, 2).unbind(dim=2)"
_LSE = """
def softmax_of_shard(shard, group):
    m, l = pairs_of(shard).unbind(dim=1)
    lse = m + torch.log(l)
    found = [torch.empty_like(lse) for _ in range(group.size())]
    dist.all_gather(found, lse, group=group)
    return torch.exp(shard - torch.logsumexp(torch.stack(found), dim=0)[:, None]).to(shard.dtype)
"""
_FUNCTIONAL = """
import torch.distributed._functional_collectives as funcol


def softmax_of_shard(shard, group):
    pairs = pairs_of(shard)
    every = funcol.all_gather_tensor(pairs, 0, group)
    m_parts, l_parts = every.view(group.size(), len(shard), 2).unbind(dim=2)
    m = m_parts.amax(dim=0)
    l = (l_parts * torch.exp(m_parts - m)).sum(dim=0)
    return (torch.exp(shard - m[:, None]) / l[:, None]).to(shard.dtype)
"""
_AUTOGRAD = """
def loss_of_shard(shard, target, start, group):
    counts, W = target != -100, group.size()
    pairs, local = pairs_of(shard), target - start
    here = (local >= 0) & (local < shard.shape[1])
    x = torch.zeros(len(shard))
    x[here] = shard[here, local[here]].float()
    mine = torch.stack([*pairs.unbind(1), x])
    found = torch.empty(W, *mine.shape)
    dist.all_gather(list(found), mine, group=group)
    lse = torch.logsumexp(found[:, 0] + found[:, 1].log(), dim=0)
    loss = torch.where(counts, lse - found[:, 2].sum(0), 0.0).sum() / counts.sum()
    gradient = torch.exp(shard - lse[:, None])
    gradient -= torch.nn.functional.one_hot(local.where(here, shard.shape[1]), shard.shape[1] + 1)[:, :-1]
    return loss, (gradient.masked_fill(~counts[:, None], 0) / counts.sum().clamp(min=1)).to(shard.dtype)
"""

RIGHT: dict[str, dict[str, Variant]] = {
    "sharded_softmax": {
        "all_gather_into_tensor": _swap("", _FOUND, _INTO, _GATHER, "dist.all_gather_into_tensor(found, pairs, group=group)", _UNBIND, _OF_INTO),
        "async, with wait": _swap("", _GATHER, "work = dist.all_gather(found, pairs, group=group, async_op=True)\n    work.wait()"),
        "functional collectives": _code("", _FUNCTIONAL),
        "log-sum-exps": _code("", _LSE),
        "slots of one all-reduce": _code("", _SLOTS.format(size="group.size()", rank="group.rank()")),
        "in float64": _swap("", "pairs = pairs_of(shard)", "pairs = pairs_of(shard).double()"),
        "in turn": _swap("", _SUM, "l = 0.0\n    for m_i, l_i in zip(m_parts, l_parts):\n        l = l + l_i * torch.exp(m_i - shift)"),
        "folded": _swap("", _M, "m = m_parts[0]\n    for one in m_parts[1:]:\n        m = torch.maximum(m, one)"),
        "gathered in one list comprehension": _swap("", _FOUND, "found = list(torch.empty(group.size(), *pairs.shape).unbind())"),
        "exp of the difference of logarithms": _swap("", _Y, "y = torch.exp(shard - (shift + torch.log(l))[:, None])"),
    },
    "sharded_loss": {
        "another layout, one-hot": _code("", _AUTOGRAD),
        "searched for": _swap("", _ROWS, "rows = torch.tensor([row for row, at in enumerate(local.tolist()) if 0 <= at < shard.shape[1]], dtype=torch.int64)"),
        "minus infinity elsewhere": _swap("", "shard.new_zeros(len(shard))", "shard.new_full((len(shard),), -float('inf'))", "x_parts.sum(dim=0)", "x_parts.amax(dim=0)"),
        "a column of the gradient": _swap("", _ONE_HOT, "gradient.index_put_((rows, local[rows]), torch.tensor(-1.0), accumulate=True)"),
        "log-sum-exp at once": _swap("", "(m + torch.log(l)", "(torch.logsumexp(m_parts + torch.log(l_parts), dim=0)"),
        "a fourth number": _swap("", "mine = torch.cat([pairs, x_target[:, None]], dim=1)", "mine = torch.cat([pairs, x_target[:, None], shard.sum(dim=1, keepdim=True)], dim=1)",
                                 "m_parts, l_parts, x_parts = ", "m_parts, l_parts, x_parts, _ = "),
    },
}  # fmt: skip
