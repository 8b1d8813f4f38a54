"""The part of SARIF 2.1.0 that ddpify writes, as a JSON schema, and closed: no other keys.

Written after the specification (sections 3.13 to 3.58 of the OASIS standard); what the standard's
own schema says of these objects is no stricter, except where it is copied here: required keys,
lowest numbers, the words that are allowed.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
LINE = {"type": "integer", "minimum": 1}


def closed(required: str = "", **properties: object) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def some(items: object) -> dict[str, Any]:
    """An array of one or more."""
    return {"type": "array", "items": items, "minItems": 1}


MESSAGE = closed("text", text=TEXT)
MULTIFORMAT = closed("text", text=TEXT, markdown=TEXT)
ARTIFACT = closed(
    "uri", uri={"type": "string", "format": "uri-reference", "minLength": 1}, uriBaseId=TEXT
)
REGION = closed(
    "startLine startColumn endLine endColumn",
    startLine=LINE,
    startColumn=LINE,
    endLine=LINE,
    endColumn=LINE,
)
PHYSICAL = closed("artifactLocation region", artifactLocation=ARTIFACT, region=REGION)
LOCATION = closed(
    "physicalLocation",
    id={"type": "integer", "minimum": -1},
    physicalLocation=PHYSICAL,
    message=MESSAGE,
)
FLOW = closed(
    "threadFlows",
    threadFlows=some(closed("locations", locations=some(closed("location", location=LOCATION)))),
)
REPLACEMENT = closed(
    "deletedRegion",
    deletedRegion=REGION,
    insertedContent=closed("text", text={"type": "string"}),
)
FIX = closed(
    "artifactChanges",
    description=MESSAGE,
    artifactChanges=some(
        closed(
            "artifactLocation replacements",
            artifactLocation=ARTIFACT,
            replacements=some(REPLACEMENT),
        )
    ),
)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = closed(
    "id",
    id=TEXT,
    name=TEXT,
    shortDescription=MULTIFORMAT,
    fullDescription=MULTIFORMAT,
    help=MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=closed(level=LEVEL),
    properties=closed(tags={"type": "array", "items": TEXT, "uniqueItems": True}),
)
RESULT = closed(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=MESSAGE,
    locations=some(LOCATION),
    relatedLocations={"type": "array", "items": LOCATION, "uniqueItems": True},
    codeFlows=some(FLOW),
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    fixes={"type": "array", "items": FIX, "uniqueItems": True},
)
DRIVER = closed(
    "name",
    name=TEXT,
    semanticVersion=TEXT,
    informationUri={"type": "string", "format": "uri"},
    rules={"type": "array", "items": RULE, "uniqueItems": True},
)
RUN = closed(
    "tool",
    tool=closed("driver", driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": closed("uri", uri=TEXT)},
    results={"type": "array", "items": RESULT},
)
SCHEMA = closed(
    "version runs",
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={"type": "array", "items": RUN},
)
