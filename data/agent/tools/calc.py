"""计算器。

不用 eval：模型写什么它就跑什么，等于把整台机器交出去。
这里先用 ast 拆成语法树，只认得几种节点，其余一概不理。
"""

from __future__ import annotations

import ast
import operator

from errors import BadExpression
from tools.registry import Registry

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}

#: 乘方的指数最大到这里。9**9**9 会让机器算到天黑。
MAX_POWER = 64

#: 式子最长这么多字符。
MAX_LENGTH = 200


def evaluate(expression: str) -> float | int:
    """算一个式子。

    计算器只认加减乘除、整除、取余、乘方与括号，其余语法一律报 E203。
    中文的 × ÷ （ ） 和千分位的逗号会先换成英文写法。

    >>> evaluate("(3 + 4) * 2"), evaluate("1,200 ÷ 8"), evaluate("2 ** 10")
    (14, 150.0, 1024)
    """
    if len(expression) > MAX_LENGTH:
        raise BadExpression(f"式子太长，最多 {MAX_LENGTH} 个字符")
    table = str.maketrans({"×": "*", "÷": "/", "（": "(", "）": ")", ",": "", "，": ""})
    text = expression.translate(table).strip()
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise BadExpression(f"看不懂：{expression!r}") from None
    try:
        return _walk(tree.body)
    except ZeroDivisionError:
        raise BadExpression("除数是零") from None


def _walk(node: ast.AST) -> float | int:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_walk(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _walk(node.left), _walk(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > MAX_POWER:
            raise BadExpression(f"指数最大 {MAX_POWER}")
        return _BINARY[type(node.op)](left, right)
    raise BadExpression(f"不支持 {type(node).__name__}")


def pretty(value: float | int) -> str:
    """整数不带小数点，小数最多留十位有效数字，尾巴上的零去掉。

    >>> pretty(150.0), pretty(0.1 + 0.2)
    ('150', '0.3')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int) else f"{value:.10g}"


def register(registry: Registry) -> None:
    @registry.tool("read", cacheable=True)
    def calc(expression: str) -> str:
        """算一个算式，例如 (3 + 4) * 2。只做四则运算、取余和乘方，没有函数和变量。"""
        return pretty(evaluate(expression))
