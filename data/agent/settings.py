"""读 agent.toml，变成一棵带类型的配置树。

配置加载优先级从低到高：内置默认值、agent.toml、环境变量、命令行参数；后面的覆盖前面的。

环境变量写成 XIAOMAN_段名__键名，全大写，中间两道下划线，
例如 XIAOMAN_LOOP__MAX_STEPS=8。命令行写成 --set loop.max_steps=8。
两边的值都按 TOML 的写法解读：数字就是数字，true 就是布尔，
解读不了的当字符串。

密钥不进 agent.toml，只从环境变量读：配置文件迟早会被提交到仓库里。
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from errors import ConfigError
from utils import deep_merge

HERE = Path(__file__).resolve().parent
ENV_PREFIX = "XIAOMAN_"


@dataclass(frozen=True)
class ModelSettings:
    """模型。kind 取 scripted（离线剧本）或 http（任何兼容的对话服务）。"""

    kind: str = "scripted"
    name: str = "demo-large"
    backup: str = "demo-small"
    base_url: str = "http://127.0.0.1:8000/v1"
    api_key_env: str = "XIAOMAN_API_KEY"
    temperature: float = 0.2
    timeout: str = "60s"


@dataclass(frozen=True)
class LoopSettings:
    """主循环与安全阀。"""

    max_steps: int = 12
    token_budget: int = 60_000
    repeat_limit: int = 3
    error_limit: int = 5
    max_seconds: float = 300.0


@dataclass(frozen=True)
class MemorySettings:
    """对话历史与笔记。"""

    window: int = 8000
    compress_at: float = 0.7
    keep_recent: int = 6
    notes: bool = True


@dataclass(frozen=True)
class ToolSettings:
    """工具。enabled 里没写的工具不会出现在模型面前。"""

    enabled: Sequence[str] = ("read_file", "write_file", "list_dir", "grep", "calc", "remember", "recall")
    workspace: str = "workspace"
    shell_allow: Sequence[str] = ("ls", "cat", "git", "python3")
    confirm: str = "ask"


@dataclass(frozen=True)
class SubagentSettings:
    """子代理。share 是一次划走剩余预算的几成。"""

    max_steps: int = 6
    share: float = 0.3


@dataclass(frozen=True)
class LogSettings:
    """日志。"""

    level: str = "INFO"
    folder: str = ".xiaoman/log"
    terminal: bool = True


@dataclass(frozen=True)
class Settings:
    """整棵树。各段都可以单独替换，测试里常这样做。"""

    model: ModelSettings = field(default_factory=ModelSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    subagent: SubagentSettings = field(default_factory=SubagentSettings)
    log: LogSettings = field(default_factory=LogSettings)


def load_settings(
    path: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Settings:
    """按次序叠起来，再检查一遍。path 缺省是本目录的 agent.toml，没有这个文件也能跑。"""
    path = path or HERE / "agent.toml"
    data: dict[str, Any] = {}
    if path.exists():
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as exc:
            raise ConfigError(f"{path.name} 不是合法的 TOML：{exc}") from exc
    data = deep_merge(data, _from_env(os.environ if env is None else env))
    data = deep_merge(data, _from_overrides(overrides))
    settings = _build(Settings, data, where="")
    _check(settings)
    return settings


def _value(text: str) -> Any:
    """按 TOML 解读一个值；不合语法就当字符串。"""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, text in env.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            section, key = name.removeprefix(ENV_PREFIX).lower().split("__", 1)
            result.setdefault(section, {})[key] = _value(text)
    return result


def _from_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for item in overrides:
        name, equals, text = item.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot):
            raise ConfigError(f"--set 要写成 段名.键名=值，收到的是 {item!r}")
        result.setdefault(section, {})[key] = _value(text.strip())
    return result


def _build(kind: type, data: Mapping[str, Any], where: str) -> Any:
    """字典变成 dataclass。不认识的键直接报错：拼错的键若被悄悄忽略，能查一下午。"""
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{where}{key}"
        if key not in known:
            raise ConfigError(f"不认识的配置项 {name}；可用的有 {'、'.join(sorted(known))}")
        hint = hints[key]
        if is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{name} 应当是一段，写成 [{name}]")
            values[key] = _build(hint, value, where=f"{name}.")
        elif hint is float and type(value) is int:
            values[key] = float(value)
        elif hint in (int, float, str, bool) and type(value) is not hint:
            raise ConfigError(f"{name} 要的是 {hint.__name__}，收到 {value!r}")
        else:
            values[key] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _check(settings: Settings) -> None:
    """取值的范围。只查会闯祸的几项，其余交给用的人。"""
    if not 1 <= settings.loop.max_steps <= 100:
        raise ConfigError("loop.max_steps 要在 1 到 100 之间")
    if settings.loop.token_budget < 1000:
        raise ConfigError("loop.token_budget 不能小于 1000，连一轮都跑不完")
    if not 0.3 <= settings.memory.compress_at <= 0.95:
        raise ConfigError("memory.compress_at 要在 0.3 到 0.95 之间")
    if settings.tools.confirm not in ("ask", "auto", "deny"):
        raise ConfigError("tools.confirm 只能是 ask、auto 或 deny")
    if settings.model.kind not in ("scripted", "http"):
        raise ConfigError("model.kind 只能是 scripted 或 http")
