"""依赖的几份清单互相一致，启动文件在该能读的地方都能读。"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {"requirements.lock": [], "requirements-all.lock": ["online", "stores"], "requirements-dev.lock": ["dev"]}
MACHINES = [
    {"python_version": v, "python_full_version": f"{v}.9", "sys_platform": s, "os_name": o, "platform_system": p,
     "platform_machine": m, "platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": ""}
    for v in ("3.11", "3.12", "3.13")
    for s, o, p, m in (("linux", "posix", "Linux", "x86_64"), ("darwin", "posix", "Darwin", "arm64"),
                       ("win32", "nt", "Windows", "AMD64"))
]  # fmt: skip


def wanted(extras: list[str]) -> list[Requirement]:
    """pyproject 里的依赖，连同这些附加组（附加组里引用的别的组也展开）。"""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    groups = list(extras)
    while groups:
        for line in PROJECT["optional-dependencies"][groups.pop()]:
            requirement = Requirement(line)
            if requirement.name == "rag-lessons":
                groups += requirement.extras
            else:
                found.append(requirement)
    return found


def pins(name: str) -> list[tuple[Requirement, int]]:
    """锁文件里的每一条和它的哈希个数。"""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(Requirement(line.split(" --hash")[0].strip()), line.count("--hash=sha256:")) for line in lines]


def on(machine: dict[str, str], requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(machine)


def version(pin: Requirement) -> str:
    return str(pin.specifier).removeprefix("==")


@pytest.mark.parametrize("name", LOCKS)
def test_lock_satisfies_pyproject_everywhere(name: str) -> None:
    locked = pins(name)
    for machine in MACHINES:
        here = {canonicalize_name(p.name): version(p) for p, _ in locked if on(machine, p)}
        for requirement in wanted(LOCKS[name]):
            if on(machine, requirement):
                have = here.get(canonicalize_name(requirement.name))
                assert have is not None, f"{name} 缺少 {requirement}（{machine['sys_platform']}）"
                assert requirement.specifier.contains(have, prereleases=True), f"{name}：{requirement} 对 {have}"


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_one_pin_with_hashes_and_no_host(name: str) -> None:
    locked = pins(name)
    assert len(locked) > 80
    for pin, hashes in locked:
        assert re.fullmatch(r"==[^*]+", str(pin.specifier)), pin
        assert pin.url is None and hashes > 0, pin
    for machine in MACHINES:
        names = [canonicalize_name(p.name) for p, _ in locked if on(machine, p)]
        assert len(names) == len(set(names)), "同一台机器上有两个版本"
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def test_locks_agree_with_each_other() -> None:
    dev = {(canonicalize_name(p.name), version(p)) for p, _ in pins("requirements-dev.lock")}
    for name in ("requirements.lock", "requirements-all.lock"):
        assert {(canonicalize_name(p.name), version(p)) for p, _ in pins(name)} <= dev, name


def test_bounds_on_both_sides() -> None:
    for requirement in wanted(list(PROJECT["optional-dependencies"])):
        operators = {s.operator for s in requirement.specifier}
        if canonicalize_name(requirement.name) != "pip":  # 装包的工具只要够新
            assert operators == {"=="} or operators >= {">=", "<"}, requirement


def test_environment_yml_agrees_with_pyproject() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [line for line in conda["dependencies"] if isinstance(line, str)]
    (nested,) = [line["pip"] for line in conda["dependencies"] if isinstance(line, dict)]
    assert nested[0] == "-e ."
    have = {canonicalize_name(r.name): r.specifier for r in map(Requirement, nested[1:])}
    have |= {"pip": Requirement(next(line for line in plain if line.startswith("pip"))).specifier}
    assert have == {canonicalize_name(r.name): r.specifier for r in wanted([])}
    python = next(line for line in plain if line.startswith("python="))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.split("=")[1])


def test_start_py_is_stdlib_only_and_old_pythons_can_parse_it() -> None:
    source = (ROOT / "start.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 6))
    names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names
    first = [n for n in tree.body if not isinstance(n, ast.Expr)][:2]
    assert isinstance(first[0], ast.Import) and isinstance(first[1], ast.If), "先看版本，再导入别的"


@pytest.mark.parametrize("old", [(3, 8, 18), (3, 10, 13), (3, 14, 0)])
def test_start_py_refuses_other_pythons_with_one_sentence(old: tuple[int, int, int]) -> None:
    code = (
        "import runpy, sys; from collections import namedtuple; sys.version_info = "
        f"namedtuple('V', 'major minor micro releaselevel serial')(*{old}, 'final', 0); "
        f"runpy.run_path({str(ROOT / 'start.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert f"你用的是 Python {old[0]}.{old[1]}" in done.stderr and "python.org" in done.stderr
    assert "Traceback" not in done.stderr


def test_windows_and_ci_launchers() -> None:
    bat = (ROOT / "start.bat").read_text(encoding="utf-8")
    assert "py -%%V start.py %*" in bat and "exit /b" in bat
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert ci.startswith("#!") and "start.py test" in ci and "set -euo pipefail" in ci


def test_env_example_names_the_key_and_holds_none() -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    assert "ZHIPUAI_API_KEY=" in settings
    assert all(line.endswith("=") for line in settings)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {".env", "my/", ".venv/"} <= set(ignored)


def test_zhipuai_imports_in_a_fresh_process() -> None:
    code = "from zhipuai import ZhipuAI; import sniffio; print(ZhipuAI.__name__)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "ZhipuAI", done.stderr


def test_default_encoding_is_never_relied_on() -> None:
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "start.py"]
    for arguments in (["--help"], ["fresh", "没有这一课"]):
        done = subprocess.run([*command, *arguments], capture_output=True, encoding="utf-8", cwd=ROOT)
        assert "EncodingWarning" not in done.stderr, done.stderr
