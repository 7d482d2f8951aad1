"""The judge's client: a prompt and a piece of data go in, a JSON object of the asked form comes out, or `JudgeFailure`.

In this order: the cache, a call of the same content that is under way, here or in another process that shares the
cache, and the server. Calls are tried again with doubling, jittered pauses within one deadline; the server's
Retry-After holds for all calls of the client, and of all clients that share its limiter.
"""

import asyncio
import contextlib
import copy
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from radverl.judge.answers import read_completion
from radverl.judge.budget import Budget, Limits, Prices, Setting, read_budget, read_limits, read_prices
from radverl.judge.cache import CLAIM_SECONDS, AnswerCache, cache_key
from radverl.judge.calls import Calls, Clock
from radverl.judge.endpoint import MODEL_VARIABLE, Endpoint, find_endpoint
from radverl.judge.failure import JudgeFailure
from radverl.judge.limiter import Limiter, shared_limiter
from radverl.judge.prompt_files import Prompt, as_data
from radverl.judge.transport import Transport

# Ours. A local 8B model edits a report in some seconds; a restart of its server takes about a minute.
CONCURRENCY = 8
CALL_TIMEOUT = 60.0
DEADLINE = 180.0
TRIES = 7
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
BAD_JSON_TRIES = 2  # at temperature 0 a third try says the same
NAME_TRIES = 3  # a server that is not there when a run begins is a mistake, not a hiccup
_LOOK, _LONGEST_LOOK = 0.05, 1.0  # seconds between two looks for another process's answer

T = TypeVar("T")


