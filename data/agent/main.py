"""命令行入口。

    python main.py "算一下 12 * 365"     做一个任务
    python main.py --demo                离线演示，不要密钥，不碰你的文件
    python main.py --list-tools          有哪些工具
    python main.py --session s3 --resume 接着做上次没做完的
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
from pathlib import Path

from config import SETTINGS
from errors import AgentError, AuthError
from events import TOOL_CALL, TOOL_RESULT, Event, EventBus
from log import setup_logging
from loop import Agent
from model import FallbackModel, HttpModel, Model, Reply, ScriptedModel, ToolCall
from notes import NoteBook
from permissions import Gate
from session import Session, SessionStore
from settings import Settings, load_settings
from tools import calc, files, shell
from tools.registry import Registry
from utils import first_line, format_table, parse_duration

#: 退出码。脚本靠它判断，别随手改。
EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_STOPPED = 0, 1, 2, 3


def build_model(settings: Settings) -> Model:
    """按配置造模型。真服务一律配上备用的。"""
    section = settings.model
    if section.kind == "scripted":
        return ScriptedModel([Reply("我现在是离线剧本，只会这一句。运行 --demo 看一场完整的。")])
    key = os.environ.get(section.api_key_env, "").strip()
    if not key:
        raise AuthError(f"环境变量 {section.api_key_env} 是空的")
    timeout = parse_duration(section.timeout)

    def one(name: str) -> HttpModel:
        return HttpModel(name, section.base_url, key, temperature=section.temperature, timeout=timeout)

    return FallbackModel(one(section.name), one(section.backup))


def build_registry(settings: Settings, root: Path, notebook: NoteBook, gate: Gate, cache=None) -> Registry:
    """登记所有工具，再按 enabled 筛一遍。"""
    everything = Registry(gate, cache)
    files.register(everything, root)
    calc.register(everything)
    shell.register(everything, root, settings.tools.shell_allow)

    @everything.tool("write")
    def remember(text: str) -> str:
        """往小本子上记一条，以后的任务也看得到。"""
        return f"记下了，第 {notebook.remember(text).id} 条"

    @everything.tool("read")
    def recall(query: str) -> str:
        """在小本子里查一查。"""
        return "\n".join(f"{n.id}. {n.text}" for n in notebook.recall(query)) or "没有相关的笔记"

    chosen = Registry(gate, cache)
    for name in settings.tools.enabled:
        tool = everything.get(name)
        chosen.add(tool.func, tool.level.value, name=name, cacheable=tool.cacheable)
    return chosen


def build_agent(settings: Settings, session: Session, model: Model, gate: Gate, bus: EventBus) -> Agent:
    """装配。delegate 要等 Agent 造好才登记，它得知道派谁。"""
    notebook = session.notes
    registry = build_registry(settings, session.files, notebook, gate, session.cache)
    agent = Agent(
        model, registry, settings,
        session_id=session.id, bus=bus, notebook=notebook, checkpoints=session.checkpoints,
    )

    @registry.tool("read")
    def delegate(task: str) -> str:
        """把一件独立的小事交给子代理，只收结论。任务要写得让没看过这段对话的人也能做。"""
        return agent.dispatcher.delegate(task).text

    return agent


def list_tools(settings: Settings) -> str:
    """工具清单。登记要有会话，就在临时目录里建一个，看完即弃。"""
    with tempfile.TemporaryDirectory() as folder:
        session = SessionStore(Path(folder)).create()
        agent = build_agent(settings, session, build_model(settings), Gate("deny"), EventBus())
        return format_table(agent.registry.rows())


def show(event: Event) -> None:
    """在终端上打印工具的来回，一行一个。"""
    if event.name == TOOL_CALL:
        print(f"  → {event.data['name']} {event.data['arguments']}")
    elif event.name == TOOL_RESULT:
        mark = "✓" if event.data["ok"] else "✗"
        print(f"  {mark} {first_line(event.data['text'])[:70]}")


def demo_script() -> list:
    """一场小戏：算数和看目录一起做，写文件，记一笔，派子代理，收尾。"""
    return [
        Reply(
            "先看看手里有什么，同时把总数算出来。",
            (ToolCall("1", "list_dir", {"path": "."}), ToolCall("2", "calc", {"expression": "12 × 365"})),
        ),
        Reply(
            "写成小结。",
            (ToolCall("3", "write_file", {"path": "小结.md", "content": "# 小结\n\n全年 4380 杯茶。\n"}),),
        ),
        Reply("记一笔，下次不用再算。", (ToolCall("4", "remember", {"text": "每天 12 杯茶，全年 4380 杯"}),)),
        Reply("请人复核一下文件。", (ToolCall("5", "delegate", {"task": "读小结.md，说出里面的数字"}),)),
        Reply("", (ToolCall("6", "read_file", {"path": "小结.md"}),)),
        Reply("小结里的数字是 4380。"),
        Reply("算好了：全年 4380 杯，写在小结.md 里，复核过。"),
    ]


def demo() -> int:
    """两场：一场顺利收尾，一场原地打转，看安全阀把它停下。"""
    with tempfile.TemporaryDirectory() as folder:
        store = SessionStore(Path(folder))
        bus = EventBus()
        bus.subscribe(show)

        print("第一场：日志和文件都好好的")
        session = store.create("演示")
        (session.files / "茶.txt").write_text("每天 12 杯\n", encoding="utf-8")
        agent = build_agent(SETTINGS, session, ScriptedModel(demo_script()), Gate("auto"), bus)
        result = agent.run("看看目录里的文件，算出一年喝多少杯茶，写个小结")
        print(f"答复：{result.text}")
        print(f"走了 {result.steps} 步，{len(result.calls)} 次工具调用\n")

        print("第二场：模型钻进了牛角尖")
        stubborn = ScriptedModel([Reply("再看一眼。", (ToolCall("1", "list_dir", {"path": "."}),))])
        agent = build_agent(SETTINGS, store.create("打转"), stubborn, Gate("auto"), bus)
        result = agent.run("目录里有什么文件")
        print(f"停在第 {result.steps} 步：{result.stopped}")
    return EXIT_OK if result.stopped else EXIT_ERROR


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="xiaoman", description="小满：一个手写的小 agent")
    parser.add_argument("task", nargs="?", help="要做的事")
    parser.add_argument("--demo", action="store_true", help="离线演示")
    parser.add_argument("--list-tools", action="store_true", help="列出工具")
    parser.add_argument("--sessions", action="store_true", help="列出会话")
    parser.add_argument("--session", metavar="编号", help="用已有的会话，缺省新建一个")
    parser.add_argument("--resume", action="store_true", help="从检查点接着做")
    parser.add_argument("--history", action="store_true", help="打印这个会话的一问一答")
    parser.add_argument("--set", action="append", default=[], metavar="段.键=值", help="临时改一项配置")
    options = parser.parse_args(argv)

    if options.demo:
        setup_logging(None, terminal=False)
        return demo()

    try:
        settings = load_settings(overrides=options.set)
        workspace = Path(settings.tools.workspace)
        setup_logging(workspace / settings.log.folder, settings.log.level, settings.log.terminal)
        store = SessionStore(workspace)
        if options.sessions:
            print(format_table([["编号", "问过几次"]] + [[s.id, str(len(s.history()))] for s in store.all()]))
            return EXIT_OK
        if options.list_tools:
            print(list_tools(settings))
            return EXIT_OK
        if not (options.task or options.resume or options.history):
            parser.print_usage(sys.stderr)
            return EXIT_USAGE
        session = store.open(options.session) if options.session else store.create(options.task or "")
        if options.history:
            rows = [["时刻", "问", "答"]]
            rows += [[h["at"], first_line(h["question"]), first_line(h["answer"])] for h in session.history()]
            print(format_table(rows))
            return EXIT_OK
        agent = build_agent(settings, session, build_model(settings), Gate(settings.tools.confirm), EventBus())
        result = agent.resume() if options.resume else agent.run(options.task)
    except (AgentError, LookupError) as exc:
        print(f"出错：{exc}", file=sys.stderr)
        return EXIT_ERROR
    print(result.text)
    print(agent.budget.report(), file=sys.stderr)
    session.log_turn(options.task or f"（接着做，{dt.date.today()}）", result.text)
    if result.stopped:
        print(f"没做完：{result.stopped}", file=sys.stderr)
        return EXIT_STOPPED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
