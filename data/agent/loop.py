"""主循环：问模型、做工具、把答复喂回去，直到没有工具要做。

整个项目就是围着这一个循环长出来的。它自己只有几十行，
其余的本事（记忆、权限、缓存、刹车、存档）都是外面接进来的零件，
换掉任何一个，循环都不用改。
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import events
import prompts
from budget import TokenBudget, estimate_messages
from checkpoint import Checkpoint, CheckpointStore
from errors import AgentError, BudgetExceeded, SafetyStop
from events import EventBus, trace_id
from log import get_logger
from memory import Memory
from model import Model, Reply, ToolCall
from notes import NoteBook
from parallel import Outcome, can_parallel, run_all
from router import Router, pick_tools
from safety import SafetyValve
from settings import Settings
from subagent import Dispatcher
from tools.registry import Registry, fingerprint

logger = get_logger("loop")


@dataclass
class Result:
    """一次任务的结果。stopped 不是空串时，说明是被刹停的，text 是当时手里最好的答复。"""

    text: str
    steps: int
    tokens: int
    stopped: str = ""
    calls: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return not self.stopped


class Agent:
    """把零件装在一起，然后转圈。

    registry 里登记了哪些工具、gate 怎么问、模型是真是假，都由外面决定。
    """

    def __init__(
        self,
        model: Model,
        registry: Registry,
        settings: Settings,
        *,
        session_id: str = "s0",
        bus: EventBus | None = None,
        notebook: NoteBook | None = None,
        checkpoints: CheckpointStore | None = None,
        budget: TokenBudget | None = None,
        depth: int = 0,
        today: dt.date | None = None,
    ) -> None:
        self.model = model
        self.registry = registry
        self.settings = settings
        self.session_id = session_id
        self.bus = bus or EventBus()
        self.notebook = notebook
        self.checkpoints = checkpoints
        self.budget = budget or TokenBudget(settings.loop.token_budget)
        self.router = Router()
        self.depth = depth
        self.today = today or dt.date.today()
        self.dispatcher = Dispatcher(
            self._run_child, self.budget, self.bus, depth=depth, share=settings.subagent.share
        )

    # ---- 对外的两个入口 ----

    def run(self, task: str) -> Result:
        """从头做一个任务。"""
        route = self.router.match(task)
        tools = pick_tools(route, self.registry.names())
        system = prompts.SYSTEM.render(
            today=self.today.isoformat(), specialty=route.specialty, tools="、".join(tools) or "没有"
        )
        memory = self._new_memory(system)
        hints = self._hints(task)
        memory.add_user(f"{task}\n\n{hints}" if hints else task)
        valve = self._new_valve(self.settings.loop.max_steps)
        logger.info("开工，路由 %s，工具 %d 个", route.name, len(tools))
        return self._turn(task, memory, valve, tools)

    def resume(self) -> Result:
        """从检查点接着做。没有检查点就抛 LookupError。"""
        point = self.checkpoints.latest() if self.checkpoints else None
        if point is None:
            raise LookupError("没有可以接着做的检查点")
        memory = self._new_memory("")
        memory.restore(point.memory)
        valve = self._new_valve(self.settings.loop.max_steps)
        valve.restore(point.valve)
        self.budget.used = point.used_tokens
        tools = pick_tools(self.router.match(point.task), self.registry.names())
        logger.info("接着做，已完成 %d 步", point.step)
        return self._turn(point.task, memory, valve, tools)

    # ---- 循环 ----

    def _turn(self, task: str, memory: Memory, valve: SafetyValve, tools: Sequence[str]) -> Result:
        """一圈一圈地转。

        结束条件：模型这一轮的回复里没有工具调用，就把文字当作最终答复交出。
        除此之外只有被刹停这一条路，循环里没有第三个出口。
        """
        calls: list[str] = []
        last_text = ""
        self.bus.emit(events.TASK_START, self._trace(0), task=task)
        stopped = ""
        try:
            while True:
                valve.before_step()
                trace = self._trace(valve.steps)
                self.bus.emit(events.STEP_START, trace, step=valve.steps)
                reply = self._ask(memory, tools, trace)
                last_text = reply.text or last_text
                memory.add_assistant(reply.text, reply.calls)
                if not reply.calls:
                    break
                for call, outcome in zip(reply.calls, self._act(reply.calls, valve, trace), strict=True):
                    calls.append(call.name)
                    memory.add_tool(call.id, _as_text(outcome))
                self._save(task, memory, valve)
        except (SafetyStop, BudgetExceeded) as exc:
            stopped = str(exc)
            logger.warning("刹停：%s", exc)
        if not stopped and self.checkpoints:
            self.checkpoints.clear()
        result = Result(last_text or "（没有得出答复）", valve.steps, self.budget.used, stopped, calls)
        self.bus.emit(
            events.TASK_END, self._trace(valve.steps), steps=result.steps, tokens=result.tokens, stopped=stopped
        )
        return result

    def _ask(self, memory: Memory, tools: Sequence[str], trace: str) -> Reply:
        """问一次模型，顺手记账。服务没给用量时按估算记。"""
        messages = memory.messages()
        reply = self.model.chat(messages, self.registry.schemas(tools))
        self.budget.charge(reply.tokens or estimate_messages(messages), f"depth{self.depth}")
        self.bus.emit(
            events.MODEL_REPLY, trace, text=reply.text, calls=[c.name for c in reply.calls], tokens=reply.tokens
        )
        return reply

    def _act(self, calls: Sequence[ToolCall], valve: SafetyValve, trace: str) -> list[Outcome]:
        """做掉一轮回复里的所有工具调用。全是只读的就一起做，否则挨个做。"""
        jobs = [lambda c=call: self.registry.call(c.name, c.arguments) for call in calls]
        for call in calls:
            valve.saw_call(fingerprint(call.name, call.arguments))
            self.bus.emit(events.TOOL_CALL, trace, name=call.name, arguments=call.arguments)
        if can_parallel([self._level(call) for call in calls]):
            outcomes = run_all(jobs)
        else:
            outcomes = [outcome for job in jobs for outcome in run_all([job])]
        for call, outcome in zip(calls, outcomes, strict=True):
            valve.saw_result(outcome.ok)
            self.bus.emit(
                events.TOOL_RESULT, trace, name=call.name, ok=outcome.ok, text=_as_text(outcome)
            )
            if isinstance(outcome.error, Exception) and not isinstance(outcome.error, AgentError):
                logger.error("工具 %s 有毛病：%r", call.name, outcome.error)
        return outcomes

    def _level(self, call: ToolCall) -> str:
        """模型编出来的工具按最重的一级对待，免得混进并行的那一批。"""
        if call.name not in self.registry.names():
            return "exec"
        return self.registry.get(call.name).level.value

    # ---- 零件 ----

    def _new_memory(self, system: str) -> Memory:
        section = self.settings.memory
        return Memory(
            system,
            window=section.window,
            compress_at=section.compress_at,
            keep_recent=section.keep_recent,
            on_compress=lambda before, after: self.bus.emit(
                events.MEMORY_COMPRESS, self._trace(0), before=before, after=after
            ),
        )

    def _new_valve(self, max_steps: int, budget: TokenBudget | None = None) -> SafetyValve:
        section = self.settings.loop
        return SafetyValve(
            budget or self.budget,
            max_steps=max_steps,
            repeat_limit=section.repeat_limit,
            error_limit=section.error_limit,
            max_seconds=section.max_seconds,
        )

    def _hints(self, task: str) -> str:
        """开工前翻一翻小本子，找到相关的就附在问题后面。"""
        if self.notebook is None or not self.settings.memory.notes:
            return ""
        found = self.notebook.recall(task)
        return prompts.RECALL.render(notes="\n".join(f"- {n.text}" for n in found)) if found else ""

    def _run_child(self, task: str, depth: int, allowance: int) -> str:
        """子代理也是一个 Agent：同样的模型和工具，自己的历史，更少的步数。"""
        child = Agent(
            self.model, self.registry, self.settings,
            session_id=self.session_id, bus=self.bus, budget=self.budget, depth=depth, today=self.today,
        )
        max_steps = self.settings.subagent.max_steps
        memory = child._new_memory(prompts.SUBAGENT.render(task=task, max_steps=max_steps))
        memory.add_user(task)
        ceiling = min(self.budget.limit, self.budget.used + allowance)
        line = TokenBudget(limit=ceiling, used=self.budget.used)
        valve = child._new_valve(max_steps, _Shared(self.budget, line))
        tools = [n for n in self.registry.names() if n != "delegate" or depth < 2]
        result = child._turn(task, memory, valve, tools)
        if result.stopped:
            raise SafetyStop(result.stopped)
        return result.text

    def _save(self, task: str, memory: Memory, valve: SafetyValve) -> None:
        if self.checkpoints and self.depth == 0:
            point = Checkpoint(task, valve.steps, memory.snapshot(), valve.snapshot(), self.budget.used)
            self.checkpoints.save(point)

    def _trace(self, step: int) -> str:
        return trace_id(self.session_id, step, self.today)


class _Shared:
    """给子代理看的账本：花销读主账本的，上限读划给它的那条线。"""

    def __init__(self, main: TokenBudget, line: TokenBudget) -> None:
        self._main, self._line = main, line

    @property
    def used(self) -> int:
        return self._main.used

    @property
    def limit(self) -> int:
        return self._line.limit

    @property
    def exhausted(self) -> bool:
        return self._main.used >= self._line.limit


def _as_text(outcome: Outcome) -> str:
    """工具的下场变成给模型看的文字。报错也要给它看，它才能换个办法。"""
    return str(outcome.value) if outcome.ok else f"出错了：{outcome.error}"
