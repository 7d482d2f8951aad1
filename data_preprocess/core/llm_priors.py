"""`--priors llm`: a language model rewrites findings and impression without references to prior studies.

Done in the parent process, chunk by chunk, on rows that are otherwise finished. An answer that fails its checks, or a
call that fails, skips the row and is counted; it never leaves the row as it was.
"""

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from data_preprocess.core.candidates import Row
from data_preprocess.core.content import ONLY_PRIORS, set_report
from data_preprocess.core.journal import Entry, entry
from data_preprocess.core.skiplog import SkipRow

if TYPE_CHECKING:
    from radverl.judge import JudgeClient, JudgeFailure

SECTIONS = ("findings", "impression")
CALL_FAILED = "llm call failed"
REFUSED = "llm rewriting refused"  # by the checks
NOTHING_LEFT = "nothing left"  # the checks' word for it


def open_client(args: Namespace) -> "JudgeClient | None":
    """The client of the server that rewrites, None where the options ask for none.

    Raises:
        ValueError: the server is not allowed, or the openai package is missing.
    """
    if args.priors != "llm":
        return None
    from radverl.judge import judge_client

    return judge_client(args.judge_url, args.judge_model, allow_remote=args.judge_remote_ok)


def rewritten(entries: list[Entry], client: "JudgeClient", args: Namespace) -> list[Entry]:
    """The entries with the reports of their rows rewritten.

    Raises:
        JudgeFailure: the server cannot be asked at all.
    """
    from radverl.judge import JudgeFailure, rewrite_all

    lines = [json.loads(done.line) for done in entries if done.skip is None]
    rows = [Row(**line["row"]) for line in lines]
    texts = [{name: row.truth[name] for name in SECTIONS if row.truth[name]} for row in rows]
    out = {}
    for line, row, result in zip(lines, rows, rewrite_all(texts, client), strict=True):
        key, final = line["key"], _with(row, result, args)
        if isinstance(result, JudgeFailure) and result.cause != "invalid":
            key = ""  # a later run asks again
        out[line["id"]] = entry(line["id"], key, final)
    return [out.get(done.row_id, done) for done in entries]


def _with(row: Row, result: "dict[str, str] | JudgeFailure", args: Namespace) -> Row | SkipRow:
    if not isinstance(result, dict):
        if result.cause != "invalid":
            return SkipRow(str(result), CALL_FAILED)
        return SkipRow(str(result), ONLY_PRIORS if NOTHING_LEFT in str(result) else REFUSED)
    try:
        texts = {name: result.get(name, "") for name in SECTIONS}
        set_report(row, texts, args, row.original_report or row.truth["report"])
    except SkipRow as error:
        return error
    return row
