"""What calls of the judge cost, and how much of it is allowed: usage, prices, limits, budget.

    money = (input tokens x input price + output tokens x output price) / 10^6

Settings are mappings, text "name=value,name=value", JSON, or the path of a JSON file; those that are not given come
from RADVERL_JUDGE_LIMITS, RADVERL_JUDGE_BUDGET and RADVERL_JUDGE_PRICES. Numbers may be written as 5e6.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

LIMITS_VARIABLE = "RADVERL_JUDGE_LIMITS"
BUDGET_VARIABLE = "RADVERL_JUDGE_BUDGET"
PRICES_VARIABLE = "RADVERL_JUDGE_PRICES"
# Ours. English has some 4 characters a token; report text with numbers, measures and blanks has fewer.
BYTES_PER_TOKEN = 3

Setting = str | Mapping[str, Any] | None


@dataclass(frozen=True)
class Usage:
    """Calls made, and the tokens sent and received."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Self) -> "Usage":
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __or__(self, other: Self) -> "Usage":
        """The larger of two running sums."""
        return Usage(*(max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))

    def __sub__(self, other: Self) -> "Usage":
        return Usage(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Prices:
    """Money per million tokens, in whatever currency the table has."""

    input: float
    output: float

    def money(self, usage: Usage) -> float:
        """What a usage costs."""
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Limits:
    """Of all workers together; None is no limit. Rates are per any 60 s."""

    concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True)
class Budget:
    """Of all workers together, for one run; None is no cap."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None

    def exceeded_by(self, usage: Usage, prices: Prices | None) -> str | None:
        """The first cap that a usage is above, as "3 calls"; None where it is within all."""
        if self.calls is not None and usage.calls > self.calls:
            return f"{self.calls:,} calls"
        if self.tokens is not None and usage.tokens > self.tokens:
            return f"{self.tokens:,} tokens"
        # A hundred prices of a hundredth must not exceed 1 by rounding.
        if self.money is not None and prices is not None and prices.money(usage) > self.money * (1 + 1e-9):
            return f"{self.money:,.2f} in money"
        return None


def estimate_tokens(text: str) -> int:
    """Tokens of a text, rather too many than too few."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def read_usage(body: bytes) -> Usage | None:
    """The usage a server reports in the body of a chat completion, None where it reports none that makes sense."""
    try:
        said = json.loads(body)["usage"]
        numbers = [said["prompt_tokens"], said["completion_tokens"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**9 for n in numbers):
        return None
    return Usage(1, *numbers) if any(numbers) else None


def read_limits(given: Setting | Limits) -> Limits:
    """Limits from a setting; an empty one limits nothing.

    Raises:
        ValueError: an unknown name, or no whole number above 0.
    """
    if isinstance(given, Limits):
        return given
    found = _mapping(given, LIMITS_VARIABLE, "concurrent=32,requests_per_minute=600,tokens_per_minute=2e5")
    return Limits(**{name: _whole(LIMITS_VARIABLE, name, value) for name, value in _known(found, Limits).items()})


def read_budget(given: Setting | Budget) -> Budget:
    """A budget from a setting; an empty one caps nothing.

    Raises:
        ValueError: an unknown name, or no number above 0.
    """
    if isinstance(given, Budget):
        return given
    found = _known(_mapping(given, BUDGET_VARIABLE, "calls=20000,tokens=5e7,money=25"), Budget)
    out: dict[str, Any] = {n: _whole(BUDGET_VARIABLE, n, v) for n, v in found.items() if n != "money"}
    if "money" in found:
        out["money"] = _number(BUDGET_VARIABLE, "money", found["money"])
    return Budget(**out)


def read_prices(given: Setting | Prices, model: str | None = None) -> Prices | None:
    """Prices from a setting: {"input": 2, "output": 8}, or such a table per model; None where none is given.

    Raises:
        ValueError: not such a table, or it lacks the model.
    """
    if isinstance(given, Prices):
        return given
    example = "input=2,output=8 (money per million tokens)"
    found = _mapping(given, PRICES_VARIABLE, example)
    if not found:
        return None
    if all(isinstance(value, Mapping) for value in found.values()):
        if model not in found:
            named = f"model {model!r}" if model else "the model, which is not named"
            raise ValueError(f"{PRICES_VARIABLE}: no prices of {named}; the table has {', '.join(map(str, found))}.")
        found = dict(found[model])
    if set(found) != {"input", "output"}:
        raise ValueError(
            f"{PRICES_VARIABLE} needs input and output, not {', '.join(map(str, found))}; as in {example}."
        )
    return Prices(**{name: _number(PRICES_VARIABLE, name, value, zero=True) for name, value in found.items()})


def _mapping(given: Setting, variable: str, example: str) -> dict[str, Any]:
    given = os.environ.get(variable) if given is None else given
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    text = given.strip()
    try:
        if text and not text.startswith("{") and "=" not in Path(text).name:
            text = Path(text).read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            return dict(json.loads(text))
        return {name.strip(): value.strip() for name, value in (part.split("=") for part in text.split(",") if part)}
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{variable}: {given!r:.80} cannot be read ({error}); write it as {example}.") from None


def _known(found: dict[str, Any], kind: type) -> dict[str, Any]:
    names = [f.name for f in fields(kind)]
    if unknown := [name for name in found if name not in names]:
        raise ValueError(f"judge {kind.__name__.lower()}: {unknown[0]!r} is unknown; use {', '.join(names)}.")
    return {name: value for name, value in found.items() if value is not None}


def _number(variable: str, name: str, value: Any, zero: bool = False) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{variable}: {name} is {value!r:.40}; give a number {'of 0 or more' if zero else 'above 0'}.")
    return number


def _whole(variable: str, name: str, value: Any) -> int:
    number = _number(variable, name, value)
    if number != int(number):
        raise ValueError(f"{variable}: {name} is {value!r:.40}; give a whole number.")
    return int(number)
