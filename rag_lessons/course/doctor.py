"""``python -m rag_lessons doctor``：逐项检查环境，每项一行，有问题就说怎么办。

每一项是一个不带参数的函数，返回一行或几行 Line。它在缺包的环境里也要能运行，
所以这里只在函数内部导入标准库以外的东西；某一项自己出错，也只变成一行「失败」。
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_lessons.types import RagLessonsError

OK, NOTE, FAIL = "通过", "注意", "失败"
ROOT = Path(__file__).resolve().parents[2]
MAX_REPO_PATH = 95  # Windows 的路径上限是 260；.venv 里最长的文件约占 160
LOW_DISK, NO_DISK = 500_000_000, 100_000_000
REINSTALL = "在课程文件夹运行 python start.py，它会补齐环境"


@dataclass(frozen=True)
class Line:
    """一行结果：通过／注意／失败，检查的是什么，结果，以及怎么办（可以没有）。"""

    status: str
    subject: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.status}  {self.subject}：{self.detail}" + (f"。怎么办：{self.remedy}" if self.remedy else "") + "。"


# ---------------------------------------------------------------- 各项检查


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Line:
    """Python 在 3.11 到 3.13 之间。"""
    text = ".".join(map(str, version))
    if (3, 11) <= tuple(version[:2]) <= (3, 13):
        return Line(OK, "Python", text)
    return Line(FAIL, "Python", f"{text}，本课程要 3.11 到 3.13", "装一个 Python 3.12，再用它运行 start.py")


def check_environment() -> Line:
    """用的是独立的环境（venv、conda），不是系统的 Python。"""
    conda = (Path(sys.prefix) / "conda-meta").is_dir()
    if sys.prefix != sys.base_prefix or conda:
        return Line(OK, "环境", f"{'conda' if conda else '虚拟环境'} {sys.prefix}")
    return Line(NOTE, "环境", "正在用系统的 Python", "用课程的 .venv：python start.py doctor")


def _version(text: str) -> tuple[int, ...]:
    """ "2.10.1rc1" → (2, 10, 1)；只看数字部分。"""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def satisfies(version: str, bounds: str) -> bool:
    """版本是否落在 ``>=2.0,<3`` 这样的范围里。

    >>> [satisfies(v, ">=2.0,<3") for v in ("1.26.4", "2.0", "2.10.1", "3.0.0")]
    [False, True, True, False]
    """
    for bound in filter(None, (b.strip() for b in bounds.split(","))):
        operator, limit = re.match(r"(==|>=|<=|>|<|~=|!=)\s*(.+)", bound).groups()  # type: ignore[union-attr]
        a, b = _version(version), _version(limit)
        size = max(len(a), len(b))
        a, b = a + (0,) * (size - len(a)), b + (0,) * (size - len(b))
        answers = {"==": a == b, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b, "!=": a != b, "~=": a >= b}
        if not answers[operator]:
            return False
    return True


def check_packages(root: Path = ROOT) -> Iterator[Line]:
    """pyproject.toml 要的包都在、版本在范围里；与锁文件不同时提醒。"""
    wanted = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    lock = root / "requirements.lock"
    pins: dict[str, set[str]] = {}  # 同一个包按 Python 版本可以锁在几个版本上
    if lock.is_file():
        for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.M):
            pins.setdefault(_normal(name), set()).add(version)
    fine, missing, differ = 0, [], []
    for requirement in wanted:
        name, bounds = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)", requirement).groups()  # type: ignore[union-attr]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if not satisfies(version, bounds):
            yield Line(FAIL, "依赖包", f"{name} 是 {version}，要 {bounds.strip()}", REINSTALL)
            continue
        fine += 1
        locked = pins.get(_normal(name), {version})
        if version not in locked:
            differ.append(f"{name} {version}（锁文件 {'、'.join(sorted(locked))}）")
    if missing:
        yield Line(FAIL, "依赖包", f"缺 {len(missing)} 个：{'、'.join(missing)}", REINSTALL)
    if differ:
        yield Line(NOTE, "依赖包", f"{len(differ)} 个与锁文件不同：{'、'.join(differ)}",
                   "结果的末位可能与课程里存下的不同；想完全一致就运行 python start.py")  # fmt: skip
    elif fine == len(wanted):
        yield Line(OK, "依赖包", f"{fine} 个都在，版本与锁文件一致" if pins else f"{fine} 个都在，版本合适")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def check_numpy() -> Line:
    """numpy 不只是装了，还真的能算（Windows 上缺运行库时装得上、用不了）。"""
    import numpy as np

    total = float((np.ones((8, 8), dtype=np.float32) @ np.ones((8, 8), dtype=np.float32)).sum())
    if total != 512.0:
        return Line(FAIL, "numpy", f"8×8 的矩阵乘法算出 {total}，应是 512", REINSTALL)
    return Line(OK, "numpy", f"{np.__version__}，矩阵乘法正常")


def check_font() -> Line:
    """图里的中文字体。"""
    spec = importlib.util.find_spec("zhplot")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        path = Path(folder) / "fonts" / "NotoSansSC-Regular.ttf"
        if path.is_file() and path.stat().st_size > 1_000_000:
            return Line(OK, "中文字体", "Noto Sans SC（zhplot 包自带）")
    return Line(FAIL, "中文字体", "没有找到 zhplot 包里的 NotoSansSC-Regular.ttf，图里的汉字会变成方块", REINSTALL)


def check_model() -> Line:
    """e5 的权重文件在不在、大小和 SHA-256 对不对。"""
    from rag_lessons.embedding.fetch import COMMAND, E5_SMALL, model_path

    try:
        path = model_path()
    except FileNotFoundError as error:
        return Line(FAIL, "e5 权重", str(error).split("；")[0], "改对环境变量 RAG_LESSONS_E5，或去掉它")
    if path is None:
        return Line(NOTE, "e5 权重", "还没有下载，第一次用到 e5 时会下载 91 MB", f"现在就下载：{COMMAND}")
    size = path.stat().st_size
    if size != E5_SMALL.size or _sha256(path) != E5_SMALL.sha256:
        return Line(FAIL, "e5 权重", f"{path} 与已知的权重不符（{size} 字节）", f"删掉它，再运行 {COMMAND}")
    return Line(OK, "e5 权重", f"{size / 1e6:.0f} MB，SHA-256 正确")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


DATA = ("data/agent", "data/handbook", "data/product", "data/golden")


def check_data() -> Line:
    """课程的语料和金标问题。"""
    missing = [name for name in DATA if not (ROOT / name).is_dir()]
    if missing:
        return Line(FAIL, "课程数据", f"缺 {'、'.join(missing)}", "重新克隆或更新课程仓库")
    return Line(OK, "课程数据", f"{sum(p.is_file() for p in (ROOT / 'data').rglob('*'))} 个文件")


def check_path(root: Path = ROOT, windows: bool = os.name == "nt") -> Iterator[Line]:
    """Windows 上课程文件夹的路径不能太长；别的系统没有这一行。"""
    if not windows:
        return
    length = len(str(root))
    if length > MAX_REPO_PATH:
        yield Line(NOTE, "路径长度", f"课程文件夹的路径有 {length} 个字符，超过 {MAX_REPO_PATH} 时有的文件会装不上",
                   r"移到短一点的地方，例如 C:\rag")  # fmt: skip
    else:
        yield Line(OK, "路径长度", f"{length} 个字符")


def check_cache() -> Line:
    """缓存文件夹能写，SQLite 在那里能用（有的网络盘不支持文件锁）。"""
    from rag_lessons.paths import cache_dir, preferred_cache_dir

    folder = cache_dir()
    remedy = "把环境变量 RAG_LESSONS_CACHE 设成本地盘上能写的文件夹"
    if folder != preferred_cache_dir():
        return Line(NOTE, "缓存", f"{preferred_cache_dir()} 不能写，暂用 {folder}，重启后要重算", remedy)
    with tempfile.TemporaryDirectory(dir=folder, prefix="doctor-") as temporary:
        try:
            with sqlite3.connect(Path(temporary) / "try.sqlite", timeout=2) as connection:
                connection.execute("CREATE TABLE t (x)")
                connection.execute("INSERT INTO t VALUES (1)")
            connection.close()
        except sqlite3.Error as error:
            return Line(NOTE, "缓存", f"{folder} 里不能用 SQLite（{error}），向量每次都要重算", remedy)
    return Line(OK, "缓存", f"{folder} 可写")


def check_kernel() -> Line:
    """Jupyter 里名叫 python3 的内核，用的就是这个环境。"""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    remedy = "运行 python -m ipykernel install --sys-prefix"
    if importlib.util.find_spec("ipykernel") is None:
        return Line(FAIL, "Jupyter 内核", "缺 ipykernel", REINSTALL)
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return Line(FAIL, "Jupyter 内核", "没有名叫 python3 的内核", remedy)
    return judge_kernel(spec.argv[0] if spec.argv else "", spec.resource_dir, remedy)


def judge_kernel(program: str, folder: str, remedy: str = "") -> Line:
    """内核启动的程序属不属于当前环境。不带路径的 python 由 Jupyter 换成它自己的解释器。"""
    if not Path(program).is_absolute() or _inside(program, sys.prefix):
        return Line(OK, "Jupyter 内核", "python3 用的是当前环境")
    return Line(FAIL, "Jupyter 内核", f"python3 指向别的环境：{program}（写在 {Path(folder) / 'kernel.json'}）", remedy)


def _inside(path: str, folder: str) -> bool:
    # 不解开符号链接：venv 的 python 是链到系统 Python 的
    a, b = (os.path.normcase(os.path.normpath(Path(p).absolute())) for p in (path, folder))
    return a.startswith(b + os.sep)


def check_keys() -> Line:
    """密钥找到没有；从不显示内容。没有密钥不算问题。"""
    from rag_lessons.settings import explain_key, get_key

    detail = explain_key("ZHIPUAI_API_KEY").rstrip("。")
    if get_key("ZHIPUAI_API_KEY") is None:  # 写坏了的密钥在这里抛异常，由 run_check 变成一行
        detail = "没有找到 ZHIPUAI_API_KEY，用离线的做法；要用智谱时写在根目录的 .env 里"
    return Line(OK, "密钥", detail)


def check_choice() -> Line:
    """默认会用哪种嵌入、哪种回答。"""
    from rag_lessons.course.kernel import describe
    from rag_lessons.settings import offline

    return Line(OK, "将会使用", describe() + ("（设了 RAG_LESSONS_OFFLINE）" if offline() else ""))


def check_disk(free: int | None = None) -> Line:
    """缓存所在的盘还有多少空间。"""
    if free is None:
        from rag_lessons.paths import preferred_cache_dir

        folder = preferred_cache_dir()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        free = shutil.disk_usage(folder).free
    detail = f"还有 {free / 1e9:.1f} GB"
    if free < LOW_DISK:
        remedy = "清出一些空间，或用 RAG_LESSONS_CACHE 把缓存放到别的盘"
        return Line(FAIL if free < NO_DISK else NOTE, "磁盘空间", f"{detail}，权重和缓存约需 0.2 GB", remedy)
    return Line(OK, "磁盘空间", detail)


CHECKS: tuple[tuple[str, Callable[[], Line | Iterator[Line]]], ...] = (
    ("Python", check_python),
    ("环境", check_environment),
    ("依赖包", check_packages),
    ("numpy", check_numpy),
    ("中文字体", check_font),
    ("课程数据", check_data),
    ("e5 权重", check_model),
    ("缓存", check_cache),
    ("磁盘空间", check_disk),
    ("路径长度", check_path),
    ("Jupyter 内核", check_kernel),
    ("密钥", check_keys),
    ("将会使用", check_choice),
)


# ---------------------------------------------------------------- 入口


def run_check(subject: str, check: Callable[[], Line | Iterator[Line]]) -> list[Line]:
    """运行一项；它自己出错时变成一行「失败」。"""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 要说的都写在结果里
            found = check()
            return [found] if isinstance(found, Line) else list(found)
    except ImportError as error:
        return [Line(FAIL, subject, f"缺少 {error.name or error}，没法检查", REINSTALL)]
    except RagLessonsError as error:  # 本包自己的报错：分号前是问题，分号后是办法
        problem, _, advice = str(error).rstrip("。").partition("；")
        return [Line(FAIL, subject, problem, advice.removeprefix("请") or REINSTALL)]
    except Exception as error:
        return [Line(FAIL, subject, f"检查时出错：{type(error).__name__}: {error}".rstrip("。"), REINSTALL)]


def main(argv: list[str] | None = None) -> int:
    """打印每一行和一行小结；有「失败」时返回 1，否则返回 0。"""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # 老的 Windows 终端写不出某些字时，不要因此停下
    if argv:
        print("用法：python -m rag_lessons doctor（没有别的参数）")
        return 0 if set(argv) <= {"-h", "--help"} else 2
    lines: list[Line] = []
    for subject, check in CHECKS:
        for line in run_check(subject, check):
            lines.append(line)
            print(line, flush=True)
    count = {status: sum(line.status == status for line in lines) for status in (OK, NOTE, FAIL)}
    print(f"共 {len(lines)} 项：" + "，".join(f"{n} 项{status}" for status, n in count.items()) + "。")
    return 1 if count[FAIL] else 0
