"""全部异常放在一处，每个带一个固定的编号。

编号一旦发布就不再改动，脚本和监控可以放心地拿它做判断。
百位表示来自哪里：1 配置与提示词，2 工具，3 模型，4 安全阀与预算，5 存储。
给人看的处理办法在 docs/limits.md 的表里，这里只管定义。
"""

from __future__ import annotations


class AgentError(Exception):
    """小满抛出的一切异常的父类。子类只需要写 code 和 retryable。"""

    code = "E000"
    retryable = False

    def __str__(self) -> str:
        text = super().__str__()
        return f"[{self.code}] {text}" if text else f"[{self.code}]"


# ---- 1xx 配置与提示词 ----


class ConfigError(AgentError):
    """agent.toml 写错了：类型不对、出现不认识的键、取值越界。"""

    code = "E101"


class MissingVariable(AgentError):
    """渲染模板时少给了一个值。"""

    code = "E102"


# ---- 2xx 工具 ----


class UnknownTool(AgentError):
    """模型点名要用的工具并不存在，多半是它编出来的。"""

    code = "E201"


class DuplicateTool(AgentError):
    """同一个名字登记了两次。"""

    code = "E202"


class BadExpression(AgentError):
    """计算器读不懂的式子。"""

    code = "E203"


class BadArguments(AgentError):
    """参数缺失、多余，或者类型对不上。"""

    code = "E204"


class OutsideSandbox(AgentError):
    """路径跑到工作目录外面去了。"""

    code = "E205"


class ToolTimeout(AgentError):
    """工具超过了限定的秒数。"""

    code = "E206"


class PermissionDenied(AgentError):
    """用户点了拒绝，或者当前模式不允许这一级的操作。"""

    code = "E207"


class FileTooLarge(AgentError):
    """文件超过单次读取的上限。"""

    code = "E208"


# ---- 3xx 模型 ----


class ModelUnavailable(AgentError):
    """服务连不上，或者回了 5xx。"""

    code = "E301"
    retryable = True


class RateLimited(AgentError):
    """服务说慢一点（429）。"""

    code = "E302"
    retryable = True


class BadReply(AgentError):
    """回复不是约定的 JSON。再问一次多半还是这样，所以不重来。"""

    code = "E303"


class AuthError(AgentError):
    """密钥不对或者已经过期。"""

    code = "E304"


# ---- 4xx 安全阀与预算 ----


class SafetyStop(AgentError):
    """安全阀跳闸了，任务到此为止。"""

    code = "E401"


class BudgetExceeded(AgentError):
    """token 用完了。"""

    code = "E402"


class DepthExceeded(AgentError):
    """子代理套得太深。"""

    code = "E403"


# ---- 5xx 存储 ----


class CheckpointBroken(AgentError):
    """检查点文件读不出来，或者版本对不上。"""

    code = "E501"


class SessionNotFound(AgentError):
    """没有这个编号的会话。"""

    code = "E502"


class NoteTooLong(AgentError):
    """一条笔记写得太长。"""

    code = "E503"
