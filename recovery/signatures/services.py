"""Messages about services on the network that a run calls and cannot reach: trackers, model hubs, object stores.

All are cascades. Such a service fails in the background of healthy runs, and once more while a failed run ends. It
explains an end only when nothing else does.
"""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Role, row

_INFRA = FaultKind.INFRA_FAULT

ROWS = (
    row(
        "hub",
        _INFRA,
        "we couldn't connect to|couldn't reach|trying to locate the file|localentrynotfound",
        r"We couldn't connect to 'https?://|\bConnectionError: Couldn't reach\b"
        r"|\bLocalEntryNotFoundError\b|NotFoundError: An error happened while trying to locate the file",
        Role.CASCADE,
    ),
    # An exception only: the same words in a warning are about a retry.
    row(
        "HTTP client",
        _INFRA,
        "connectionerror:|connecterror:|connectorerror:|connecttimeout:|readtimeout:|maxretryerror:"
        "|nameresolutionerror:|protocolerror:|proxyerror:|disconnectederror:|chunkedencodingerror:|timeouterror:"
        "|connectionclosederror:|readtimeouterror:|incompleteread(|incompleteread:|fstimeouterror|slowdown"
        "|serviceunavailable: 5"
        "|deadlineexceeded: 5|statuscode.unavailable|statuscode.deadline|sslerror:|ssleoferror:"
        "|sslzeroreturnerror:|<urlopen error |http.client.remotedisconn",
        r"\b(?:requests|urllib3|httpx|httpcore|aiohttp)(?:\.\w{1,30}){0,2}\.\w{0,30}"
        r"(?:(?:Connection|Connect|Connector|MaxRetry|NameResolution|Protocol|Proxy|Disconnected|ChunkedEncoding"
        r"|Timeout|SSL)Error|(?:Connect|Read)Timeout):"
        r"|\bbotocore\.exceptions\.\w{0,30}(?:ConnectionClosed|ReadTimeout|ConnectTimeout|ProxyConnection)Error: "
        r"|\bClientError: An error occurred \((?:SlowDown|ServiceUnavailable|RequestTimeout|InternalError"
        r"|Throttling\w{0,10})\)"
        r"|\bgoogle\.api_core\.exceptions\.(?:ServiceUnavailable|DeadlineExceeded|InternalServerError|BadGateway"
        r"|TooManyRequests|RetryError)\b|\bRpcError: .{0,80}StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)"
        r"|\bstatus = StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)|\bIncompleteRead[(:]|\bFSTimeoutError\b"
        r"|\bTimeoutError: (?:\[Errno 110\]|timed out$|The (?:read|write|handshake) operation timed out)"
        r"|\bssl\.SSL(?:EOF|ZeroReturn)?Error: |\bURLError: <urlopen error (?:\[Errno (?:104|110|111|113)\]|timed out"
        r"|_ssl\.c)|\bhttp\.client\.RemoteDisconnected: ",
        Role.CASCADE,
    ),
    row(
        "not reached",
        _INFRA,
        "max retries exceeded|establish a new connection|failure in name resol|name or service not|nor servname"
        "|no route to host|network is unreachable|to the endpoint url|read timed out",
        r"\b\w{0,60}(?:Error|Exception|Timeout): .{0,400}(?:Max retries exceeded with url"
        r"|Failed to establish a new connection|Temporary failure in name resolution|Name or service not known"
        r"|nodename nor servname provided|No route to host|Network is unreachable"
        r"|Could not connect to the endpoint URL"
        r"|Read timed out)",
        Role.CASCADE,
    ),
    # Too many requests, or an error of the server; other codes are the caller's own mistake.
    row(
        "HTTP status",
        _INFRA,
        "httperror: 5|httperror: 429|http error 5|failed with error code 5",
        r"\b\w{0,40}HTTPError: (?:5\d\d|429)\b|\bHTTPError: HTTP Error 5\d\d"
        r"|\bMlflowException: .{0,300}failed with error code 5\d\d",
        Role.CASCADE,
    ),
    row(
        "tracker",
        _INFRA,
        "wandb.errors|wandb.sdk|mailboxerror|neptuneconnection|neptune.exceptions",
        r"\bwandb\.(?:\w{1,40}\.){1,4}\w{0,40}Error: .{0,120}(?:communicat|timed out|timeout|returned error 5\d\d"
        r"|not respond)|\bNeptuneConnection\w{0,20}(?:Exception|Error)\b",
        Role.CASCADE,
    ),
)
