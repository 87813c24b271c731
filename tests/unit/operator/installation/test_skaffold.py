"""`skaffold.yaml` is valid, and every file that it names exists."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[4]
CONFIG = yaml.safe_load((ROOT / "skaffold.yaml").read_text())


def test_the_file_matches_the_schema() -> None:
    schema = json.loads((Path(__file__).parent / "schemas/skaffold-v4beta13.json").read_text())
    jsonschema.Draft7Validator(schema).validate(CONFIG)


def test_the_schema_finds_mistakes() -> None:
    schema = json.loads((Path(__file__).parent / "schemas/skaffold-v4beta13.json").read_text())
    broken = {**CONFIG, "build": {**CONFIG["build"], "artefacts": []}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(broken)


def test_every_named_file_exists() -> None:
    for artifact in CONFIG["build"]["artifacts"]:
        if "context" in artifact:
            assert (ROOT / artifact["context"] / artifact["docker"]["dockerfile"]).is_file()
        for pattern in artifact.get("custom", {}).get("dependencies", {}).get("paths", ()):
            assert any(True for _ in ROOT.glob(pattern)), pattern
    for path in CONFIG["manifests"]["rawYaml"]:
        assert (ROOT / path).is_file()
    for release in CONFIG["deploy"]["helm"]["releases"]:
        assert (ROOT / release["chartPath"] / "Chart.yaml").is_file()


def test_the_image_of_the_job_is_built() -> None:
    images = {a["image"] for a in CONFIG["build"]["artifacts"]}
    for path in CONFIG["manifests"]["rawYaml"]:
        for manifest in yaml.safe_load_all((ROOT / path).read_text()):
            if manifest["kind"] == "FlinkJob":
                assert manifest["spec"]["image"].rpartition(":")[0] in images
