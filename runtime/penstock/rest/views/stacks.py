"""Thread dumps and flame graphs from samples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.rest import models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.common.stacks.sampling import Place, Sample
    from penstock.rest import facts

_MAX_CONCURRENT = 64
_DEEPEST = 200
"""Maximum number of frames that a flame graph shows of a stack. A deep recursion keeps its innermost frames, because not all parsers
support deeper JSON.
"""


def thread_dump(samples: Iterable[Sample]) -> models.ThreadDump:
    infos = []
    for seen in samples:
        place = seen.stack.place
        of = f" (vertex {place.vertex} #{place.subtask})" if place.vertex else ""
        head = f'"{seen.stack.thread}"{of}'
        lines = [head, *(f"\tat {frame}" for frame in reversed(seen.stack.frames))]
        infos.append(
            models.ThreadInfo(thread_name=seen.stack.thread, stringified_thread_info="\n".join(lines) + "\n\n")
        )
    return models.ThreadDump(thread_infos=infos)


def task_managers_of(vertex: facts.Vertex, subtask: int | None) -> list[str]:
    """Return the TaskManagers of the vertex's subtasks."""
    wanted = (found for found in vertex.subtasks if subtask in (None, found.index))
    return sorted({found.tm_id for found in wanted if found.tm_id})


def sample_all(
    ask: Callable[[str | None, float, int, Place], Sequence[Sample]],
    task_managers: Sequence[str],
    seconds: float,
    hertz: int,
    of: Place,
) -> list[Sample]:
    """Sample all TaskManagers at the same time."""
    if not task_managers:
        return []
    with ThreadPoolExecutor(min(len(task_managers), _MAX_CONCURRENT)) as pool:
        answers = pool.map(lambda task_manager: ask(task_manager, seconds, hertz, of), task_managers)
        return [seen for answer in answers for seen in answer]


def filter_kind(samples: Iterable[Sample], kind: str) -> list[Sample]:
    return [seen for seen in samples if kind == "full" or seen.stack.on_cpu == (kind == "on_cpu")]


def flame_graph(samples: Iterable[Sample], now: int) -> models.FlameGraph:
    """Return a flame graph: the threads below `root`, then frames from the outermost on."""
    root = models.FlameNode(name="root", value=0, children=[])
    below: dict[int, dict[str, models.FlameNode]] = {}
    for seen in samples:
        node = root
        node.value += seen.count
        for name in (seen.stack.thread, *seen.stack.frames[-_DEEPEST:]):
            children = below.setdefault(id(node), {})
            if name not in children:
                children[name] = models.FlameNode(name=name, value=0, children=[])
                node.children.append(children[name])
            node = children[name]
            node.value += seen.count
    return models.FlameGraph(end_timestamp=now, root=root)


def folded(samples: Iterable[Sample]) -> str:
    """Return a line for each stack: its frames, outermost first, and the number of samples."""
    lines = (";".join((seen.stack.thread, *seen.stack.frames)) + f" {seen.count}\n" for seen in samples)
    return "".join(lines)
