"""Errors of HTTP clients, raised for real against a server of the test's own, and the category that each should have."""

from __future__ import annotations

import asyncio
import http.client
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import openai
import requests
import urllib3

from tests.unit.error_cases import Case, F, N, P, R, T, V, at
from tests.unit.places import Place


def by_httpx(path: str, **options: Any) -> Callable[[Place], object]:
    return lambda place: httpx.get(f"{place.http}/{path}", **options).raise_for_status()


def by_requests(path: str, **options: Any) -> Callable[[Place], object]:
    return lambda place: requests.get(f"{place.http}/{path}", timeout=5, **options).raise_for_status()


def by_urllib(path: str) -> Callable[[Place], object]:
    return lambda place: urllib.request.urlopen(f"{place.http}/{path}").read()


def by_aiohttp(target: Callable[[Place], str], *, json: bool = False, seconds: float = 5) -> Callable[[Place], object]:
    async def ask(url: str) -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=seconds)) as session,
            session.get(url, raise_for_status=not json) as answer,
        ):
            await (answer.json() if json else answer.read())

    return lambda place: asyncio.run(ask(target(place)))


def by_openai(target: Callable[[Place], str], seconds: float = 5) -> Callable[[Place], object]:
    def fail(place: Place) -> None:
        with openai.OpenAI(api_key="x", base_url=target(place), max_retries=0, timeout=seconds) as client:
            client.models.list()

    return fail


def redirected_by_httpx(place: Place) -> None:
    with httpx.Client(max_redirects=1, follow_redirects=True) as client:
        client.get(f"{place.http}/302/loop")


def redirected_by_requests(place: Place) -> None:
    with requests.Session() as session:
        session.max_redirects = 1
        session.get(f"{place.http}/302/loop", timeout=5)


STATUSES = {
    400: V, 401: P, 402: P, 403: P, 404: F, 405: F, 407: P, 408: N, 409: T, 410: F, 412: F, 413: V, 415: V, 418: F, 422: V,
    423: T, 425: T, 429: T, 431: V, 451: P, 500: T, 501: F, 502: N, 503: T, 504: N, 505: F, 507: R, 511: P, 529: T, 555: T,
}  # fmt: skip

REAL = [
    *(Case(f"httpx {status}", category, by_httpx(str(status))) for status, category in STATUSES.items()),
    *(Case(f"requests {status}", STATUSES[status], by_requests(str(status))) for status in (400, 401, 404, 429, 500, 503, 504)),
    *(Case(f"urllib {status}", STATUSES[status], by_urllib(str(status))) for status in (400, 403, 404, 408, 429, 503, 507)),
    *(Case(f"aiohttp {status}", STATUSES[status], by_aiohttp(at(str(status)))) for status in (401, 404, 422, 429, 502, 503)),
    *(Case(f"openai {code}", STATUSES[code], by_openai(at(str(code)))) for code in (400, 401, 403, 404, 409, 422, 429, 500, 503)),
    Case("openai without quota", R, by_openai(at("429/insufficient_quota"))),
    Case("openai, too long", V, by_openai(at("400/context_length_exceeded"))),
    Case("openai refused", N, by_openai(lambda place: f"http://127.0.0.1:{place.refusing}")),
    Case("openai timeout", N, by_openai(lambda place: f"http://127.0.0.1:{place.silent}", 0.05)),
    Case("openai without a key", P, lambda place: openai.OpenAI(api_key=None)),
    Case("httpx refused", N, lambda place: httpx.get(f"http://127.0.0.1:{place.refusing}")),
    Case("httpx timeout", N, lambda place: httpx.get(f"http://127.0.0.1:{place.silent}", timeout=0.05)),
    Case("httpx nonsense", N, lambda place: httpx.get(f"http://127.0.0.1:{place.babbling}")),
    Case("httpx tls", N, lambda place: httpx.get(f"https://127.0.0.1:{place.babbling}")),
    Case("httpx cut", N, by_httpx("200/cut")),
    Case("httpx gzip", V, by_httpx("200/gzip")),
    Case("httpx redirects", F, redirected_by_httpx),
    Case("httpx url", V, lambda place: httpx.get("http://a\x00b")),
    Case("httpx protocol", V, lambda place: httpx.get("gopher://x")),
    Case("requests refused", N, lambda place: requests.get(f"http://127.0.0.1:{place.refusing}", timeout=5)),
    Case("requests timeout", N, lambda place: requests.get(f"http://127.0.0.1:{place.silent}", timeout=0.05)),
    Case("requests nonsense", N, lambda place: requests.get(f"http://127.0.0.1:{place.babbling}", timeout=5)),
    Case("requests tls", N, lambda place: requests.get(f"https://127.0.0.1:{place.babbling}", timeout=5)),
    Case("requests cut", N, by_requests("200/cut")),
    Case("requests gzip", V, by_requests("200/gzip")),
    Case("requests redirects", F, redirected_by_requests),
    Case("requests schema", V, lambda place: requests.get("no-schema", timeout=5)),
    Case("requests adapter", V, lambda place: requests.get("gopher://x", timeout=5)),
    Case("requests url", V, lambda place: requests.get("http://", timeout=5)),
    Case("requests header", V, by_requests("200", headers={"x": "a\nb"})),
    Case("requests json", V, lambda place: requests.get(f"{place.http}/200/nonsense", timeout=5).json()),
    Case("urllib refused", N, lambda place: urllib.request.urlopen(f"http://127.0.0.1:{place.refusing}")),
    Case("urllib nonsense", N, lambda place: urllib.request.urlopen(f"http://127.0.0.1:{place.babbling}")),
    Case("urllib cut", N, by_urllib("200/cut")),
    Case("http.client url", V, lambda place: http.client.HTTPConnection("127.0.0.1", place.port).request("GET", "/ /")),
    Case("http.client order", F, lambda place: http.client.HTTPConnection("127.0.0.1").getresponse()),
    Case("urllib3 refused", N, lambda place: urllib3.PoolManager(retries=0).request("GET", f"http://127.0.0.1:{place.refusing}")),
    Case("urllib3 retries", N, lambda place: urllib3.PoolManager(retries=1).request("GET", f"http://127.0.0.1:{place.refusing}")),
    Case("urllib3 url", V, lambda place: urllib3.PoolManager().request("GET", "http://[")),
    Case("aiohttp refused", N, by_aiohttp(lambda place: f"http://127.0.0.1:{place.refusing}")),
    Case("aiohttp timeout", N, by_aiohttp(lambda place: f"http://127.0.0.1:{place.silent}", seconds=0.05)),
    Case("aiohttp cut", N, by_aiohttp(at("200/cut"))),
    Case("aiohttp tls", N, by_aiohttp(lambda place: f"https://127.0.0.1:{place.babbling}")),
    Case("aiohttp url", V, by_aiohttp(lambda place: "http://[")),
    Case("aiohttp redirects", F, by_aiohttp(at("302/loop"))),
    Case("aiohttp json of a page", V, by_aiohttp(at("200/html"), json=True)),
    Case("aiohttp json of a page that says sorry", T, by_aiohttp(at("503/html"), json=True)),
]
