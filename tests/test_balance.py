"""Label-balanced sampling: exact size, no order of the pool matters, and no label is left behind that need not be."""

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.core.balance import Carried, balanced, carried, drawing_order, fill, histogram
from data_preprocess.core.balance_card import balance_card, balance_lines
from data_preprocess.core.skiplog import SkipRow
from radverl.labels import CHEXPERT_14

LABELS = ("a", "b", "c", "d")
SETS = st.frozensets(st.sampled_from(LABELS))


def pools(most: int, sets: st.SearchStrategy[Carried] = SETS) -> st.SearchStrategy[dict[str, Carried]]:
    return st.lists(sets, max_size=most).map(lambda found: {f"s{i}": labels for i, labels in enumerate(found)})


def counts(pool: Mapping[str, Carried], sample: object) -> Counter[str]:
    return Counter(dict.fromkeys(LABELS, 0)) + Counter(label for name in sample for label in pool[name])  # type: ignore[attr-defined]


def lowest(pool: Mapping[str, Carried], sample: object) -> int:
    found = counts(pool, sample)
    return min(found[label] for label in LABELS)


def draw(pool: Mapping[str, Carried], number: int, **options: object) -> list[str]:
    return balanced(pool, number, labels=LABELS, **options)  # type: ignore[arg-type]


@given(pools(40), st.integers(0, 50), st.integers(-5, 5))
def test_exactly_the_number_or_all_and_nothing_twice(pool: dict[str, Carried], number: int, seed: int) -> None:
    sample = draw(pool, number, seed=seed)
    assert len(sample) == min(number, len(pool))
    assert len(set(sample)) == len(sample)
    assert set(sample) <= pool.keys()


@given(pools(40), st.integers(0, 40), st.randoms(use_true_random=False))
def test_the_order_of_the_pool_does_not_matter(pool: dict[str, Carried], number: int, shuffler: random.Random) -> None:
    items = list(pool.items())
    shuffler.shuffle(items)
    assert draw(dict(items), number) == draw(pool, number)


