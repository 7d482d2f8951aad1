"""`radverl cost`: calls, tokens and money that a language model as judge takes for a recipe, before it is run."""

import argparse
import json
import math
import sys
from pathlib import Path

from radverl.judge.budget import Budget, Prices, Usage, read_budget, read_prices
from radverl.judge.cost import CHARS_PER_TOKEN, QUESTIONS, REPORT_CHARS, Plan, as_record, estimate
from radverl.recipe_plan import plan_of_recipe

_ROWS_READ = 2000  # rows whose reports are measured; the mean of more is the same
_EXAMPLE = """example: the recipe of OraPO, three epochs of 1,000 studies with 8 rollouts each, at prices of your own
  radverl cost --data data/chexpert_plus_1000/train.parquet --rollouts 8 --epochs 3 --prices input=2,output=8
  radverl cost --recipe recipes/orapo_qwen25vl3b.sh --prompts 1000 --prices input=2,output=8
  radverl cost --batch 16 --steps 186 --rollouts 8 --distinct 0.9 --prices prices.json --model large --budget money=50

Prices are money per million tokens; a file may hold one table, {"input": 2, "output": 8}, or one per model. --distinct
is the share of rollouts that nobody asked about before: equal ones are asked about once, and a second run with the
same cache asks about none. Exit 0; 1 where --budget does not do; 2 for bad input."""


def main(argv: list[str] | None = None) -> int:
    """Print the estimate; 0 done, 1 above the budget, 2 bad input."""
    args = _parser().parse_args(argv)
    try:
        prices = read_prices(args.prices, args.model)
        budget = read_budget(args.budget)
        if budget.money is not None and prices is None:
            raise ValueError("--budget money=... needs --prices.")
        rows, chars = _measure(args.data) if args.data else (args.prompts, None)
        if args.recipe:
            plan, chars = _plan_of_recipe(args, rows, chars)
        else:
            plan = _plan(args, rows)
        chars = args.report_chars or chars or REPORT_CHARS
        usage = estimate(plan, args.task, chars, args.chars_per_token)
    except (ValueError, OSError) as error:
        print(f"radverl cost: {error}", file=sys.stderr)
        return 2
    exceeded = budget.exceeded_by(sum(usage.values(), Usage()), prices)
    record = as_record(plan, usage, prices, report_chars=round(chars, 1), exceeds=exceeded)
    if args.json:
        print(json.dumps(record, indent=1))
    else:
        _print_table(plan, usage, prices, chars)
        _print_verdict(budget, exceeded)
    return 1 if exceeded else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="radverl cost", description=__doc__, epilog=_EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--task", choices=sorted(QUESTIONS), default="facts", help="facts: the FactS reward, two calls a report "
        "(default); priors: --priors llm of the data scripts, one")  # fmt: skip
    add("--recipe", metavar="SCRIPT", help="a script of recipes/: its dry run says prompts, rollouts, steps and files; "
        "--data or --prompts in place of files that are not there yet")  # fmt: skip
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--data", metavar="PARQUET", help="rows are counted and their reports measured")
    source.add_argument("--prompts", type=_whole, metavar="N", help="rows of the data set")
    add("--rollouts", type=_whole, metavar="K", help="rollouts a prompt (default: 8 for facts, 1 for priors)")
    add("--epochs", type=_whole, metavar="E", help="times that each row is seen (default 1)")
    add("--batch", type=_whole, metavar="B", help="with --steps, in place of rows and epochs: prompts a step")
    add("--steps", type=_whole, metavar="S")
    add("--val-rows", type=_whole, default=0, metavar="N", help="rows of a validation, one report each")
    add("--validations", type=_whole, metavar="T", help="how often (default 1)")
    add("--distinct", type=_share, default=1.0, metavar="SHARE", help="share of distinct reports (default 1)")
    add("--report-chars", type=_positive, metavar="N", help="mean characters of a report (default: as in --data, else "
        f"{REPORT_CHARS})")  # fmt: skip
    add("--chars-per-token", type=_positive, default=CHARS_PER_TOKEN, metavar="N", help="default %(default)g")
    add("--prices", metavar="TABLE", help="input=2,output=8, or a JSON file (default: RADVERL_JUDGE_PRICES)")
    add("--model", help="whose prices, where the table has several")
    add("--budget", metavar="CAPS", help="calls=20000,tokens=5e7,money=25: exit 1 where the estimate is above "
        "(default: RADVERL_JUDGE_BUDGET)")  # fmt: skip
    add("--json", action="store_true", help="print JSON")
    return parser


