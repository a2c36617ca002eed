"""Rows and schemas without their label: for models that are not told it, and for rows that have none."""

from __future__ import annotations

from dataclasses import replace

from fedsynth.data.clients import RawClients
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema


def without_label(schema: Schema) -> Schema:
    """The same schema for rows whose label nobody knows."""
    if schema.label is None:
        return schema
    kept = tuple(column for column in schema.columns if column.name != schema.label)
    provenance = {name: source for name, source in schema.provenance.items() if name != schema.label}
    rules = tuple(rule.text for rule in schema.rules if schema.label not in rule.columns)
    return replace(
        schema, columns=kept, label=None, label_probabilities=None, provenance=provenance, constraints=rules
    )


def strip_labels(raw: RawClients, schema: Schema) -> RawClients:
    """The same rows without their labels."""
    return replace(raw, data=modality_of(schema).unlabelled(raw.data))
