"""The one exception of the judge. A call that gives no usable answer raises it; no value ever stands for a failure."""

from typing import Literal

Cause = Literal[
    "timeout", "rate_limit", "server_error", "connection", "auth", "refused", "bad_json", "invalid", "budget"
]  # fmt: skip


class JudgeFailure(Exception):
    """No usable answer. `cause` is the word to count by, `detail` says what happened, without the key.

    Causes: timeout, rate_limit (429), server_error (5xx), connection, auth (401, 403), refused (the server or the model
    declines: other 4xx, a redirect, a content filter), bad_json (no answer of the asked form), invalid (an answer of
    the right form whose content fails our checks), budget (the run's cap on calls, tokens or money; `fatal`).

    Args:
        again: whether the same call may do better.
        wait: seconds the server asks to wait.
        status: HTTP status, where there is one.
        parameter: a setting of the request that the server says it does not know.
        unsent: whether the call certainly reached no model, and so cost nothing.
    """

    def __init__(
        self,
        cause: Cause,
        detail: str,
        *,
        again: bool = False,
        wait: float | None = None,
        status: int | None = None,
        parameter: str | None = None,
        unsent: bool = False,
    ) -> None:
        super().__init__(cause, detail)
        self.cause, self.detail, self.again = cause, detail, again
        self.wait, self.status, self.parameter, self.unsent = wait, status, parameter, unsent

    @property
    def fatal(self) -> bool:
        """Whether every further call would fail as well, so that the run should stop."""
        return self.cause == "budget"

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}"
