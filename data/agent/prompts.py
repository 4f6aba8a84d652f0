"""提示词都放在这里，不散落在代码里。

改提示词和改代码一样要写进 CHANGELOG：它改变行为，而且没有类型检查替你兜底。
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from errors import MissingVariable

_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True)
class Template:
    """一份提示词模板。

    提示词模板用 {{名字}} 作占位符；缺一个值就抛 MissingVariable，绝不留着大括号发给模型。
    多给的值不管。值里面如果也写着 {{…}}，照原样放进去，不会再替换一遍：
    不然别人在网页里写一句 {{system}}，就能把我们的话套出来。

    >>> Template("你好，{{who}}。").render(who="{{小满}}")
    '你好，{{小满}}。'
    """

    text: str

    @property
    def slots(self) -> tuple[str, ...]:
        """需要哪些值，按第一次出现的次序。"""
        return tuple(dict.fromkeys(_SLOT.findall(self.text)))

    def render(self, **values: object) -> str:
        missing = [name for name in self.slots if name not in values]
        if missing:
            raise MissingVariable(f"模板还缺：{'、'.join(missing)}")
        return _SLOT.sub(lambda m: str(values[m.group(1)]), self.text).strip()


SYSTEM = Template(
    """
你是小满，一个在终端里干活的助手。今天是 {{today}}。

你的长处：{{specialty}}

规矩：
1. 先想清楚要几步，再动手。能一步做完的，不要分两步。
2. 手里有工具就用工具，不要凭印象报数字。
3. 工具报错时，先读报错的话，再换一种参数；同样的调用不要原样再来。
4. 资料里没有的，直接说没有。不知道比说错好。
5. 做完以后，用三句话以内说明做了什么、东西放在哪里。

你能用的工具：{{tools}}
"""
)

SUMMARY = Template(
    """
把下面的对话缩成不超过 {{limit}} 字的摘要，给以后的你自己看。
务必写明：用户要什么，已经做完什么，还差什么，出现过的文件名和数字。
不要写客套话，不要猜测没发生的事。

{{dialogue}}
"""
)

SUBAGENT = Template(
    """
你是小满派出的一个子代理，只做一件事：

{{task}}

你看不到主对话，需要的背景都在上面。做完只交结果，不要寒暄。
你最多走 {{max_steps}} 步。做不完就说卡在哪里，不要编一个结果。
"""
)

RECALL = Template(
    """
以下是小本子里和这个任务可能有关的笔记，未必都对，用之前先核实：
{{notes}}
"""
)