def _plan(args: argparse.Namespace, rows: int | None) -> Plan:
    if (args.steps is None) != (args.batch is None):
        raise ValueError("--steps and --batch belong together; give both.")
    for name in ("epochs", "prompts"):
        if args.steps is not None and getattr(args, name) is not None:
            raise ValueError(f"--steps and --{name} say the same twice; give one of them.")
    if args.steps is not None:
        prompts = args.steps * args.batch
    elif rows is not None:
        prompts = rows * (args.epochs or 1)
    else:
        raise ValueError("how many prompts? give --data or --prompts, or --batch with --steps.")
    rollouts = args.rollouts or (8 if args.task == "facts" else 1)
    return Plan(prompts, rollouts, args.val_rows * (args.validations or 1), args.distinct)


def _plan_of_recipe(args: argparse.Namespace, rows: int | None, chars: float | None) -> tuple[Plan, float | None]:
    """The plan of a recipe, and the mean characters of its reports where its files are there."""
    if args.task != "facts":
        raise ValueError(f"--recipe trains with a reward, which --task {args.task} is not; leave one of them out.")
    names = ("rollouts", "epochs", "batch", "steps", "validations")
    given = [name for name in names if getattr(args, name) is not None]
    if given:
        raise ValueError(f"--recipe says --{given[0]} itself; leave one of them out.")
    recipe = plan_of_recipe(args.recipe)
    if rows is None:
        measured = [_measure(file) for file in recipe.train_files]
        rows = sum(number for number, _ in measured)
        chars = chars or next((length for _, length in measured if length), None)
    val_rows = args.val_rows or sum(_measure(file)[0] for file in recipe.val_files if Path(file).is_file())
    prompts = recipe.total_steps(rows) * recipe.batch
    return Plan(prompts, recipe.rollouts, val_rows * recipe.validations(rows), args.distinct), chars


def _measure(path: str) -> tuple[int, float | None]:
    """Rows of a Parquet of ours, and the mean characters of their true reports; None where they hold none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise ValueError(f"{path} does not exist; name a Parquet file of `radverl data`.")
    try:
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            has_truth = "reward_model" in file.schema_arrow.names
            batch = next(file.iter_batches(_ROWS_READ, columns=["reward_model"]), None) if has_truth else None
            truths = [] if batch is None else batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no Parquet file that can be read ({error}).") from None
    if not rows:
        raise ValueError(f"{path} has no rows.")
    lengths = [n for n in map(_report_length, truths) if n]
    return rows, sum(lengths) / len(lengths) if lengths else None


def _report_length(reward_model: object) -> int:
    try:
        truth = json.loads(reward_model["ground_truth"])  # type: ignore[index]
        return len(truth.get("report") or "\n\n".join(truth.get(k) or "" for k in ("findings", "impression")).strip())
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0


def _print_table(plan: Plan, usage: dict[str, Usage], prices: Prices | None, chars: float) -> None:
    print(f"{plan.reports:,} reports of {chars:,.0f} characters, {plan.asked:,} of them distinct")
    widest = max(map(len, [*usage, "total"]))
    print(
        f"{'':<{widest}}  {'calls':>12}  {'input tokens':>15}  {'output tokens':>15}"
        + ("  " + "money".rjust(12)) * bool(prices)
    )
    for name, used in [*usage.items(), ("total", sum(usage.values(), Usage()))]:
        line = f"{name:<{widest}}  {used.calls:>12,}  {used.input_tokens:>15,}  {used.output_tokens:>15,}"
        print(line + (f"  {prices.money(used):>12,.2f}" if prices else ""))
    print("an estimate: compare the tokens of the first steps with it" + ("" if prices else "; --prices gives money"))


def _print_verdict(budget: Budget, exceeded: str | None) -> None:
    if exceeded:
        print(f"above the budget of {exceeded}")
    elif budget != Budget():
        print("within the budget")


def _whole(text: str) -> int:
    number = float(text)
    if not math.isfinite(number) or number != int(number) or number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(number)


def _positive(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
