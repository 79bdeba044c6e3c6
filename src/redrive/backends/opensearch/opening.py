"""The first use of a cluster: is the index there, is it ours, which schema has it, and whose desk?"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.backends.opensearch import mapping
from redrive.backends.opensearch.errors import MISSING, error_in, kind_of, refused
from redrive.backends.opensearch.index import Index
from redrive.model.errors import BadSettings, SchemaTooNew, StoreCorrupt, StoreUnavailable

DESK = "redrive:desk"
"""The one document that is no letter."""
_NOBODY = "redrive:nobody"
_LONG_SECONDS = 30.0
"""What a cluster may take to make an index, whatever patience the URL has for letters."""
_FORBIDDEN = (400, 401, 403)


class Ground(Struct, frozen=True):
    """What the cluster says of an index."""

    uuid: str
    schema: int | None
    """None: it is not ours."""
    settings: dict[str, Any]


async def look(index: Index) -> Ground | None:
    """The index as it is, None when it is not there; refuses one that is not ours or too new. Nothing is changed."""
    ground = await ground_of(index)
    if ground is None:
        return None
    if ground.schema is None:
        raise StoreCorrupt(f"the {index.name} was not made by redrive; choose another name in the URL, e.g. /redrive")
    if ground.schema > mapping.SCHEMA:
        raise SchemaTooNew(
            f"the {index.name} has schema {ground.schema}, this redrive knows {mapping.SCHEMA}; upgrade redrive to open it"
        )
    index.found(ground.uuid)
    return ground


async def ground_of(index: Index) -> Ground | None:
    """What the cluster says of the index, whoever made it."""
    params = {"filter_path": "*.mappings._meta,*.settings,error", "flat_settings": "true"}
    status, answer = await index.client.ask("GET", f"/{index.address.index}", params=params)
    if status == MISSING:
        await _ensure_started(index)
        return None
    if status >= 300:
        raise refused(status, error_in(answer), index.name)
    if len(answer) != 1:
        raise BadSettings(f"'{index.address.index}' names {len(answer)} indexes; name one of them: {', '.join(sorted(answer))}")
    (found,) = answer.values()
    settings = found.get("settings", {})
    ours = found.get("mappings", {}).get("_meta", {}).get("redrive")
    schema = ours.get("schema") if isinstance(ours, dict) else None
    return Ground(settings["index.uuid"], schema, settings)


async def _ensure_started(index: Index) -> None:
    """A cluster that is starting knows of no index yet, and says of each that it is not there."""
    params = {"filter_path": "blocks.global"}
    status, answer = await index.client.ask("GET", "/_cluster/state/blocks", params=params)
    if status < 300 and answer:
        raise StoreUnavailable(f"the cluster of {index.name} is still starting; try again")


async def take_ground(index: Index) -> None:
    """Before the first write: have the index made, or upgraded. Many processes may do so at once; whoever is first decides."""
    async with index.ground:
        if not index.has_ground:
            await _take(index)
            index.has_ground = True


async def _take(index: Index) -> None:
    ground = await look(index)
    if ground is None:
        await _install_template(index)
        await _create(index)
        if await look(index) is None:
            raise StoreCorrupt(f"the {index.name} was removed while it was being made; open the store again")
    elif ground.schema is not None and ground.schema < mapping.SCHEMA:
        await _install_template(index)
        # Fields are only ever added, so that an older redrive can go on.
        await index.client.call("PUT", index.path("_mapping"), mapping.mappings(), writes=True, seconds=_patience(index))


async def ensure_writable(index: Index) -> None:
    """Ask for a change of a document that is not there: it needs all that a write needs, and changes nothing."""
    status, answer = await index.client.ask("POST", index.path(f"_update/{_NOBODY}"), {"doc": {}})
    if status >= 300 and status != MISSING:
        raise refused(status, error_in(answer), index.name)
    if status == MISSING and kind_of(error_in(answer)) != "document_missing_exception":
        raise refused(status, error_in(answer), index.name)


async def bound(index: Index, desk: UUID) -> UUID:
    """The id of the desk that this store belongs to: the one given, unless there is one already."""
    with index.writing():
        status, answer = await index.client.ask("POST", index.path(f"_create/{DESK}"), {"desk": str(desk)}, writes=True)
    if status >= 300 and kind_of(error_in(answer)) != "version_conflict_engine_exception":
        raise refused(status, error_in(answer), index.name)
    found = await index.client.call("GET", index.path(f"_doc/{DESK}"), params={"filter_path": "_source"})
    return UUID(found["_source"]["desk"])


async def _install_template(index: Index) -> None:
    path = f"/_index_template/redrive-{index.address.index}"
    status, answer = await index.client.ask("PUT", path, mapping.template(index.address), writes=True, seconds=_patience(index))
    # Who may not write templates, or has one of that rank already, does without: the index is made whole by itself.
    if status >= 300 and status not in _FORBIDDEN:
        raise refused(status, error_in(answer), index.name)


async def _create(index: Index) -> None:
    body = {"settings": mapping.settings(index.address), "mappings": mapping.mappings()}
    path = f"/{index.address.index}"
    status, answer = await index.client.ask("PUT", path, body, writes=True, seconds=_patience(index))
    if status >= 300 and kind_of(error_in(answer)) != "resource_already_exists_exception":
        raise refused(status, error_in(answer), index.name)


def _patience(index: Index) -> float:
    return max(index.client.seconds, _LONG_SECONDS)
