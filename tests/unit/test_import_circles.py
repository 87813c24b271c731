"""No modules import each other in a circle, neither when they run nor when types are checked."""

from __future__ import annotations

import grimp
import pytest

STREAMS = {"penstock.datastream.data_stream", "penstock.datastream.stream_execution_environment"}
STREAMS_PACKAGE = "penstock.datastream.streams."
"""The classes of streams return each other, so their types form a circle. They do not import each other when they run."""


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the strongly connected components of two and more modules (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for root in sorted(graph.modules):
        if root in index:
            continue
        work = [(root, iter(sorted(graph.find_modules_directly_imported_by(root))))]
        index[root] = lowest[root] = len(index)
        stack.append(root)
        while work:
            module, imported = work[-1]
            following = next(imported, None)
            if following is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == index[module]:
                    component = set(stack[stack.index(module) :])
                    del stack[stack.index(module) :]
                    if len(component) > 1:
                        found.append(component)
            elif following not in index:
                index[following] = lowest[following] = len(index)
                stack.append(following)
                work.append((following, iter(sorted(graph.find_modules_directly_imported_by(following)))))
            elif following in stack:
                lowest[module] = min(lowest[module], index[following])
    return found


def test_circles_of_a_graph_are_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")):
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == [{"a", "b", "c"}]


@pytest.mark.parametrize("with_types", [False, True], ids=["run time", "with types"])
def test_modules_do_not_import_each_other_in_a_circle(*, with_types: bool) -> None:
    graph = grimp.build_graph(
        "penstock", "penstock_operator", exclude_type_checking_imports=not with_types, cache_dir=None
    )
    found = circles(graph)
    if with_types:
        found = [c for c in found if not all(m in STREAMS or m.startswith(STREAMS_PACKAGE) for m in c)]
    assert found == []
