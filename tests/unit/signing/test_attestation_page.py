"""docs/attestation.md: its examples name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import jsonschema
import yaml

from buildmatrix.reports.verify import Reason
from buildmatrix.signing import attached, verdict

PAGE = (Path(__file__).parents[3] / "docs/attestation.md").read_text()
VECTORS = Path(__file__).parent / "vectors"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_a_verdict_has_its_schema() -> None:
    (text,) = blocks("json")
    shortened = re.sub(r'(sha256:[0-9a-f]+)\.\.\."', r'\1"', text)
    jsonschema.validate(
        json.loads(shortened), verdict.schema(), cls=jsonschema.Draft202012Validator
    )


def test_every_reason_is_in_the_table() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| ", PAGE.partition("## `verify`")[2], re.MULTILINE)
    assert listed == list(get_args(Reason))


def test_policies_name_the_types_and_the_fields_that_there_are() -> None:
    kyverno, controller = map(yaml.safe_load, blocks("yaml"))
    (rule,) = kyverno["spec"]["rules"]
    (image,) = rule["verifyImages"]
    (attestation,) = image["attestations"]
    assert attestation["type"] == verdict.PREDICATE_TYPE
    (conditions,) = attestation["conditions"]
    fields = [re.fullmatch(r"\{\{ (.*) \}\}", item["key"])[1] for item in conditions["all"]]
    (example,) = blocks("json")
    for field in fields:
        value = json.loads(example)
        for part in field.split("."):
            value = value[part]
    (authority,) = controller["spec"]["authorities"]
    assert authority["attestations"][0]["predicateType"] == verdict.PREDICATE_TYPE
    (entry,) = attestation["attestors"][0]["entries"]
    public = (VECTORS / "cosign.pub").read_text()
    assert authority["key"]["data"] == public
    assert entry["keys"]["publicKeys"].strip() == public.strip()


def test_the_types_of_both_statements_are_named() -> None:
    assert f"| `{verdict.PREDICATE_TYPE}` |" in PAGE
    assert f"| `{attached.CYCLONEDX}` |" in PAGE
