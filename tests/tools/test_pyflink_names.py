"""`tools.pyflink_names` reads names from the text of modules, without importing them."""

from __future__ import annotations

from typing import Any

from tools.pyflink_names import names_of


def _names(text: str) -> dict[str, Any]:
    found: dict[str, Any] = names_of({"common/sample.py": text})["modules"]["common.sample"]
    return found


def test_a_method_is_listed_with_its_parameters_and_defaults() -> None:
    names = _names("class A:\n    def f(self, a, b: int = 1, *c, d=None, **e): pass")
    assert names["A"]["methods"]["f"] == {"parameters": ["a", "b=1", "*c", "d=None", "**e"]}


def test_static_methods_properties_members_and_inner_classes_are_distinguished() -> None:
    names = _names(
        "class A(Base[int]):\n    X = 1\n    @staticmethod\n    def s(a): pass\n    @property\n    def p(self): pass\n    class B: pass"
    )
    assert names["A"] == {
        "bases": ["Base"],
        "members": ["X", "p"],
        "methods": {"s": {"static": True, "parameters": ["a"]}},
        "inner": {"B": {}},
    }


def test_private_names_and_names_of_the_jvm_are_left_out() -> None:
    text = "class A:\n    def __init__(self, j_a): pass\n    def _b(self): pass\n    def get_java_c(self): pass\nclass _D: pass"
    assert _names(text) == {"A": {}}


def test_exports_of_a_package_come_from_its_all_list() -> None:
    assert names_of({"common/__init__.py": "__all__ = ['b', 'a']"})["exports"] == {"common": ["a", "b"]}
