"""The protocol's classes that are made when they are first used: the same classes as those that are made at once."""

from __future__ import annotations

import subprocess
import sys


def said(code: str, load: bool = True) -> list[str]:
    first = "from tessera_lsp import lazy_types as quick_types\nquick_types.load()\n" if load else ""
    done = subprocess.run([sys.executable, "-c", first + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_few_are_made_by_starting():
    code = """
from tessera_lsp.features import create_server
create_server()
from lsprotocol import types as lsp
classes = [c for c in lsp.ALL_TYPES_MAP.values() if isinstance(c, type) and "__attrs_attrs__" in vars(c)]
print(len(classes), sum(isinstance(vars(c)["__attrs_attrs__"], tuple) for c in classes))
"""
    every, made = map(int, said(code)[0].split())
    assert every > 500 and 0 < made < every // 10


def test_each_has_the_same_fields():
    code = """
import attrs, re
from lsprotocol import converters, types as lsp
converters.get_converter()
for name, c in sorted(lsp.ALL_TYPES_MAP.items()):
    if isinstance(c, type) and attrs.has(c):
        print(name, c.__hash__, c.__match_args__)
        for field in attrs.fields(c):
            print("  ", re.sub(" at 0x[0-9a-f]+", "", repr(field)))
"""
    made_later = said(code)
    assert len(made_later) > 1500
    assert made_later == said(code, load=False)


def test_what_is_made_of_them_behaves_the_same():
    code = """
from lsprotocol import types as lsp
place = lsp.Position(1, 2)
print(place == lsp.Position(1, 2), place < lsp.Position(2, 0), place)
hint = lsp.InlayHint(place, "x")
print(hint.kind, hint == lsp.InlayHint(lsp.Position(1, 2), "x"), hint != lsp.InlayHint(place, "y"), hint)
for wrong in (lambda: lsp.Position("1", 2), lambda: lsp.Position(), lambda: setattr(place, "line", "1")):
    try:
        wrong()
    except Exception as e:
        print(type(e).__name__, str(e)[:60])
class Named(lsp.Command):
    def __init__(self, title):
        super().__init__(title, "name")
print(Named("a").command, Named("a"), lsp.Command("a", "b"))
"""
    lines = said(code)
    assert lines == said(code, load=False)
    assert lines[0].startswith("True True 1:2") and len(lines) == 6


def test_two_threads_make_one_class():
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from lsprotocol import types as lsp
classes = [lsp.CodeLens, lsp.FoldingRange, lsp.DocumentHighlight, lsp.SelectionRange, lsp.Location]
place, made = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 1)), []
barrier = threading.Barrier(4)
def work():
    barrier.wait()
    for c in classes:
        made.append(c("f", place) if c is lsp.Location else c(0, 1) if c is lsp.FoldingRange else c(place))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(len(made), all(lens == made[0] for lens in made if type(lens) is lsp.CodeLens))
"""
    assert said(code) == ["20 True"]