@given(pools(40), st.integers(0, 40))
def test_every_label_has_its_fair_share_or_all_there_is(pool: dict[str, Carried], number: int) -> None:
    there, taken = counts(pool, pool), counts(pool, draw(pool, number))
    for label in LABELS:
        assert taken[label] >= min(there[label], number // len(LABELS))


@given(pools(60, st.sampled_from(LABELS).map(lambda label: frozenset({label}))), st.integers(0, 60))
def test_studies_of_one_label_are_filled_up_like_water(pool: dict[str, Carried], number: int) -> None:
    there, taken = counts(pool, pool), counts(pool, draw(pool, number))
    for one, other in itertools.permutations(LABELS, 2):
        assert taken[one] == there[one] or taken[other] <= taken[one] + 1


@settings(deadline=None, max_examples=60)
@given(st.tuples(*[st.sampled_from((0.02, 0.1, 0.3, 0.6, 0.95, 1.0))] * 4), st.integers(40, 120), st.integers(0, 10**6))
def test_the_rarest_label_is_never_rarer_than_in_random_samples(
    chances: tuple[float, ...], size: int, seed: int
) -> None:
    shuffler = random.Random(seed)
    pool = {
        f"s{i}": frozenset(label for label, p in zip(LABELS, chances, strict=True) if shuffler.random() < p)
        for i in range(size)
    }
    number = shuffler.randint(8, size // 2)
    drawn = [lowest(pool, shuffler.sample(sorted(pool), number)) for _ in range(20)]
    assert lowest(pool, draw(pool, number)) >= max(drawn)


def test_on_a_long_tail_it_beats_every_one_of_many_random_samples() -> None:
    chance = {"a": 0.6, "b": 0.3, "c": 0.05, "d": 0.02}
    shuffler = random.Random(0)
    pool = {f"s{i}": frozenset(k for k, p in chance.items() if shuffler.random() < p) for i in range(3000)}
    level = lowest(pool, draw(pool, 120))
    drawn = [lowest(pool, shuffler.sample(sorted(pool), 120)) for _ in range(200)]
    assert level >= 40
    assert max(drawn) < level / 4
    assert statistics.mean(drawn) < 4


def test_labels_that_come_together_still_end_almost_equal() -> None:
    shuffler = random.Random(1)
    chance = {"a": 0.5, "b": 0.4, "c": 0.1, "d": 0.05}
    pool = {f"s{i}": frozenset(k for k, p in chance.items() if shuffler.random() < p) for i in range(5000)}
    pool |= {f"t{i}": frozenset("ab") for i in range(3000)}
    found = counts(pool, draw(pool, 200)).values()
    assert max(found) - min(found) <= 4
    assert min(found) >= 90  # more than 50 each: studies that carry several labels are used


@given(pools(40), st.integers(0, 40))
def test_a_smaller_sample_is_the_start_of_a_larger_one(pool: dict[str, Carried], number: int) -> None:
    assert draw(pool, len(pool))[:number] == draw(pool, number)


def test_known_sample() -> None:
    labels = {"s": "a", "t": "a", "u": "a", "v": "ab", "w": "b", "x": "c", "y": "", "z": "abc"}
    pool = {name: frozenset(letters) for name, letters in labels.items()}
    # "c" is the rarest, and of its two studies z carries the most labels; then all are at one, and so on.
    assert draw(pool, 1) == ["z"]
    assert set(draw(pool, 3)) == {"z", "x", "v"}
    assert dict(counts(pool, draw(pool, 3))) == {"a": 2, "b": 2, "c": 2}
    assert draw(pool, 8)[-1] == "y"  # without any label: last


@given(pools(30), st.integers(0, 30), st.data())
def test_what_is_kept_stays_and_counts(pool: dict[str, Carried], number: int, data: st.DataObject) -> None:
    keep = data.draw(st.sets(st.sampled_from(sorted(pool)), max_size=number)) if pool else set()
    sample = draw(pool, number, keep=keep)
    assert set(sample[: len(keep)]) == keep
    assert len(set(sample)) == len(sample) == min(number, len(pool))


def test_the_seed_changes_the_sample_not_its_balance() -> None:
    pool = {f"s{i}": frozenset(LABELS[i % 4]) for i in range(400)}
    samples = [draw(pool, 40, seed=seed) for seed in range(3)]
    assert len({frozenset(sample) for sample in samples}) == 3
    for sample in samples:
        assert set(counts(pool, sample).values()) == {10}


def test_the_drawing_order_is_the_same_everywhere() -> None:
    names = [f"patient{i:05d}/study1" for i in range(6)]
    assert [name[11] for name in drawing_order(names)] == ["4", "1", "3", "2", "5", "0"]
    assert drawing_order(reversed(names)) == drawing_order(names)
    assert drawing_order(names, 1) != drawing_order(names)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="use 0 or more"):
        draw({}, -1)
    with pytest.raises(ValueError, match="'x' is to be kept, but is not in the pool"):
        draw({"s": frozenset()}, 1, keep=["x"])


@pytest.mark.parametrize(
    ("policy", "names"),
    [("ones", {"Edema", "Fracture"}), ("zeros", {"Edema"}), ("ignore", {"Edema"})],
)
def test_a_label_counts_as_the_reward_counts_it(policy: str, names: set[str]) -> None:
    labels = dict.fromkeys(CHEXPERT_14) | {"Edema": 1, "Fracture": -1, "Pneumonia": 0, "No Finding": 1}
    assert carried(labels, policy) == names  # type: ignore[arg-type]
    assert carried(dict.fromkeys(CHEXPERT_14) | {"No Finding": 1}) == {"No Finding"}


def test_fill_replaces_what_cannot_be_used_and_opens_only_what_is_drawn() -> None:
    pool = {f"s{i}": frozenset(LABELS[i % 4]) for i in range(40)}
    wanted = draw(pool, 12)
    bad, opened = set(wanted[:3]), []

    def convert(names: list[str]) -> list[str | SkipRow]:
        opened.extend(names)
        return [SkipRow(f"{name} is torn", "torn") if name in bad else name.upper() for name in names]

    done, unusable = fill(pool, lambda left, keep: draw(left, 12, keep=keep), convert)
    assert unusable.keys() == bad
    assert {why.reason for why in unusable.values()} == {"torn"}
    assert len(done) == 12
    assert done.keys() >= set(wanted) - bad
    assert set(counts(pool, done).values()) == {3}
    assert sorted(opened) == sorted({*done, *bad})  # 15 of 40, none twice
    assert all(value == name.upper() for name, value in done.items())


def test_fill_ends_when_nothing_is_left() -> None:
    pool = {f"s{i}": frozenset("a") for i in range(5)}
    done, unusable = fill(
        pool, lambda left, keep: draw(left, 4, keep=keep), lambda names: [SkipRow(name, "torn") for name in names]
    )
    assert not done
    assert unusable.keys() == pool.keys()


def test_the_histogram_names_the_labels_that_the_pool_cannot_fill() -> None:
    pool = {f"s{i}": frozenset("a") for i in range(30)} | {f"t{i}": frozenset("b") for i in range(20)}
    pool |= {"u0": frozenset("c")}
    rows = histogram(pool, draw(pool, 21), LABELS)
    assert [tuple(row) for row in rows] == [
        ("a", 30, 10, False),
        ("b", 20, 10, False),
        ("c", 1, 1, True),
        ("d", 0, 0, True),
    ]
    text = "\n".join(balance_lines(balance_card(21, 21, 51, "ones", rows)))
    assert "Balanced: 21 of 51 studies; uncertain labels count as present." in text
    assert "| b | 20 | 10 |" in text
    assert "all studies that carry it are taken: c (1)." in text
    assert "no study carries it: d." in text
    assert "99 were asked for, there are no more." in balance_lines(balance_card(99, 51, 51, "zeros", rows))[0]
    assert not any(row.exhausted for row in histogram(pool, pool, LABELS))  # all taken: nothing was held back
