"""Looking an OpenSearch over, without changing anything."""

from __future__ import annotations

from typing import Any

from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.letters import OpenSearchLetters
from redrive.backends.opensearch.opening import Ground, look
from redrive.backends.opensearch.query import EVERY_LETTER
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding, Health


async def examine(letters: OpenSearchLetters) -> list[Finding]:
    """Does it answer and take writes, is it durable, how is the cluster, how much is in it?"""
    try:
        index = await letters.index()
        ground = await look(index)
        if ground is None:
            return [Finding("store", Health.NOTE, f"there is no {index.name} yet; the first letter makes it")]
        await letters.check()
        return [await _store(index, ground), _durability(ground), *_lag(ground), *await _health(index), *await _disks(index)]
    except RedriveError as error:
        return [Finding("store", Health.BAD, str(error))]


async def _store(index: Index, ground: Ground) -> Finding:
    release = (await index.client.call("GET", "/", params={"filter_path": "version.number"}))["version"]["number"]
    await index.fresh()
    body = {"size": 0, "track_total_hits": True, "query": EVERY_LETTER}
    count = (await index.search(body, "hits.total.value"))["hits"]["total"]["value"]
    held = f"{count} letter{'s' if count != 1 else ''}"
    return Finding("store", Health.OK, f"{index.name} ({release}) is writable, has schema {ground.schema} and holds {held}")


def _durability(ground: Ground) -> Finding:
    if ground.settings.get("index.translog.durability", "request") != "request":
        detail = "index.translog.durability is async: a crash may lose letters that were confirmed; set it to request"
        return Finding("durability", Health.BAD, detail)
    return Finding("durability", Health.OK, "what the index confirms is on the disk")


def _lag(ground: Ground) -> list[Finding]:
    interval = ground.settings.get("index.refresh_interval", "1s")
    if interval == "-1":
        detail = "index.refresh_interval is -1: what other processes write is only found when this one writes, too; set it to 1s"
        return [Finding("refresh", Health.BAD, detail)]
    return [Finding("refresh", Health.OK, f"what other processes write is found within {interval}")]


async def _health(index: Index) -> list[Finding]:
    path = f"/_cluster/health/{index.address.index}"
    status, told = await index.client.ask("GET", path)
    if status >= 300:
        return []  # not for this user
    findings = []
    health, copies = told["status"], told["active_shards"] - told["active_primary_shards"]
    detail = f"the index is {health}: {told['active_primary_shards']} of its shards serve, with {copies} replicas"
    findings.append(Finding("cluster", {"green": Health.OK, "yellow": Health.NOTE}.get(health, Health.BAD), detail))
    if copies == 0:
        detail = "there is no replica: when a node's disk is lost, so are its letters; add a node, or keep snapshots"
        findings.append(Finding("replicas", Health.NOTE, detail))
    return findings


async def _disks(index: Index) -> list[Finding]:
    params = {"filter_path": "nodes.*.name,nodes.*.fs.total"}
    status, told = await index.client.ask("GET", "/_nodes/stats/fs", params=params)
    if status >= 300 or not isinstance(told, dict):
        return []  # not for this user
    return [_disk(node) for node in told.get("nodes", {}).values()]


def _disk(node: dict[str, Any]) -> Finding:
    total = node.get("fs", {}).get("total", {})
    size, free = total.get("total_in_bytes", 0), total.get("available_in_bytes", 0)
    used = 1 - free / size if size else 0.0
    detail = f"node {node.get('name', '?')} has {free / 1e9:.1f} GB of {size / 1e9:.1f} GB left"
    if used >= 0.95:
        return Finding("disk", Health.BAD, f"{detail}: beyond the flood stage, where it takes no more letters; free some space")
    if used >= 0.85:
        return Finding("disk", Health.NOTE, f"{detail}: past the low watermark; at 95 % it takes no more letters")
    return Finding("disk", Health.OK, detail)
