"""One HTTP request to the endpoint: no retries, no redirects, no proxy on the way to a local server, bounded in size.

Every way in which it can go wrong ends as a `JudgeFailure` that says whether another try makes sense.
"""

import asyncio
import math
import re
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from radverl.judge.endpoint import NO_KEY, Endpoint
from radverl.judge.failure import JudgeFailure

MAX_ANSWER_BYTES = 2_000_000
_QUOTE = 16  # letters and digits in a row
# The last is how openai remembers that the body is read by us.
_HEADERS = {
    "host",
    "accept",
    "accept-encoding",
    "connection",
    "content-type",
    "content-length",
    "x-stainless-raw-response",
}
_UNKNOWN_PARAMETER = ("unsupported_parameter", "unsupported_value")


class Transport:
    """An open connection pool; it belongs to the event loop in which it is made."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            import openai
        except ImportError as error:
            raise ValueError(f"a model as judge needs openai ({error}); pip install 'radverl[judge]'.") from None
        self._openai, self._endpoint = openai, endpoint
        # trust_env is what reads HTTP_PROXY and the like; the default context still finds the site's certificates.
        local: dict[str, Any] = {"trust_env": False, "verify": ssl.create_default_context()} if endpoint.local else {}
        http = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, event_hooks={"request": [self._only_our_headers]}, **local
        )
        self._client = openai.AsyncOpenAI(api_key=endpoint.key, base_url=endpoint.url, max_retries=0, http_client=http)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(self, request: dict[str, Any], timeout: float) -> bytes:
        """The body of the reply to a chat completion.

        Raises:
            JudgeFailure: any cause but invalid.
        """
        create = self._client.chat.completions.with_streaming_response.create
        # In extra_body the client passes the request on as it is; its own walk through it costs a quarter of the call.
        opening = create(model=request["model"], messages=[], extra_body=request, timeout=timeout)
        return await self._bounded(opening, timeout, sent="\n".join(m["content"] for m in request["messages"]))

    async def models(self, timeout: float) -> bytes:
        """The body of the server's list of models; fails as `complete`."""
        return await self._bounded(self._client.models.with_streaming_response.list(timeout=timeout), timeout)

    async def _bounded(self, opening: Any, timeout: float, sent: str = "") -> bytes:
        openai = self._openai
        try:
            # The client's own timeout is per read: a server that drips would never meet it.
            async with asyncio.timeout(timeout), opening as response:
                return await _read(response)
        except (TimeoutError, openai.APITimeoutError):
            raise JudgeFailure("timeout", f"no answer within {timeout:.3g} s", again=True) from None
        except openai.APIStatusError as error:
            raise self._status_failure(error, sent) from None
        except openai.APIConnectionError as error:
            unsent = "Connect" in type(error.__cause__).__name__  # ConnectError of httpx or httpx2
            detail = f"no connection to {self._endpoint.url}" + ("" if unsent else ", or it was cut")
            raise JudgeFailure("connection", detail, again=True, unsent=unsent) from None
        except openai.OpenAIError as error:
            raise JudgeFailure("bad_json", f"{type(error).__name__} from the client", again=True) from None

    def _status_failure(self, error: Any, sent: str) -> JudgeFailure:
        code: int = error.status_code
        wait = retry_after(error.response.headers.get("retry-after"))
        if code in (401, 403):  # such replies like to quote the key
            return JudgeFailure("auth", f"HTTP {code}; set RADVERL_JUDGE_API_KEY for this server", status=code)
        if 300 <= code < 400:
            return JudgeFailure("refused", f"HTTP {code}: a redirect, which is not followed", status=code)
        body = error.body if isinstance(error.body, dict) else {}
        word, said = body.get("code"), self._without_key(" ".join(str(body.get("message") or "").split()))[:160]
        if _quotes(said, sent):  # the detail goes to logs, which may be kept where the reports may not
            said = "its message quotes what was sent, so it is not shown"
        detail = f"HTTP {code}" + (f" ({said})" if said else "")
        if code == 429:
            return JudgeFailure("rate_limit", detail, again=word != "insufficient_quota", wait=wait, status=code)
        if code == 408:
            return JudgeFailure("timeout", detail, again=True, wait=wait, status=code)
        if code >= 500:
            return JudgeFailure("server_error", detail, again=True, wait=wait, status=code)
        parameter = str(body.get("param")) if word in _UNKNOWN_PARAMETER else None
        return JudgeFailure("refused", detail, status=code, parameter=parameter)

    def _without_key(self, text: str) -> str:
        return text if self._endpoint.key == NO_KEY else text.replace(self._endpoint.key, "***")

    async def _only_our_headers(self, request: Any) -> None:
        """Drop what the client adds from the machine and from OPENAI_* variables, other services' keys among it."""
        for name in set(request.headers.keys()) - _HEADERS:
            del request.headers[name]
        request.headers["authorization"] = f"Bearer {self._endpoint.key}"
        request.headers["user-agent"] = "radverl"


def _quotes(said: str, sent: str) -> bool:
    """Whether a message has a run of characters of what was sent, however blanks and escapes are written."""
    bare, whole = (re.sub(r"[\W_]+", "", text) for text in (said, sent))
    return any(bare[start : start + _QUOTE] in whole for start in range(len(bare) - _QUOTE + 1))


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds in a Retry-After header, which holds a number or a date; None where it holds neither."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


async def _read(response: Any) -> bytes:
    body = bytearray()
    try:
        async for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise JudgeFailure("bad_json", f"the reply is longer than {MAX_ANSWER_BYTES} bytes", again=True)
    except (JudgeFailure, TimeoutError):
        raise
    except Exception as error:  # httpx's or httpx2's, by the version of openai, which wraps them only before the body
        cause: Any = "timeout" if "Timeout" in type(error).__name__ else "connection"
        raise JudgeFailure(cause, "the reply broke off", again=True) from None
    return bytes(body)
