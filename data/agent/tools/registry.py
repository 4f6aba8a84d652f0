"""工具的登记处。

写一个普通函数，加一行装饰器，模型就能用它：名字、说明、参数表
都从函数本身读出来，不用再抄一份 JSON。
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from cache import ToolCache
from errors import BadArguments, DuplicateTool, UnknownTool
from log import redact
from permissions import Gate, Level
from utils import clip, first_line, stable_hash

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class Tool:
    """登记好的一个工具。"""

    name: str
    func: Callable[..., Any]
    level: Level
    description: str
    parameters: dict[str, Any]
    cacheable: bool = False

    def schema(self) -> dict[str, Any]:
        """给模型看的样子。"""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def describe(func: Callable[..., Any]) -> dict[str, Any]:
    """从函数签名推出参数表。没写类型的参数不收：模型会乱填。"""
    hints = get_type_hints(func)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(func).parameters.items():
        kind = hints.get(name)
        if kind not in _JSON_TYPES:
            raise TypeError(f"{func.__name__} 的参数 {name} 要标注为 str、int、float 或 bool")
        properties[name] = {"type": _JSON_TYPES[kind]}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            properties[name]["default"] = parameter.default
    return {"type": "object", "properties": properties, "required": required}


class Registry:
    """工具注册不允许重名：第二次登记同一个名字直接抛 DuplicateTool，不做覆盖。

    覆盖看着方便，可是两个插件都带着 search 时，谁后加载谁赢，
    换一台机器次序一变，行为就跟着变。当场报错便宜得多。
    """

    def __init__(self, gate: Gate | None = None, cache: ToolCache | None = None) -> None:
        self.gate = gate or Gate("deny")
        self.cache = cache
        self._tools: dict[str, Tool] = {}

    # ---- 登记 ----

    def tool(self, level: str = "read", *, name: str | None = None, cacheable: bool = False) -> Callable:
        """装饰器。

        registry = Registry()

        @registry.tool("read", cacheable=True)
        def read_file(path: str) -> str:
            '''读一个文本文件。'''
        """

        def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
            self.add(func, level, name=name, cacheable=cacheable)
            return func

        return wrap

    def add(self, func: Callable, level: str = "read", *, name: str | None = None, cacheable: bool = False) -> None:
        name = name or func.__name__
        if name in self._tools:
            raise DuplicateTool(f"已经有一个叫 {name} 的工具")
        if not func.__doc__:
            raise TypeError(f"{name} 没有文档字符串；模型靠它决定用不用")
        if cacheable and level != "read":
            raise ValueError(f"{name} 不是 read 级，不能缓存")
        self._tools[name] = Tool(
            name, func, Level(level), inspect.getdoc(func) or "", describe(func), cacheable
        )

    # ---- 查询 ----

    def names(self) -> list[str]:
        return list(self._tools)

    def get(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownTool(f"没有叫 {name} 的工具；现有 {'、'.join(self._tools)}") from None

    def schemas(self, only: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """给模型看的清单；only 限定范围，不在登记处的名字略过。"""
        wanted = self.names() if only is None else list(only)
        return [self._tools[n].schema() for n in wanted if n in self._tools]

    def rows(self) -> list[list[str]]:
        """给人看的清单，--list-tools 用。"""
        head = [["工具", "级别", "缓存", "说明"]]
        return head + [
            [t.name, t.level.value, "是" if t.cacheable else "否", first_line(t.description)]
            for t in self._tools.values()
        ]

    # ---- 调用 ----

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """检查参数、问权限、查缓存、执行、截短，一步步来。返回值一律变成字符串。"""
        tool = self.get(name)
        values = check_arguments(tool, arguments)
        self.gate.require(name, tool.level, summarise(arguments))
        if tool.cacheable and self.cache is not None:
            saved = self.cache.get(name, values)
            if saved is not None:
                return saved
        value = tool.func(**values)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = clip(redact(text))
        if tool.cacheable and self.cache is not None:
            self.cache.put(name, values, text)
        return text


def check_arguments(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """缺的、多的、类型不对的都在这里挑出来，一次说全，省得模型一个一个试。"""
    properties = tool.parameters["properties"]
    problems = [f"缺少 {n}" for n in tool.parameters["required"] if n not in arguments]
    problems += [f"多了 {n}" for n in arguments if n not in properties]
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in properties:
            continue
        kind = properties[name]["type"]
        if kind == "number" and type(value) is int:
            value = float(value)
        if _JSON_TYPES.get(type(value)) != kind:
            problems.append(f"{name} 应当是 {kind}")
        values[name] = value
    if problems:
        raise BadArguments(f"{tool.name}：{'；'.join(problems)}")
    return values


def summarise(arguments: dict[str, Any]) -> str:
    """给人确认时看的一行字，长的值截短。"""
    parts = [f"{k}={str(v)[:60]!r}" for k, v in arguments.items()]
    return "，".join(parts) or "（没有参数）"


def fingerprint(name: str, arguments: dict[str, Any]) -> str:
    """一次调用的指纹：名字和参数都相同，指纹才相同。"""
    return f"{name}:{stable_hash(arguments)}"