class JudgeClient:
    """Use as `async with JudgeClient(find_endpoint(), cache=AnswerCache()) as client: await client.ask(...)`.

    `counts` holds calls, retries, cached and shared answers, input_tokens, output_tokens, and failures by cause.

    Args:
        cache: None asks the server each time.
        concurrency: calls under way at once.
        call_timeout: seconds for one call.
        deadline: seconds for one answer with all its tries, from the moment it has a slot.
        limiter: what this client shares with others: slots, rates and the budget (`radverl.judge.limiter`).
        first_pause: seconds before the second try; doubled for each further one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        cache: AnswerCache | None = None,
        concurrency: int = CONCURRENCY,
        call_timeout: float = CALL_TIMEOUT,
        deadline: float = DEADLINE,
        tries: int = TRIES,
        first_pause: float = FIRST_PAUSE,
        limiter: Limiter | None = None,
    ) -> None:
        if concurrency < 1 or tries < 1 or min(call_timeout, deadline) <= 0 or first_pause < 0:
            raise ValueError("judge: concurrency and tries must be 1 or more, times must be positive.")
        self.endpoint, self.cache, self.concurrency = endpoint, cache, concurrency
        self.call_timeout, self.deadline, self.tries, self.first_pause = call_timeout, deadline, tries, first_pause
        self.limiter, self.counts = limiter, Counter[str]()
        self._model = endpoint.model
        self._transport: Transport | None = None
        self._calls = Calls(self.limiter, self.counts, call_timeout, deadline)

    async def __aenter__(self) -> Self:
        self._transport, self._calls.limiter = Transport(self.endpoint), self.limiter
        self._slots, self._naming = asyncio.Semaphore(self.concurrency), asyncio.Lock()
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._quiet_until = 0.0
        self._renewing = asyncio.create_task(self._renew_claims())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [self._renewing, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._transport is not None:
            await self._transport.close()
            self._transport = None
        if self.cache is not None:
            self.cache.close()

    async def ask(self, prompt: Prompt, data: Any, schema: dict[str, Any], max_tokens: int = 1024) -> dict[str, Any]:
        """The model's answer to `prompt` about `data`.

        Args:
            data: JSON-able; texts in it are brought to normal form (`prompt_files.as_data`) and never read as orders.
            schema: JSON schema of the answer, of the kinds `answers.conforms` knows.
        Raises:
            JudgeFailure: any cause but invalid.
        """
        text = as_data(data)
        model = await self.model_name()
        key = cache_key(model, prompt.name, prompt.digest, schema, text)
        if self.cache is not None and (answer := self.cache.get(key)) is not None:
            self.counts["cached"] += 1
            return answer
        task = self._running.get(key)
        if task is None:
            request = {
                "model": model,
                "messages": prompt.messages(text),
                "temperature": 0.0,
                "max_tokens": max_tokens,
                "response_format": _response_format(prompt, schema),
            }
            task = asyncio.create_task(self._answer(key, prompt, request, schema))
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        else:
            self.counts["shared"] += 1
        return copy.deepcopy(await asyncio.shield(task))  # who stops waiting must not stop the others' call

    async def model_name(self) -> str:
        """The endpoint's model; asks the server once where none was named.

        Raises:
            JudgeFailure: refused where it serves none or several; else as `ask`.
        """
        if self._transport is None:
            raise RuntimeError("open the client first: async with JudgeClient(...) as client.")
        async with self._naming:
            if self._model is None:
                models = self._transport.models
                self._model = _only_model(
                    await self._try_often(lambda clock: models(clock.left(self.call_timeout)), NAME_TRIES)
                )
        return self._model

    async def _answer(
        self, key: str, prompt: Prompt, request: dict[str, Any], schema: dict[str, Any]
    ) -> dict[str, Any]:
        async def attempt(clock: Clock) -> dict[str, Any]:
            if self._transport is None:
                raise JudgeFailure("connection", "the client was closed", unsent=True)
            return read_completion(await self._calls.complete(self._transport, request, clock), schema)

        pause = _LOOK
        while self.cache is not None:
            async with self._slots:
                if self.cache.claim(key):
                    try:
                        if (kept := self.cache.get(key)) is not None:  # while this one waited for a slot
                            self.counts["shared"] += 1
                            return kept
                        answer = await self._try_often(attempt, self.tries)
                        self.cache.put(key, request["model"], prompt.name, answer)
                    finally:
                        self.cache.release(key)
                    return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_LOOK, 1.5 * pause)
            if (kept := self.cache.get(key)) is not None:
                self.counts["shared"] += 1
                return kept
        async with self._slots:
            return await self._try_often(attempt, self.tries)

    async def _try_often(self, attempt: Callable[[Clock], Awaitable[T]], tries: int) -> T:
        """What `attempt` gives, tried again while the failure allows it and the deadline is not reached."""
        clock = Clock(self.deadline)
        for number in itertools.count(1):
            await self._keep_quiet(clock.ends)
            try:
                return await attempt(clock)
            except JudgeFailure as failure:
                most = BAD_JSON_TRIES if failure.cause == "bad_json" else tries
                asked = failure.wait or 0.0
                pause = asked + min(LONGEST_PAUSE, self.first_pause * 2 ** (number - 1)) * random.uniform(0.5, 1.0)
                if asked < self.deadline:
                    self._quiet_until = max(self._quiet_until, monotonic() + asked)
                if not failure.again or number >= most or monotonic() + pause >= clock.ends:
                    raise
                self.counts["retries"] += 1
                await asyncio.sleep(pause)
        raise AssertionError("not reached")

    async def _keep_quiet(self, ends: float) -> None:
        """Wait as long as the server asked all calls to, and a little more, so that not all come back at once."""
        seconds = self._quiet_until - monotonic()
        if seconds <= 0:
            return
        if monotonic() + seconds >= ends:
            raise JudgeFailure("rate_limit", f"the server asks to wait {seconds:.0f} s more, beyond the deadline")
        await asyncio.sleep(min(seconds + random.uniform(0.0, self.first_pause), ends - monotonic()))

    async def _renew_claims(self) -> None:
        while self.cache is not None:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            self.cache.renew_claims()

    def _finished(self, key: str, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._running.pop(key, None)
        with contextlib.suppress(asyncio.CancelledError):
            if isinstance(error := task.exception(), JudgeFailure):
                self.counts[error.cause] += 1


def judge_client(
    url: str | None = None,
    model: str | None = None,
    *,
    allow_remote: bool = False,
    limits: Setting | Limits = None,
    budget: Setting | Budget = None,
    prices: Setting | Prices = None,
    **settings: Any,
) -> JudgeClient:
    """A client of the endpoint that `find_endpoint` gives, with the user's cache and the shared limiter.

    Args:
        limits, budget, prices: as `radverl.judge.budget` reads them; by default from the environment.
        settings: as of `JudgeClient`.
    Raises:
        ValueError: as `find_endpoint` and the readers of `radverl.judge.budget`; a budget of money without prices.
    """
    endpoint = find_endpoint(url, model, allow_remote=allow_remote)
    if "limiter" not in settings:
        table = read_prices(prices, endpoint.model)
        settings["limiter"] = shared_limiter(endpoint.url, read_limits(limits), read_budget(budget), table)
    return JudgeClient(endpoint, **({"cache": AnswerCache()} | settings))


def _response_format(prompt: Prompt, schema: dict[str, Any]) -> dict[str, Any]:
    name = prompt.name.replace(".", "_")
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def _only_model(body: bytes) -> str:
    try:
        names = [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise JudgeFailure("bad_json", "the server's list of models cannot be read; is its address right?") from None
    if len(names) != 1:
        shown = ", ".join(names[:5]) or "none"
        raise JudgeFailure("refused", f"the server serves {len(names)} models ({shown}); set {MODEL_VARIABLE}")
    return names[0]
