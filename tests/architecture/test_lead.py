"""What changes something elsewhere asks first whether this server still leads, and cannot forget to."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "awe_server"


def test_who_is_given_the_question_has_no_answer_of_its_own() -> None:
    """With a default, a caller that forgets to pass it writes beside the server that took over."""
    asked, excused = 0, []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                plain = [*arguments.posonlyargs, *arguments.args]
                defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
                pairs = [*zip(plain, defaults, strict=True)]
                pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                named = [default for argument, default in pairs if argument.arg == "require_lead"]
                asked += len(named)
                excused += [f"{path.name} {node.name}" for default in named if default is not None]
    assert asked > 5
    assert excused == []
