"""路由：先看一眼用户的话，决定用哪一套工具、哪一句自我介绍。

工具全摆出来，模型会挑花眼，提示词也白白变长。多数任务其实一看就知道是哪一类。
这里只用几条写死的规则，不调用模型：分类错了也不要紧，
每一类都留着通用工具，顶多绕一点路。
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """一条去路：名字、擅长什么、摆出哪些工具（空的表示全都要）。"""

    name: str
    specialty: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """一条规则：正则命中，就走这条路。"""

    pattern: re.Pattern[str]
    route: Route


GENERAL = Route("general", "什么都会一点，拿不准就先问清楚")

CALC = Route("calc", "算数，并且把算式写出来", ("calc", "read_file", "remember", "recall"))

FILES = Route(
    "files",
    "翻文件、找内容、写小结",
    ("read_file", "write_file", "list_dir", "grep", "calc", "remember", "delegate"),
)

NOTES = Route("notes", "记事和回忆", ("remember", "recall", "read_file"))

CODE = Route(
    "code",
    "读代码、改代码、跑一跑看",
    ("read_file", "write_file", "list_dir", "grep", "run_shell", "delegate"),
)


def rule(pattern: str, route: Route) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), route)


#: 次序很要紧：窄的放前面，宽的放后面。
RULES: tuple[Rule, ...] = (
    rule(r"记住|记一下|别忘了|上次说|还记得", NOTES),
    rule(r"\.py\b|代码|函数|报错|traceback|单元测试", CODE),
    rule(r"[\d.]+\s*[-+*/×÷%^]\s*[\d.]+|多少钱|平均|总共|合计", CALC),
    rule(r"文件|目录|文档|日志|\.(md|txt|csv|toml|json)\b", FILES),
)


class Router:
    """按规则选路。

    路由规则从上到下匹配，命中第一个就停；都没中走默认路由 general。
    """

    def __init__(self, rules: Sequence[Rule] = RULES, default: Route = GENERAL) -> None:
        self.rules = tuple(rules)
        self.default = default

    def match(self, text: str) -> Route:
        for item in self.rules:
            if item.pattern.search(text):
                return item.route
        return self.default

    def explain(self, text: str) -> str:
        """说明为什么选了这条路，排查分类错误时用。"""
        for number, item in enumerate(self.rules, start=1):
            found = item.pattern.search(text)
            if found:
                return f"{item.route.name}：第 {number} 条规则，因为出现了「{found.group()}」"
        return f"{self.default.name}：没有规则命中"


def pick_tools(route: Route, available: Sequence[str]) -> list[str]:
    """这条路上能用的工具。路由点了名、配置里却没开的，悄悄略过。"""
    if not route.tools:
        return list(available)
    return [name for name in available if name in route.tools]
