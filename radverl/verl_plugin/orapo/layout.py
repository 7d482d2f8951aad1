"""Order of the rows of a step: which rank and which mini-batch each rollout and each true report goes to.

verl cuts a batch into one run of rows per rank, each run into mini-batches, each mini-batch into micro-batches; so an
order is all there is to decide. Row mode may cut anywhere; group mode keeps the K + 1 rows of a prompt next to each
other.
"""

import math
from collections.abc import Mapping, Sequence

from radverl.verl_plugin.failures.flags import is_padding


def oracle_slots(mini_batch_prompts: int, n_ranks: int) -> int:
    """Places for true reports in a mini-batch: its prompts, rounded up so that each rank has as many."""
    return math.ceil(mini_batch_prompts / n_ranks) * n_ranks


def row_order(rollouts: Sequence[str], oracle: Sequence[str], n_chunks: int, lengths: Mapping[str, int]) -> list[str]:
    """Rollouts as verl balanced them, a fair share of the true reports spread through each chunk.

    Spread, so that no micro-batch need consist of true reports only; dealt out by length, so that chunks stay balanced.

    Args:
        rollouts, oracle: keys; both numbers are multiples of `n_chunks`.
        n_chunks: ranks times mini-batches, rank first.
        lengths: tokens of each row in `oracle`.
    """
    n_rollouts, n_oracle = len(rollouts) // n_chunks, len(oracle) // n_chunks
    if not n_oracle or n_rollouts * n_chunks != len(rollouts) or n_oracle * n_chunks != len(oracle):
        raise ValueError(
            f"{len(rollouts)} rollouts and {len(oracle)} true reports do not divide among {n_chunks} ranks and "
            "mini-batches; make ppo_mini_batch_size x rollout.n a multiple of the ranks."
        )
    # Padding last, whatever its length: the reports themselves are then shared out evenly.
    longest_first = sorted(oracle, key=lambda key: (is_padding(key), -lengths[key], key))
    dealt: list[list[str]] = [[] for _ in range(n_chunks)]
    for turn in range(n_oracle):  # there and back: the chunk that got the longest gets the shortest next
        hand = longest_first[turn * n_chunks : (turn + 1) * n_chunks]
        for chunk, key in zip(dealt, hand if turn % 2 == 0 else reversed(hand), strict=True):
            chunk.append(key)
    order: list[str] = []
    for number, chunk in enumerate(dealt):
        own = rollouts[number * n_rollouts : (number + 1) * n_rollouts]
        for place, key in enumerate(chunk):
            order += own[place * n_rollouts // n_oracle : (place + 1) * n_rollouts // n_oracle]
            order.append(key)
    return order


def group_order(groups: Sequence[Sequence[str]], n_chunks: int, lengths: Mapping[str, int]) -> list[str]:
    """Whole groups, dealt out by their tokens; each chunk gets as many groups.

    Args:
        groups: keys of the K + 1 rows of each prompt, padding groups included; a multiple of `n_chunks`.
        n_chunks: ranks times mini-batches, rank first.
        lengths: tokens of each row.
    """
    if len(groups) % n_chunks:
        raise ValueError(f"{len(groups)} groups do not divide among {n_chunks} ranks and mini-batches.")
    heaviest_first = sorted(
        groups, key=lambda group: (is_padding(group[-1]), -sum(lengths[key] for key in group), group[0])
    )
    dealt: list[list[str]] = [[] for _ in range(n_chunks)]
    for turn in range(len(groups) // n_chunks):
        hand = heaviest_first[turn * n_chunks : (turn + 1) * n_chunks]
        for chunk, group in zip(dealt, hand if turn % 2 == 0 else reversed(hand), strict=True):
            chunk += group
    return [key for chunk in dealt for key in chunk]


def row_groups(rollouts: Sequence[str], oracle: Sequence[str], uids: Sequence[str], n: int) -> list[list[str]]:
    """The K + 1 rows of each prompt, its true report last; short groups and empty slots are filled with padding rows.

    Args:
        rollouts: keys of the rollouts and of enough padding rows.
        oracle: keys of the true reports in the order of `uids`, then of padding rows.
        n: rollouts of a prompt, K.
    Raises:
        ValueError: a prompt has more than `n` rows (a row of the data asked for more rollouts).
    """
    members: dict[str, list[str]] = {uid: [] for uid in uids}
    padding: list[str] = []
    for key in rollouts:
        members.get(key.rsplit("_", 2)[0], padding).append(key)
    if any(len(keys) > n for keys in members.values()):
        raise ValueError(
            f"+algorithm.orapo.mode=group has room for {n} rollouts of a prompt, and a row asked for more by "
            "__rollout_n__; take that column out, or make one update per batch and leave mode at auto."
        )
    filler = iter(padding)
    slots = [*members.values(), *([] for _ in oracle[len(uids) :])]
    return [
        [*keys, *(next(filler) for _ in range(n - len(keys))), truth] for keys, truth in zip(slots, oracle, strict=True)
    ]


def rows_with_padding(rows: int, at_most: int) -> int:
    """`rows`, or the next number that verl's static split can cut into micro-batches of half of `at_most` or more.

    A prime number of rows would otherwise go through the model one by one.
    """
    wanted = rows
    while 2 * micro_batch_size(wanted, at_most) < min(at_most, rows):
        wanted += 1
    return wanted


def micro_batch_size(rows_per_rank: int, at_most: int) -> int:
    """The largest number of rows up to `at_most` that divides the rows of a rank, as verl's static split needs."""
    return max(size for size in range(1, min(rows_per_rank, at_most) + 1) if rows_per_rank % size == 0)
