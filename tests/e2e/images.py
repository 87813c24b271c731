"""The images of the tests: the operator, the self-verifying job, the example, and a base with Kafka's client."""

from __future__ import annotations

import shutil
from pathlib import Path

import confluent_kafka

from tools.images import BASE, OPERATOR, build_base, build_job, build_operator, tag

ROOT = Path(__file__).resolve().parents[2]
CHECKED = ROOT / "tests" / "integration" / "engine" / "selfcheck" / "job.py"

GOOD = "localhost/penstock-e2e:1"
BETTER = "localhost/penstock-e2e:2"
"""A second name of the same image."""
MISSING = "localhost/penstock-e2e:missing"
"""An image that is never built."""
EXAMPLE = "localhost/penstock-airport-weather:1"
KAFKA = "localhost/penstock-e2e-kafka:1"
"""The base with Kafka's client."""
ALL = (OPERATOR, GOOD, BETTER, EXAMPLE, BASE, KAFKA)
SITE = "/opt/penstock/lib/python3.11/site-packages/"


def build(scratch: Path) -> list[str]:
    """Build the images that are not up to date (layers are cached), and return the names of the images for the cluster."""
    base = build_base()
    job = build_job(_context(scratch), tag=GOOD, base_image=base)
    example = build_job(ROOT / "examples" / "airport_weather", tag=EXAMPLE, base_image=base)
    kafka = build_job(_kafka_context(scratch / "kafka"), tag=KAFKA, base_image=base)
    return [build_operator(), job, tag(job, BETTER), example, base, kafka]


def _context(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    for file in ("job.py", "forgetful.py", "Dockerfile"):
        shutil.copy(Path(__file__).parent / "job" / file, scratch)
    shutil.copy(CHECKED, scratch / "checked.py")
    return scratch


def _kafka_context(scratch: Path) -> Path:
    """Return a context with the installed Kafka client, because a pod reaches no package index."""
    installed = Path(confluent_kafka.__file__).parent
    for folder in (installed, installed.with_name("confluent_kafka.libs")):
        shutil.copytree(folder, scratch / folder.name, dirs_exist_ok=True)
    copies = [f"COPY {name} {SITE}{name}" for name in ("confluent_kafka", "confluent_kafka.libs")]
    (scratch / "Dockerfile").write_text("\n".join([f"ARG BASE_IMAGE={BASE}", "FROM ${BASE_IMAGE}", *copies, ""]))
    return scratch
