"""A feature model that gives no usable answer raises this; no value ever stands for a failure."""

from typing import Any, Literal, get_args

from radverl.judge.failure import Cause

_CAUSES = (*get_args(Cause), "other")


class ModelFailure(Exception):
    """No result. `cause` is the word to count by, as of `radverl.judge.JudgeFailure`; `detail` says what happened.

    Causes used here: timeout, server_error (the model raised, or cannot be loaded), invalid (it gave a wrong number of
    results), connection (its process died), rate_limit (the queue is full). A model may raise an error with a `cause`
    of its own, one of the judge's words or "other".

    Args:
        again: whether the same call may do better.
    """

    def __init__(self, cause: Cause | Literal["other"], detail: str, *, again: bool = False) -> None:
        super().__init__(cause, detail)
        self.cause, self.detail, self.again = cause, detail, again

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}"

    def __reduce__(self) -> tuple[type["ModelFailure"], tuple[str, str], dict[str, bool]]:
        return type(self), (self.cause, self.detail), {"again": self.again}


def failure_of(error: BaseException) -> ModelFailure:
    """What a model raised, as a failure; one that names a cause keeps it."""
    if isinstance(error, ModelFailure):
        return error
    cause: Any = getattr(error, "cause", None)
    detail = getattr(error, "detail", None) or f"the model raised {type(error).__name__}: {error!s:.300}"
    return ModelFailure(cause if cause in _CAUSES else "server_error", str(detail))
