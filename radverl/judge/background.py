"""One event loop a process, in a thread of its own, and the judge's clients that live in it.

Rewards are called from event loops (verl's reward loop), from threads, and from plain scripts (TRL). All of them must
share one client, or each would have its own limits and equal reports would be asked about twice.
"""

import asyncio
import atexit
import contextlib
import importlib.util
import json
import os
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from radverl.judge.cache import AnswerCache
from radverl.judge.client import JudgeClient, judge_client
from radverl.judge.meter import Metered

T = TypeVar("T")
_CLOSING = 5.0  # seconds at the end of the process


class SharedClient:
    """A client that opens itself on its first use; settings and errors as of `shared_client`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        cache = settings.get("cache")
        if not (cache is None or cache is False or isinstance(cache, str | os.PathLike)):
            raise ValueError(f"judge: cache is {cache!r}; give the path of a file, or false for none.")
        if importlib.util.find_spec("openai") is None:
            raise ValueError("a model as judge needs openai; pip install 'radverl[judge]'.")
        try:
            self._new = judge_client(**{**settings, "cache": None if cache is False else AnswerCache(cache)})
        except TypeError as error:  # a mistyped setting, or a value of the wrong kind
            raise ValueError(f"judge: {error}; see docs/judge.md for its settings.") from None
        self._new.limiter = Metered(self._new.limiter)
        self._opening: asyncio.Task[JudgeClient] | None = None

    async def get(self) -> JudgeClient:
        """The open client; call it in the background loop."""
        if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():  # after a fork
            self._opening = asyncio.ensure_future(self._new.__aenter__())
        try:
            return await asyncio.shield(self._opening)
        except Exception:
            self._opening = None
            raise

    async def close(self) -> None:
        """Close the client; calls under way are cancelled."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await (await opening).__aexit__(None, None, None)


_lock = threading.RLock()
_loop: asyncio.AbstractEventLoop | None = None
_clients: dict[str, SharedClient] = {}


def shared_client(settings: Mapping[str, Any]) -> SharedClient:
    """This process's one client with these settings.

    Args:
        settings: url, model, allow_remote (see `find_endpoint`); cache, a path, or False for none; and the keywords of
            `JudgeClient`. Mappings of OmegaConf are taken as well.
    Raises:
        ValueError: a setting that is not known, an address that may not have the reports, or openai not installed.
    """
    plain = _plain(settings)
    key = json.dumps(plain, sort_keys=True, default=repr)
    with _lock:
        if key not in _clients:
            _clients[key] = SharedClient(plain)
        return _clients[key]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in the background loop; blocks the calling thread, which may be any but the loop's."""
    future = asyncio.run_coroutine_threadsafe(coroutine, background_loop())
    try:
        return future.result()
    except BaseException:  # an interrupt must not leave the call running
        future.cancel()
        raise


async def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """The same for a caller in an event loop of its own, which goes on meanwhile; its cancelling is passed on."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, background_loop()))


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's loop; started where there is none."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="radverl judge", daemon=True).start()
        return _loop


def close_all() -> None:
    """Close all clients of this process; a later call opens new ones."""
    with _lock:
        clients = list(_clients.values())
        _clients.clear()
        loop = _loop
    for client in clients:
        with contextlib.suppress(Exception):
            if loop is not None:
                asyncio.run_coroutine_threadsafe(client.close(), loop).result(_CLOSING)


def _forget_parent() -> None:
    """After a fork the parent's thread is not there, and its connections must not be used."""
    global _lock, _loop
    _lock, _loop = threading.RLock(), None
    _clients.clear()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget_parent)
