"""Looking a Redis over, without changing anything."""

from __future__ import annotations

from redis import exceptions

from redrive.backends.redis.keys import AGE
from redrive.backends.redis.letters import RedisLetters
from redrive.backends.redis.opening import keeping
from redrive.backends.redis.server import Server, all_of
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding, Health


async def examine(letters: RedisLetters) -> list[Finding]:
    """Does it answer and take writes, is it durable, how much is in it?"""
    try:
        return await _examined(letters)
    except RedriveError as error:
        return [Finding("store", Health.BAD, str(error))]


async def _examined(letters: RedisLetters) -> list[Finding]:
    server = await letters.server()
    await letters.check()
    sizes = await all_of(server.command(shard.tag, "ZCARD", shard.key(AGE)) for shard in server.shards)
    letters_held = f"{sum(sizes)} letter{'s' if sum(sizes) != 1 else ''}"
    shards = f" in {len(server.shards)} shards" if len(server.shards) > 1 else ""
    findings = [Finding("store", Health.OK, f"{server.name} is writable and holds {letters_held}{shards}")]
    return [*findings, *await _durability(server), *await _memory(server)]


async def _durability(server: Server) -> list[Finding]:
    wanted, findings = server.address.durability, []
    for node, keeps in await keeping(server):
        if keeps is None:
            detail = f"{node.name} does not let this user ask (CONFIG GET); the URL says durability={wanted}"
            findings.append(Finding("durability", Health.NOTE, detail))
        else:
            detail = f"{node.name} keeps letters: {keeps.durability}, asked for: {wanted}"
            findings.append(Finding("durability", Health.OK if keeps.durability == "always" else Health.NOTE, detail))
    return findings


async def _memory(server: Server) -> list[Finding]:
    findings = []
    for node in await server.primaries():
        try:
            told = await node.call("INFO", "memory")
        except (RedriveError, exceptions.RedisError):
            continue  # not for this user
        facts = dict(line.split(":", 1) for line in told.decode().splitlines() if ":" in line)
        used, most = int(facts["used_memory"]), int(facts.get("maxmemory", 0))
        detail = f"{node.name} uses {used / 1e6:.1f} MB" + (f" of {most / 1e6:.1f} MB" if most else "; no limit is set")
        findings.append(Finding("memory", Health.BAD if most and used > 0.9 * most else Health.OK, detail))
    return findings
