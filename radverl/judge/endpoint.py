"""Where reports are sent: address, model and key of an OpenAI-compatible server, and whether it may have them.

The data-use agreements of MIMIC-CXR, CheXpert Plus and their like forbid passing report text to third parties, so a
server outside this machine and its private network is refused unless the caller says that it is meant.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

DEFAULT_URL = "http://localhost:8000/v1"  # where `vllm serve` listens
URL_VARIABLE = "RADVERL_JUDGE_URL"
MODEL_VARIABLE = "RADVERL_JUDGE_MODEL"
KEY_VARIABLE = "RADVERL_JUDGE_API_KEY"
NO_KEY = "EMPTY"  # what local servers expect where they ask for no key

# Not `ip.is_private`: that also holds for documentation and benchmark nets and for IPv4 addresses mapped into IPv6.
_LOCAL_NETS = tuple(
    ipaddress.ip_network(net)
    for net in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "0.0.0.0/32",
        "::1/128", "::/128", "fc00::/7", "fe80::/10",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Endpoint:
    """A server that may have the reports. `model` None: the only one it serves. `local`: on a private network."""

    url: str
    model: str | None = None
    key: str = field(default=NO_KEY, repr=False)
    local: bool = True


def find_endpoint(
    url: str | None = None,
    model: str | None = None,
    *,
    allow_remote: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint from arguments, else from RADVERL_JUDGE_URL and RADVERL_JUDGE_MODEL, else the local default.

    The key comes from RADVERL_JUDGE_API_KEY and from nowhere else.

    Args:
        url: base address up to and with "/v1".
        allow_remote: the opt-in for a server outside the private network.
        environment: instead of os.environ.
    Raises:
        ValueError: the address is malformed, cannot be resolved, or is remote without the opt-in; the opt-in is no
            bool; the key cannot be sent.
    """
    if not isinstance(allow_remote, bool):  # the word "false" must not let reports out
        raise ValueError(f"judge: allow_remote is {allow_remote!r:.40}; give true or false.")
    environment = os.environ if environment is None else environment
    address, host, port = _parse(url or environment.get(URL_VARIABLE) or DEFAULT_URL)
    remote = _remote_address(host, port, allow_remote)
    if remote and not allow_remote:
        raise ValueError(
            f"judge address {address}: {remote} is outside this machine and its private network, and credentialed "
            "report text must not leave the site by accident; start a local server, or pass --judge-remote-ok "
            "(allow_remote=True) if the data's agreement allows this one."
        )
    key = environment.get(KEY_VARIABLE, "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(f"{KEY_VARIABLE} holds a character that no HTTP header can carry; set it again.")
    return Endpoint(address, model or environment.get(MODEL_VARIABLE) or None, key, local=not remote)


def is_local(address: str) -> bool:
    """Whether an IP address is this machine's or of a private or link-local network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return any(ip in net for net in _LOCAL_NETS)


def _parse(url: str) -> tuple[str, str, int]:
    """(address built anew from its parts, host, port), so that no other parser can read another host into it."""
    hint = f"give the server as in {DEFAULT_URL}"
    if not url.isascii() or any(c.isspace() or not c.isprintable() or c in "\\<>" for c in url.strip()):
        raise ValueError(f"the judge's address has a character that no address holds; {hint}.")
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"the judge's address cannot be read ({error}); {hint}.") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"the judge's address holds a user or password; take them out and use {KEY_VARIABLE}.")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or "@" in url:
        raise ValueError(f"the judge's address is no http(s) address without query; {hint}.")
    shown = f"[{host}]" if ":" in host else host
    where = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    return where + parts.path.rstrip("/"), host, port or (443 if parts.scheme == "https" else 80)


def _remote_address(host: str, port: int, allow_remote: bool) -> str | None:
    """The first address of a host that is not local, or None."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        if allow_remote:  # only a proxy may know the name
            return host
        raise ValueError(f"judge address {host}: the name has no address ({error}); check {URL_VARIABLE}.") from None
    return next((address for address in sorted(found) if not is_local(address)), None)
