"""A language model behind an OpenAI-compatible server that judges or edits reports; needs the extra `judge`.

`endpoint` says where reports may go, `client` makes the calls, `cache` remembers the answers, `rewrite_priors` removes
references to prior studies.
"""

from radverl.judge.cache import AnswerCache
from radverl.judge.client import JudgeClient, judge_client
from radverl.judge.endpoint import Endpoint, find_endpoint
from radverl.judge.failure import JudgeFailure
from radverl.judge.rewrite_priors import count_failures, rewrite_all

__all__ = [
    "AnswerCache",
    "Endpoint",
    "JudgeClient",
    "JudgeFailure",
    "count_failures",
    "find_endpoint",
    "judge_client",
    "rewrite_all",
]
