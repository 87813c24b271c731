"""The input of the workloads: JSON lines of sensor readings in two files, the same for every system.

    {"sensor_id":"s0000123","ts":1700000000123,"temp":71.25}

It has 10,000 readings per second of event time. Each sensor has a slow wave with noise, so temperatures rise for about a
second at a time. All readings of a sensor are in one file. Jitter moves the time of a reading up to this many ms
before its place.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

SEED = 42
READINGS_PER_SECOND = 10_000
EPOCH_MS = 1_700_000_000_000
CHUNK = 50_000
FILES = 2


@dataclass(frozen=True)
class Shape:
    """The parameters of a set of readings. `jitter_ms` bounds how far event times are out of order."""

    records: int
    keys: int
    jitter_ms: int

    @property
    def cut_ms(self) -> int:
        """Event time up to which results are compared. Systems differ in their behaviour at the end of the input."""
        return (
            EPOCH_MS
            + self.records * 1000 // READINGS_PER_SECOND
            - min(20_000, self.records * 250 // READINGS_PER_SECOND)
        )


@dataclass(frozen=True)
class Columns:
    """The readings in order of arrival."""

    sensor: np.ndarray
    time: np.ndarray
    temperature: np.ndarray


def columns(shape: Shape) -> Columns:
    """Return the readings of a shape. They are equal for equal shapes."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    sensor = rng.integers(0, shape.keys, shape.records, dtype=np.int64)
    arrival = EPOCH_MS + np.arange(shape.records, dtype=np.int64) * 1000 // READINGS_PER_SECOND
    time = arrival - rng.integers(0, shape.jitter_ms + 1, shape.records) if shape.jitter_ms else arrival
    seconds = np.arange(shape.records) / READINGS_PER_SECOND
    wave = 20 * np.sin(2 * np.pi * (seconds / 20.0 + (sensor % 97) / 97))
    return Columns(sensor, time, np.round(70 + wave + rng.normal(0, 1.5, shape.records), 2))


def lines(part: Columns) -> list[list[str]]:
    """Return the lines of each file."""
    files: list[list[str]] = [[] for _ in range(FILES)]
    for sensor, time, temperature in zip(
        part.sensor.tolist(), part.time.tolist(), part.temperature.tolist(), strict=True
    ):
        files[sensor % FILES].append('{"sensor_id":"s%07d","ts":%d,"temp":%.2f}\n' % (sensor, time, temperature))  # noqa: UP031
    return files


def prepare(shape: Shape, root: Path) -> Path:
    """Return the folder with these readings, and generate it if it is missing.

    `big/part-N.jsonl`: the files. `chunks/`: the same lines in small files, for systems that read a number of files at a
    time. `shape.json`: the shape.
    """
    folder = root / f"readings-{shape.records}-{shape.keys}-{shape.jitter_ms}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".readings-", dir=root))
    (building / "big").mkdir()
    (building / "chunks").mkdir()
    whole = columns(shape)
    parts = [(building / "big" / f"part-{n}.jsonl").open("w", buffering=1 << 20) for n in range(FILES)]
    for number, begin in enumerate(range(0, shape.records, CHUNK)):
        span = slice(begin, begin + CHUNK)
        chunk = lines(Columns(whole.sensor[span], whole.time[span], whole.temperature[span]))
        for n, (part, content) in enumerate(zip(parts, map("".join, chunk), strict=True)):
            part.write(content)
            path = building / "chunks" / f"c{number:05d}-p{n}.jsonl"
            path.write_text(content)
            os.utime(path, (EPOCH_MS / 1000 + number, EPOCH_MS / 1000 + number))
    for part in parts:
        part.close()
    (building / "shape.json").write_text(json.dumps(asdict(shape)))
    try:
        building.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(building)
    return folder
